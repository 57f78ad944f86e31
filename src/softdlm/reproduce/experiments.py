"""Every experiment in the paper's order: a new one is a file in this folder and its name in the list."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from softdlm.errors import UsageError
from softdlm.reproduce.experiment import Experiment

NAMES = (
    "figure1", "table1", "table2", "table3", "table4", "b1", "table5",
    "figure2", "table6", "table7", "table8", "best", "consistent", "rivals", "frontier", "agreement",
)  # fmt: skip
EXPERIMENTS: tuple[Experiment, ...] = tuple(import_module(f"{__package__}.{name}").EXPERIMENT for name in NAMES)


def select(names: Sequence[str]) -> tuple[Experiment, ...]:
    """Experiments in the paper's order; `all` is all of them."""
    unknown = [name for name in names if name not in (*NAMES, "all")]
    if unknown or not names:
        raise UsageError(f"unknown experiment {', '.join(unknown) or '(none)'}: give all, or {', '.join(NAMES)}")
    return tuple(each for each in EXPERIMENTS if "all" in names or each.name in names)
