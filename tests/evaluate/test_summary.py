"""The table is a function of the folders: every number of it by hand."""

from pathlib import Path
from typing import Any

import pytest

from softdlm.errors import ResultsError, UsageError
from softdlm.evaluate.metrics import mcnemar
from softdlm.evaluate.summary import Result, find_cells, rows, summarise, tables, words
from tests.evaluate.cells import RULES, cell, sample, write_cell

FOUR = "topn(4)"
ITEMS = [f"i{number:02}" for number in range(12)]


def verdicts(solved: int, start: int = 0) -> dict[str, bool]:
    return {item: start <= place < start + solved for place, item in enumerate(ITEMS)}


def read(root: Path) -> list[Result]:
    return [Result.read(folder) for folder in find_cells(root)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_cell(tmp_path, cell(), verdicts(8), forwards=8, tokens=6, seconds=2.0)
    write_cell(tmp_path, cell(commit=FOUR), verdicts(3), forwards=2)
    write_cell(tmp_path, cell("slerp", FOUR), verdicts(9, start=2), forwards=2, tokens=5)
    return tmp_path


def test_rows_by_hand(root: Path) -> None:
    single, vanilla, slerp = rows(read(root))
    assert [row["rate"] for row in (single, vanilla, slerp)] == ["1 a step", "4 a step", "4 a step"]
    assert (single["accuracy"], single["recovery"], single["p"]) == (pytest.approx(100 * 8 / 12), 100.0, None)
    assert (single["passes"], single["tokens_per_forward"], single["tokens_per_second"]) == (8, 0.75, 3)
    assert (vanilla["recovery"], vanilla["p"]) == (pytest.approx(100 * 3 / 8), None)
    assert slerp["recovery"] == pytest.approx(100 * 6 / 8)  # solves items 2 to 10, single-token decoding 0 to 7
    assert slerp["p"] == pytest.approx(2 * (1 + 10 + 45) / 2**10)  # vanilla alone solves 2, slerp alone 8
    assert slerp["single_solved"] == 8
    assert slerp["tokens_per_forward"] == 2.5


def test_consistency_by_hand(tmp_path: Path) -> None:
    write_cell(tmp_path, cell(commit=FOUR), verdicts(8), consistent=verdicts(3))
    write_cell(tmp_path, cell("slerp", FOUR), verdicts(6, start=4), consistent=verdicts(9, start=2))
    vanilla, slerp = rows(read(tmp_path))
    assert (vanilla["consistency"], vanilla["right_and_consistent"]) == (25.0, 25.0)
    assert vanilla["consistency_p"] is None
    assert slerp["consistency"] == 75.0
    assert slerp["right_and_consistent"] == 50.0  # right 4 to 9, consistent 2 to 10
    assert slerp["consistency_p"] == pytest.approx(2 * (1 + 10 + 45) / 2**10)  # vanilla alone 2, slerp alone 8
    low, high = slerp["consistency_interval"]
    assert low < 75 < high
    ((_, (_, line), _),) = tables([vanilla, slerp])
    assert line["consistent %"] == f"75.0 [{low:.1f}, {high:.1f}]"
    assert (line["its p"], line["and right %"]) == ("0.11", "50.0")
    write_cell(tmp_path, cell("euclidean", FOUR), verdicts(6))  # from before the measure
    old = next(row for row in rows(read(tmp_path)) if row["method"].startswith("euclidean"))
    assert (old["consistency"], words(old)["consistent %"]) == (None, "—")


def test_recovery_is_of_vanillas_single_tokens_for_every_method(root: Path) -> None:
    before = [row["recovery"] for row in rows(read(root))]
    write_cell(root, cell("slerp"), verdicts(2))
    single, other, *rest = rows(read(root))
    assert (other["method"], other["rate"], other["recovery"]) == ("slerp k=3 lam=0.3", "1 a step", 25.0)
    assert [row["recovery"] for row in (single, *rest)] == before


def test_the_table_does_not_depend_on_the_order_of_the_samples(root: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "shuffled"
    write_cell(shuffled, cell(commit=FOUR), verdicts(3))
    write_cell(shuffled, cell("slerp", FOUR), dict(reversed(verdicts(9, start=2).items())))
    _, slerp = rows(read(shuffled))
    assert slerp["p"] == rows(read(root))[2]["p"]


def test_nothing_to_compare_with_is_a_dash_and_nothing_solved_is_not_applicable(tmp_path: Path) -> None:
    write_cell(tmp_path, cell("slerp", FOUR), verdicts(4))
    (alone,) = rows(read(tmp_path))
    assert (words(alone)["p"], words(alone)["recovery"]) == ("—", "—")
    write_cell(tmp_path, cell(), verdicts(0))
    _, slerp = rows(read(tmp_path))
    assert words(slerp)["recovery"] == "n/a"


@pytest.mark.parametrize("settings", [{"block_length": 4}, {"seed": 1}, {"eos": "last"}])
def test_only_the_same_settings_are_compared(root: Path, settings: dict[str, Any]) -> None:
    write_cell(root, cell("slerp", FOUR, **settings), verdicts(9))
    (other,) = [row for row in rows(read(root)) if row["single_solved"] is None]
    assert (other["p"], other["recovery"]) == (None, None)
    ((name, value),) = settings.items()
    assert f"{name}={value}" in other["settings"]


def test_an_unfinished_cell_shows_how_far_it_is_and_is_compared_with_nothing(root: Path) -> None:
    folder = write_cell(root, cell("euclidean", FOUR), verdicts(5), finished=False)
    lines = (folder / "samples.jsonl").read_text().splitlines(keepends=True)
    (folder / "samples.jsonl").write_text("".join(lines[:4]) + lines[4][:10])
    (row,) = [row for row in rows(read(root)) if row["method"].startswith("euclidean")]
    assert words(row)["items"] == "4 of 12"
    assert (row["p"], row["recovery"]) == (None, None)
    assert words(row)["recovery"] == "—"
    assert (folder / "samples.jsonl").read_text().endswith(lines[4][:10])  # reading repairs nothing


def test_tables_put_what_rows_share_into_the_title(root: Path) -> None:
    ((title, lines, _),) = tables(rows(read(root)))
    assert title == "tiny · mini-math · 12 items · k=3 lam=0.3"
    assert [line["method"] for line in lines] == ["vanilla", "vanilla", "slerp"]
    assert list(lines[0]) == ["method", "rate", "accuracy %", "p", "recovery", "passes", "tok/pass", "tok/s"]
    write_cell(root, cell("slerp(k=2)", FOUR), verdicts(9))
    ((title, lines, _),) = tables(rows(read(root)), cells=True)
    assert title == "tiny · mini-math · 12 items"
    assert {"slerp k=2 lam=0.3", "slerp k=3 lam=0.3"} <= {line["method"] for line in lines}
    assert "cell" in lines[0]


def test_rules_around_rules_share_their_strength_with_the_others(root: Path) -> None:
    write_cell(root, cell("alternate(slerp, period=3)", FOUR), verdicts(9))
    write_cell(root, cell("alternate(slerp)", "hard_only(topn(4))"), verdicts(9))
    ((title, lines, _),) = tables(rows(read(root)))
    assert title == "tiny · mini-math · 12 items · k=3 lam=0.3"
    assert [(line["method"], line["rate"]) for line in lines[2:]] == [
        ("alternate-slerp period=3", "4 a step"), ("slerp", "4 a step"), ("alternate-slerp", "4 a step, hard only"),
    ]  # fmt: skip


def test_the_summary_of_a_cell() -> None:
    extras = [{"strict": True, "level": 2, "note": "x"}, {"strict": False, "level": 4, "note": "y"}]
    found = summarise([sample(str(number), number == 0, extra=extra) for number, extra in enumerate(extras)])
    assert found["extra"] == {"strict": 0.5, "level": 3}
    assert (found["items"], found["correct"], found["accuracy"]) == (2, 1, 50)
    assert (found["forwards"], found["tokens"], found["seconds"]) == (8, 12, 1.0)
    assert (found["tokens_per_forward"], found["tokens_per_second"]) == (1.5, 12)


def test_one_cells_folder_will_do_and_an_empty_one_is_said(root: Path, tmp_path: Path) -> None:
    one = find_cells(root)[0]
    assert find_cells(one) == [one]
    with pytest.raises(UsageError, match="holds no results"):
        find_cells(tmp_path / "nothing")


def test_results_of_another_protocol_are_one_clear_error(root: Path) -> None:
    manifest = find_cells(root)[0] / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"softdlm_protocol": 2', '"softdlm_protocol": 1'))
    with pytest.raises(ResultsError, match=r"made by another version of softdlm \(protocol 1; this one reads 2\)"):
        read(root)


def test_methods_are_compared_under_the_same_text_of_a_users_commit_rule(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    found = []
    for text in (RULES, RULES.replace("<= 2", "<= 3")):
        rules.write_text(text)
        found.append(write_cell(tmp_path / "out", cell(commit=f"{rules}:leftmost"), verdicts(3 + len(found))))
    write_cell(tmp_path / "out", cell("slerp", f"{rules}:leftmost"), verdicts(9, start=2))
    results = read(tmp_path / "out")
    p = [row["p"] for row in rows(results) if row["method"].startswith("slerp")]
    assert p == [mcnemar(list(verdicts(4).values()), list(verdicts(9, start=2).values()))]
    assert [row["p"] for row in rows([each for each in results if each.folder != found[1]])] == [None, None]


def test_p_of_equal_verdicts_is_one() -> None:
    assert mcnemar([True, False], [True, False]) == 1.0
