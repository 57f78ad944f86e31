"""What was measured, as the tables and findings read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from softdlm.analysis.plans import Result as Analysis
from softdlm.evaluate.cell import SINGLE, Rate
from softdlm.evaluate.metrics import Effort
from softdlm.evaluate.summary import Result, effort_of
from softdlm.reproduce.study import Study


@dataclass(frozen=True)
class Cells:
    """The finished cells of one experiment."""

    results: Sequence[Result]

    def find(
        self, task: str, method: str, rate: Rate, *, k: int | None = None, lam: float | None = None
    ) -> Result | None:
        """The one cell that is meant, None where it is not finished."""
        wanted = {name: value for name, value in {"k": k, "lam": lam}.items() if value is not None}
        found = [
            each
            for each in self.results
            if is_of(each, task)
            and each.protocol["method"]["name"] == method
            and (each.protocol["rate"]["name"], each.protocol["rate"]["value"]) == (rate.name, rate.value)
            and all(each.protocol["method"].get(name) == value for name, value in wanted.items())
        ]
        if len(found) > 1:
            raise ValueError(f"{task}, {method}, {rate} is ambiguous: {[each.folder.name for each in found]}")
        return found[0] if found else None

    def single(self, task: str) -> Result | None:
        """Vanilla at one token a step."""
        return self.find(task, "vanilla", SINGLE)

    def swept(self, task: str, method: str, name: str, **fixed: float) -> Iterator[tuple[float, Result]]:
        """Cells of a method over one of its settings, the others fixed, in order."""
        for each in sorted(self.results, key=lambda each: each.protocol["method"].get(name) or 0):
            settings = each.protocol["method"]
            if is_of(each, task) and settings["name"] == method and fixed.items() <= settings.items():
                yield settings[name], each


def is_of(result: Result, task: str) -> bool:
    """Whether a cell is of the task, or of a variant of it (gsm8k-dream)."""
    name = result.labels["task"]
    return name == task or name.startswith(f"{task}-")


def verdicts(result: Result) -> dict[str, bool]:
    return {item: sample.correct for item, sample in result.samples.items()}


def paired(first: Result, second: Result) -> tuple[list[bool], list[bool]]:
    """Verdicts on the same items, in the same order."""
    if first.samples.keys() != second.samples.keys():
        raise ValueError(f"{first.folder.name} and {second.folder.name} answer different items")
    ids = sorted(first.samples)
    return first.verdicts(ids), second.verdicts(ids)


def effort(result: Result) -> Effort:
    return effort_of(list(result.samples.values()))


@dataclass(frozen=True)
class Data:
    """Of one run: cells by experiment, analyses by name (one for each task where they decode), and what is missing."""

    study: Study
    cells: Mapping[str, Cells] = field(default_factory=dict)
    analyses: Mapping[str, Sequence[Analysis]] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    """Cells that each experiment asked for."""
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Experiment or analysis -> why something of it is not there, a line each."""

    def rows(self, name: str) -> list[Any]:
        """All rows of an analysis."""
        return [row for result in self.analyses.get(name, ()) for row in result.rows]

    def by_task(self, name: str) -> dict[str, list[Any]]:
        """Rows of an analysis that decodes, by task."""
        rows = self.rows(name)
        return {task: [row for row in rows if row.task == task] for task in dict.fromkeys(row.task for row in rows)}
