"""Rows of a result as a table: on the terminal, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

WIDE = 1000
"""Columns of a screen on which nothing need be broken."""


def print_rows(rows: Sequence[Mapping[str, Any]], digits: int | None = None, title: str | None = None) -> None:
    """One column per key of the first row; numbers to the right, fractions with so many digits, None as a dash."""
    table = Table(title=title)
    for name in rows[0]:
        number = any(isinstance(row.get(name), int | float) for row in rows)
        first = name == next(iter(rows[0]))
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=first)
    for row in rows:
        table.add_row(*(_cell(value, digits) for value in row.values()))
    Console().print(table)


def print_titled(title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """A narrow table whose cells are never broken: on a small terminal its lines are longer than the screen."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if _is_number(value) else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    Console(width=WIDE).print(table)


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"—|n/a|-?[0-9.]+(e-?[0-9]+)?", text))


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A GitHub table, one column per key of the first row."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(map(str, row.values())) for row in rows)]
    return "".join(f"| {' | '.join(_escape(value) for value in line)} |\n" for line in lines)


def _escape(value: str) -> str:
    return value.replace("|", "\\|")


def _cell(value: Any, digits: int | None) -> str:
    if value is None:
        return "—"
    return f"{value:.{digits}f}" if digits is not None and isinstance(value, float) else str(value)
