"""One table, four formats: the same numbers, the best in bold, the paper's beside ours, the mark on each."""

import csv
import io
import re
from dataclasses import replace

import pytest

from softdlm.report.formats import latex, print_table, to_csv, to_html, to_latex, to_markdown
from softdlm.report.table import Cell, Column, Row, Table, mark_best

BEST = mark_best(
    [Cell(89.123, 87.0, 90.9, paper=71.65), Cell(96.1, 94.7, 97.1, paper=73.2, note="p 8e-11")], higher=True
)
TABLE = Table(
    "table2",
    "Accuracy, [MASK] & more",
    ("task", "rate"),
    (Column("vanilla"), Column("SLERP")),
    (
        Row(("mini-math", "2"), BEST),
        Row(("mini-math", "4"), (Cell(), Cell("n/a"))),
        Row(("mini_code", "2"), (Cell(38.7), Cell(36.7))),
    ),
    ("A note of 100 %.",),
    "quick run",
)


def test_the_best_is_the_highest_or_the_lowest_of_two_or_more() -> None:
    one, two, none = Cell(1.0), Cell(2.0), Cell()
    assert [cell.best for cell in mark_best([one, two, none], higher=True)] == [False, True, False]
    assert [cell.best for cell in mark_best([one, two, none], higher=False)] == [True, False, False]
    assert [cell.best for cell in mark_best([two, two], higher=True)] == [True, True]
    assert [cell.best for cell in mark_best([two, none, Cell("n/a")], higher=True)] == [False, False, False]


def test_a_row_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Table("t", "t", ("a",), (Column("x"),), (Row(("one",), (Cell(), Cell())),))


def test_markdown_has_ours_and_the_papers_side_by_side() -> None:
    head, _, names, _, first, second, third, _, note = to_markdown(TABLE).splitlines()
    assert head == "**Accuracy, [MASK] & more** (quick run)"
    assert names == "| task | rate | vanilla | vanilla, paper | SLERP | SLERP, paper |"
    assert first == "| mini-math | 2 | 89.1 [87.0, 90.9] | 71.65 | **96.1** [94.7, 97.1] p 8e-11 | 73.20 |"
    assert second == "| mini-math | 4 | — | — | n/a | — |"
    assert third == "| mini_code | 2 | 38.7 | — | 36.7 | — |"
    assert note == "- A note of 100 %."


def test_csv_reads_back_in_full_with_the_mark_in_every_row() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert rows[0]["vanilla"] == "89.123"
    assert [rows[0][f"SLERP {part}"] for part in ("low", "high", "paper", "best", "note")] == [
        "94.7", "97.1", "73.2", "yes", "p 8e-11",
    ]  # fmt: skip
    assert "vanilla note" not in rows[0]
    assert [row["run"] for row in rows] == ["quick run"] * 3
    assert "run" not in next(csv.reader(io.StringIO(to_csv(Table("t", "t", ("a",), (Column("x"),), ())))))


def test_latex_is_balanced_escaped_and_bold() -> None:
    text = to_latex(TABLE)
    assert r"\textbf{96.1} {\scriptsize {[}94.7, 97.1{]} p 8e-11} & 73.20 \\" in text
    assert r"\begin{tabular}{llrrrr}" in text
    assert r"\multicolumn{2}{c}{SLERP}" in text
    assert r"mini\_code" in text
    assert r"\textbf{quick run.}" in text
    assert r"100 \%" in text
    assert text.count(r"\midrule") == 2  # under the heads and between the tasks
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    widths = {
        1 + len(re.findall(r"(?<!\\)&", line)) + line.count(r"\multicolumn{2}")
        for line in body.splitlines()
        if line.endswith(r"\\")
    }
    assert widths == {6}
    assert latex("a_b & 50% {x} λ\\") == r"a\_b \& 50\% \{x\} $\lambda$\textbackslash{}"


def test_html_escapes_and_shows_the_papers_number_small() -> None:
    text = to_html(TABLE)
    assert "Accuracy, [MASK] &amp; more" in text
    assert '<span class="mark">quick run</span>' in text
    assert '<td class="n"><b>96.1</b> <small>[94.7, 97.1]</small>' in text
    assert '<small class="below">p 8e-11</small> <small class="below"><i>paper 73.20</i></small>' in text
    assert "<i>paper&#x27;s LLaDA 73.20</i>" in to_html(replace(TABLE, paper_of="paper's LLaDA"))
    assert text.count('<th scope="row" rowspan="2">mini-math</th>') == text.count("mini-math") == 1
    assert "<details>" not in text
    assert "All 60 rows" in to_html(replace(TABLE, rows=TABLE.rows * 20))
    assert text.count("class=group") == 2


def test_the_terminal_has_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(TABLE)
    printed = capsys.readouterr().out
    assert "quick run" in printed
    assert "96.1* [94.7, 97.1] p 8e-11" in printed
    assert "73.20" in printed


def test_a_table_without_rows_is_its_title_and_notes() -> None:
    empty = Table("t", "Nothing", ("a",), (Column("x"),), (), ("no data",))
    assert to_csv(Table("t", "Nothing", ("a",), (Column("x"),), (), mark="quick")) == "a,x,run\n,,quick\n"
    assert to_markdown(empty) == "**Nothing**\n\n- no data\n"
    assert "<table>" not in to_html(empty)
