"""A part of the report: one experiment's tables and figures, and what was and was not measured for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from softdlm.report.table import Table


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn: called as `draw(file=path)`."""

    name: str
    caption: str
    draw: Callable[..., None]


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    about: str
    """A sentence on what is measured, and where in the paper."""
    tables: tuple[Table, ...]
    drawings: tuple[Drawing, ...]
    measured: str
    """A line on what was measured."""
    not_measured: str
    """And on what was not."""
