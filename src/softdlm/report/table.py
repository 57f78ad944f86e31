"""A table as a value: what every format is written from (softdlm.report.formats)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    paper_of: str = "paper"
    """Stands before the paper's numbers on a page: the paper's model, where it is not the one measured here."""

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


def join_models(found: Mapping[str, Sequence[Table]]) -> list[Table]:
    """The tables of several models, those of one name as one table with a group of rows for each model.

    The tables of a single model stay as they are, and so do tables whose columns differ from model to model.
    """
    if len(found) == 1:
        return list(*found.values())
    named: dict[tuple[str, int], dict[str, Table]] = {}
    for model, tables in found.items():
        for place, table in enumerate(tables):
            named.setdefault((table.name, place), {})[model] = table
    return [table for group in named.values() for table in _joined(group)]


def _joined(group: Mapping[str, Table]) -> list[Table]:
    model, first = next(iter(group.items()))
    if len({(table.heads, table.columns) for table in group.values()}) > 1:
        return [
            replace(table, name=f"{table.name}-{number}", title=_of_model(table, name))
            for number, (name, table) in enumerate(group.items(), 1)
        ]
    rows = [replace(row, labels=(name, *row.labels)) for name, table in group.items() for row in table.rows]
    title = first.title.removesuffix(f", {model}")
    printed = {table.paper_of for table in group.values()}
    paper_of = first.paper_of if len(printed) == 1 else Table.paper_of
    heads = ("model", *first.heads)
    return [replace(first, title=title, heads=heads, rows=tuple(rows), notes=_notes(group), paper_of=paper_of)]


def _of_model(table: Table, model: str) -> str:
    return table.title if table.title.endswith(f", {model}") else f"{table.title}, {model}"


def _notes(group: Mapping[str, Table]) -> tuple[str, ...]:
    """Notes that all models share once, the others with the model in front, in the order of the first table."""
    every = list(dict.fromkeys(note for table in group.values() for note in table.notes))
    made = []
    for note in every:
        holders = [model for model, table in group.items() if note in table.notes]
        made.append(note if len(holders) == len(group) else f"{', '.join(holders)}: {note}")
    return tuple(made)
