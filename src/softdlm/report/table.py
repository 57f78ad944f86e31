"""A table as a value: what every format is written from (softdlm.report.formats)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Cell:
    """A number with its 95 % interval and the paper's number beside it, or a few words."""

    value: float | int | str | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    best: bool = False
    note: str = ""
    """A few characters after the number, such as a p-value."""


@dataclass(frozen=True)
class Column:
    name: str
    digits: int = 1
    paper_digits: int = 2


@dataclass(frozen=True)
class Row:
    labels: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """`heads` name the labels of the rows; rows with the same first label belong together."""

    name: str
    """Of its files: letters, digits and dashes."""
    title: str
    heads: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    mark: str = ""
    """Said wherever the table goes, such as that it is of a quick run."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if (len(row.labels), len(row.cells)) != (len(self.heads), len(self.columns)):
                raise ValueError(f"row {row.labels} of {self.name} does not fit its heads and columns")

    def has_paper(self, column: int) -> bool:
        return any(row.cells[column].paper is not None for row in self.rows)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def mark_best(cells: Sequence[Cell], *, higher: bool) -> tuple[Cell, ...]:
    """The highest, or lowest, of at least two numbers; all of them where they are equal."""
    values = [cell.value for cell in cells if isinstance(cell.value, int | float)]
    if len(values) < 2:
        return tuple(cells)
    best = max(values) if higher else min(values)
    return tuple(replace(cell, best=cell.value == best) for cell in cells)
