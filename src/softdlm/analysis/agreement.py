"""Beyond the paper: how predictions settle along a decode, and where feedback changes the order of commits.

Read from traces, so a decode saved with its candidates can be looked at later. Meant for temperature 0, where a
position's best token is the one that it would commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Unpack

from softdlm.analysis.questions import Question, decode
from softdlm.analysis.spans import Rules
from softdlm.errors import UsageError
from softdlm.feedback import Mask
from softdlm.generation import GenerateOptions
from softdlm.models.denoiser import Denoiser
from softdlm.trace import Pass, Trace


@dataclass(frozen=True)
class Course:
    """One decode; lists have one entry per pass, except `committed_at`, with one per answer position."""

    open: list[int]
    """Positions that the pass left open and the next pass predicted again."""
    changed: list[int]
    """Of these, those whose best token is another in the next pass."""
    waiting: list[int]
    """Positions that the pass left open and a later one committed."""
    settled: list[int]
    """Of these, those whose best token is already the one committed."""
    committed_at: list[int | None]
    """The pass (from 1) that committed the position; None where an early finish left it open."""


@dataclass(frozen=True)
class Reordering:
    """A decode's commits against those of another, vanilla's."""

    first_difference: int | None
    """The first pass that commits other positions or tokens: up to there both saw the same hard tokens."""
    earlier: int
    """Positions committed in an earlier pass than in the other decode, of `compared`, those committed in both."""
    later: int
    compared: int


@dataclass(frozen=True)
class Row:
    """One item: each rule's course, and its commits against vanilla's."""

    task: str
    item: str
    course: dict[str, Course]
    reordering: dict[str, Reordering]


@dataclass(frozen=True)
class Summary:
    """Shares over all passes and positions of a task's items."""

    task: str
    rule: str
    passes: float
    """Mean number."""
    changed: float | None
    settled: float | None
    reordered: float
    """Share of items whose commits differ from vanilla's."""
    first_difference: float | None
    """Mean pass, over those items."""
    earlier: float | None
    later: float | None
    items: int


VANILLA = "vanilla"


def measure(model: Denoiser, batch: Sequence[Question], rules: Rules, **options: Unpack[GenerateOptions]) -> list[Row]:
    """Decode each question with vanilla and with every rule, under the same commit rule."""
    if options.get("temperature", 0.0) > 0:
        raise UsageError("agreement compares best tokens: decode at temperature 0")
    traces = {}
    for name, rule in ({VANILLA: Mask()} | dict(rules)).items():
        recorded: GenerateOptions = {**options, "feedback": rule, "record_candidates": True}
        traces[name] = [made.trace for made in decode(model, batch, **recorded)]
    return [
        Row(
            question.task,
            question.item,
            {name: course(found[index]) for name, found in traces.items()},
            {name: reordering(traces[VANILLA][index], found[index]) for name, found in traces.items()},
        )
        for index, question in enumerate(batch)
    ]


def course(trace: Trace) -> Course:
    """The trace must hold candidates."""
    final = {place: token for step in trace.passes for place, token in _commits(step)}
    open, changed, waiting, settled = [], [], [], []
    for step, following in zip(trace.passes, [*trace.passes[1:], None], strict=True):
        best = _best(step)
        again = {**dict(_commits(following)), **_best(following)} if following else {}
        both, kept = best.keys() & again.keys(), best.keys() & final.keys()
        open.append(len(both))
        changed.append(sum(best[place] != again[place] for place in both))
        waiting.append(len(kept))
        settled.append(sum(best[place] == final[place] for place in kept))
    at = committed_at(trace)
    return Course(
        open, changed, waiting, settled, [at.get(place) for place in range(len(trace.prompt_ids), trace.length)]
    )


def reordering(base: Trace, other: Trace) -> Reordering:
    passes = max(len(base.passes), len(other.passes))
    steps = [[set(_commits(step)) for step in trace.passes] + [set()] * passes for trace in (base, other)]
    differs = [index + 1 for index in range(passes) if steps[0][index] != steps[1][index]]
    before, after = committed_at(base), committed_at(other)
    both = before.keys() & after.keys()
    return Reordering(
        differs[0] if differs else None,
        sum(after[place] < before[place] for place in both),
        sum(after[place] > before[place] for place in both),
        len(both),
    )


def committed_at(trace: Trace) -> dict[int, int]:
    """Position on the canvas -> the pass that committed it, from 1."""
    return {place: index for index, step in enumerate(trace.passes, 1) for place in step.positions}


def _commits(step: Pass) -> list[tuple[int, int]]:
    return list(zip(step.positions, step.tokens, strict=True))


def _best(step: Pass) -> dict[int, int]:
    """The best token at each position that the pass predicted and left open."""
    return {place: candidates[0][0] for place, candidates in zip(step.open, step.candidates, strict=True)}


def summarise(rows: Sequence[Row]) -> list[Summary]:
    tasks = dict.fromkeys(row.task for row in rows)
    return [
        _summary(task, rule, [row for row in rows if row.task == task]) for task in tasks for rule in rows[0].course
    ]


def _summary(task: str, rule: str, rows: Sequence[Row]) -> Summary:
    courses, orders = [row.course[rule] for row in rows], [row.reordering[rule] for row in rows]
    firsts = [order.first_difference for order in orders if order.first_difference is not None]
    compared = sum(order.compared for order in orders)
    return Summary(
        task,
        rule,
        fmean([len(each.open) for each in courses]),
        _share(sum(sum(each.changed) for each in courses), sum(sum(each.open) for each in courses)),
        _share(sum(sum(each.settled) for each in courses), sum(sum(each.waiting) for each in courses)),
        len(firsts) / len(rows),
        fmean(firsts) if firsts else None,
        _share(sum(order.earlier for order in orders), compared),
        _share(sum(order.later for order in orders), compared),
        len(rows),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
