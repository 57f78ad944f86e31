"""Tables as text."""

import pytest

from softdlm.report.row_tables import markdown, print_titled

ROWS = [{"name": "a|b", "share": "12.5"}, {"name": "c", "share": "—"}]


def test_markdown_escapes_what_would_end_a_cell() -> None:
    assert markdown(ROWS) == "| name | share |\n| --- | --- |\n| a\\|b | 12.5 |\n| c | — |\n"


def test_a_titled_table_breaks_no_cell(capsys: pytest.CaptureFixture[str]) -> None:
    long = "word " * 40
    print_titled("a title", [{"name": long, "share": "1"}])
    printed = capsys.readouterr().out
    assert printed.startswith("a title")
    assert long.strip() in printed
