"""Rows of a result as a table on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """One column per key of the first row; numbers to the right."""
    table = Table()
    for name, value in rows[0].items():
        number = isinstance(value, int | float)
        first = name == next(iter(rows[0]))
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=first)
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)
