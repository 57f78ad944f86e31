"""What was measured, as tables and claims read it. The only readers of a cell's protocol are here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from softdlm.analysis.plans import Result as AnalysisResult
from softdlm.evaluate.metrics import Effort, Share
from softdlm.evaluate.summary import Result, effort_of
from softdlm.registry import build, spell, title
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

    def spelled(self, task: str, feedback: str, commit: str) -> Result | None:
        """The cell of a task, a spelled feedback rule with all its parameters, and a rate."""
        rule, rate = spell(build("feedback", feedback)), rate_title(commit)
        for each in self.results:
            same = each.protocol["decoding"]["feedback"] == rule and rate_title(each.rate) == rate
            if same and is_of(each, task):
                return each
        return None

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


def right(result: Result, ids: Sequence[str]) -> list[bool]:
    return result.verdicts(ids)


def consistent(result: Result, ids: Sequence[str]) -> list[bool]:
    """Whether each answer agrees with itself (softdlm.tasks.consistency)."""
    found = result.consistent(ids)
    if found is None:
        raise ValueError(f"{result.folder.name} holds no verdicts on consistency")
    return found


def right_and_consistent(result: Result, ids: Sequence[str]) -> list[bool]:
    return [both[0] and both[1] for both in zip(right(result, ids), consistent(result, ids), strict=True)]


Of = Callable[[Result, Sequence[str]], list[bool]]
"""What is asked of the answers of a cell: `right`, `consistent` or `right_and_consistent`."""


def share(result: Result, of: Of = right) -> Share:
    """The share of items for which the answer is yes."""
    return Share.of(of(result, list(result.samples)))


def paired(first: Result, second: Result, of: Of = right) -> tuple[list[bool], list[bool]]:
    """Verdicts on the same items, in the same order."""
    if first.samples.keys() != second.samples.keys():
        raise ValueError(f"{first.folder.name} and {second.folder.name} answer different items")
    ids = sorted(first.samples)
    return of(first, ids), of(second, ids)


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
    searches: Mapping[str, Cells] = field(default_factory=dict)
    """Experiment -> the cells that its settings were chosen from."""
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Experiment or analysis -> why a part of it was not measured, a line each."""

    def searched(self, name: str) -> Cells:
        """The cells that an experiment's settings are chosen from; none where nothing was searched."""
        return self.searches.get(name, Cells([]))

    def rows(self, name: str) -> list[Any]:
        """All rows of an analysis."""
        return [row for result in self.analyses.get(name, ()) for row in result.rows]

    def by_task(self, name: str) -> dict[str, list[Any]]:
        """Rows of an analysis that decodes, by task."""
        rows = self.rows(name)
        return {task: [row for row in rows if row.task == task] for task in dict.fromkeys(row.task for row in rows)}

    def all_cells(self) -> list[Result]:
        """Every cell once, also where several experiments share it."""
        every = [*self.cells.values(), *self.searches.values()]
        return list({each.folder.name: each for cells in every for each in cells.results}.values())

    def decoding_settings(self) -> dict[str, Any]:
        """The settings that all cells of a comparison share, named by task and number of items."""
        return {
            f"{each.labels['task']}, {each.protocol['task']['count']} items": each.settings
            for each in {each.comparison: each for each in self.all_cells()}.values()
        }
