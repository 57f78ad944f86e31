"""What was measured, as tables and claims read it. The only readers of a cell's protocol are here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from softdlm.analysis.plans import Result as AnalysisResult
from softdlm.evaluate.metrics import Effort, Share
from softdlm.evaluate.summary import Result, effort_of
from softdlm.registry import build, title
from softdlm.reproduce.study import Study, rate_title


@dataclass(frozen=True)
class Cells:
    """The finished cells of one experiment."""

    results: Sequence[Result]

    def find(self, task: str, method: str, commit: str, **strength: float) -> Result | None:
        """The cell of a task, method and rate, and of a k or lam where given; None where it is not finished."""
        rate = rate_title(commit)
        found = [each for _, each in self._of(task, method, **strength) if rate_title(each.rate) == rate]
        if len(found) > 1:
            raise ValueError(f"{task}, {method}, {rate} is ambiguous: {[each.folder.name for each in found]}")
        return found[0] if found else None

    def single(self, task: str) -> Result | None:
        """Vanilla at one token a step."""
        return self.find(task, "vanilla", "topn(1)")

    def swept(self, task: str, method: str, name: str, **fixed: float) -> Iterator[tuple[float, Result]]:
        """The values of one setting of a method in ascending order, each with its cell; other settings are fixed."""
        found = [(getattr(rule, name), each) for rule, each in self._of(task, method, **fixed)]
        yield from sorted(found, key=lambda pair: pair[0])

    def _of(self, task: str, method: str, **strength: float) -> Iterator[tuple[Any, Result]]:
        """Feedback rules with their cells."""
        for each in self.results:
            rule = build("feedback", each.protocol["decoding"]["feedback"])
            fits = all(getattr(rule, name, None) == value for name, value in strength.items())
            if is_of(each, task) and title(rule) == method and fits:
                yield rule, each


def is_of(result: Result, task: str) -> bool:
    """Whether a cell is of the task, or of a variant of it (gsm8k-dream)."""
    name = result.labels["task"]
    return name == task or name.startswith(f"{task}-")


def share(result: Result) -> Share:
    """The share of items that a cell solves."""
    return Share.of([sample.correct for sample in result.samples.values()])


def paired(first: Result, second: Result) -> tuple[list[bool], list[bool]]:
    """Verdicts on the same items, in the same order."""
    if first.samples.keys() != second.samples.keys():
        raise ValueError(f"{first.folder.name} and {second.folder.name} answer different items")
    ids = sorted(first.samples)
    return first.verdicts(ids), second.verdicts(ids)


def effort(result: Result) -> Effort:
    return effort_of(list(result.samples.values()))


@dataclass(frozen=True)
class Measurements:
    """One run: cells by experiment, and analyses by name with one result for each task or set of prompts."""

    study: Study
    cells: Mapping[str, Cells] = field(default_factory=dict)
    analyses: Mapping[str, Sequence[AnalysisResult]] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    """Experiment -> the number of cells that it needs."""
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Experiment or analysis -> why a part of it was not measured, a line each."""

    def rows(self, name: str) -> list[Any]:
        """All rows of an analysis."""
        return [row for result in self.analyses.get(name, ()) for row in result.rows]

    def by_task(self, name: str) -> dict[str, list[Any]]:
        """Rows of an analysis that decodes, by task."""
        rows = self.rows(name)
        return {task: [row for row in rows if row.task == task] for task in dict.fromkeys(row.task for row in rows)}

    def all_cells(self) -> list[Result]:
        """Every cell once, also where several experiments share it."""
        return list({each.folder.name: each for cells in self.cells.values() for each in cells.results}.values())

    def decoding_settings(self) -> dict[str, Any]:
        """The settings that all cells of a comparison share, named by task and number of items."""
        return {
            f"{each.labels['task']}, {each.protocol['task']['count']} items": each.settings
            for each in {each.comparison: each for each in self.all_cells()}.values()
        }
