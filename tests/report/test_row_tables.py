"""Tables as text: nothing is broken and nothing is wider than the screen."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softdlm.report.row_tables import markdown, print_rows, table
from softdlm.report.words import count

ROWS = [{"name": "a|b", "share": "12.5"}, {"name": "c", "share": "—"}]
WORDS = st.text("abcdefgh", min_size=1, max_size=12)
CELLS = st.one_of(WORDS, st.from_regex(r"[0-9]{1,3}\.[0-9] \[[0-9]{2}\.[0-9], [0-9]{2}\.[0-9]\]", fullmatch=True))


def test_markdown_escapes_what_would_end_a_cell() -> None:
    assert markdown(ROWS) == "| name | share |\n| --- | --- |\n| a\\|b | 12.5 |\n| c | — |\n"


def test_a_table_that_fits_has_its_heads_in_one_line() -> None:
    shown = table([{"method": "slerp", "tokens a pass": 4.0, "p": None}], 80, "a title", digits=2).plain
    assert shown.splitlines() == [
        "a title",
        "method  tokens a pass  p",
        "────────────────────────",
        "slerp            4.00  —",
    ]


def test_heads_are_broken_between_words_before_anything_else() -> None:
    rows = [{"method": "slerp", "tokens a pass": 4.0, "differs from the first at": "1, 2"}]
    shown = table(rows, 24, digits=2).plain
    assert max(map(len, shown.splitlines())) <= 24
    assert shown.count("slerp") == 1


@given(
    st.lists(st.text("abcdefgh ", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=9, unique=True),
    st.data(),
)
def test_no_line_is_too_long_and_no_cell_is_broken(names: list[str], data: st.DataObject) -> None:
    names = ["label", *(f"{name.strip()}{index}" for index, name in enumerate(names))]
    rows = data.draw(st.lists(st.fixed_dictionaries(dict.fromkeys(names, CELLS)), min_size=1, max_size=4))
    shown = table(rows, 80).plain
    assert max(map(len, shown.splitlines())) <= 80
    for row in rows:
        assert all(cell in shown for cell in row.values())


def test_columns_that_do_not_fit_stand_below_with_the_labels_again() -> None:
    wide = {f"column {number}": "0.123 [0.100, 0.200]" for number in range(4)}
    shown = table([{"task": "mini-math", "rate": "2", **wide}], 80, labels=2).plain
    assert shown.count("mini-math") == 2
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("0.123 [0.100, 0.200]") == 4


def test_rows_are_lists_where_no_column_fits_beside_the_labels() -> None:
    rows = [
        {
            "method": "no_eos-alternate-slerp",
            "rate": rate,
            "accuracy %": "100.0 [51.0, 100.0]",
            "its p": "1",
            "a": "b c",
        }
        for rate in ("entropy bound 0.15", "4 a step")
    ]
    assert table(rows, 40, labels=2).plain.splitlines()[:5] == [
        "no_eos-alternate-slerp · entropy bound",
        "0.15",
        "  accuracy %  100.0 [51.0, 100.0]",
        "  its p       1",
        "  a           b c",
    ]
    assert "─" in table(rows, 80, labels=2).plain


def test_a_terminal_without_unicode_has_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = io.TextIOWrapper(io.BytesIO(), "ascii", errors="backslashreplace")
    monkeypatch.setattr("sys.stdout", plain)
    print_rows([{"a": "b", "c": None}])
    plain.seek(0)
    assert plain.read() == "a  c\n----\nb  -\n\n"


def test_a_number_and_the_papers_stay_in_one_table() -> None:
    row = {"task": "t"} | {
        name: "100.0 [34.2, 100.0] p 1" for each in "abc" for name in (f"method {each}", f"method {each}, paper")
    }
    for part in table([row], 80).plain.split("\n\n"):
        assert part.count("paper") * 2 == part.count("method")


def test_a_sentence_is_broken_between_words_and_a_name_is_not() -> None:
    claim = "Soft tokens move probability to the coherent answers, and the most likely answer is one of them"
    row = {"where": "Figure 1", "claim": claim, "verdict": "does not hold", "model": "Dream-org/Dream-v0-Instruct-7B"}
    shown = table([row], 80).plain
    assert max(map(len, shown.splitlines())) <= 80
    assert set(claim.split()) <= set(shown.split())
    assert "Dream-org/Dream-v0-Instruct-7B" in shown
    assert "does not hold" in shown


def test_lines_of_a_cell_stay_lines() -> None:
    shown = table([{"claim": "one", "verdict": "a holds\nb undecided"}], 80).plain
    assert shown.splitlines()[2:] == ["one    a holds", "       b undecided"]


def test_print_rows_keeps_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"what": "[mask] and [MASK]"}], "with [bold] words")
    printed = capsys.readouterr().out
    assert "[mask] and [MASK]" in printed
    assert printed.startswith("with [bold] words\n")


def test_one_is_singular() -> None:
    assert [count(number, "token") for number in (0, 1, 2000)] == ["0 tokens", "1 token", "2,000 tokens"]
    assert [count(number, "pass") for number in (1, 2)] == ["1 pass", "2 passes"]
