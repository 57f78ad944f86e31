"""Rows of a result as a table on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


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


def _cell(value: Any, digits: int | None) -> str:
    if value is None:
        return "—"
    return f"{value:.{digits}f}" if digits is not None and isinstance(value, float) else str(value)
