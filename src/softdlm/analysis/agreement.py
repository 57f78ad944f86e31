"""Beyond the paper: when predictions become final during a decode, and where feedback changes the order of commits.

Everything is computed from traces, so it also works on a saved trace that has candidates. It needs temperature 0, where
the best token of a position is the one that would be committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from softdlm.analysis.questions import Question, decode
from softdlm.analysis.spans import Rules
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.feedback import Mask
from softdlm.models.denoiser import Denoiser
from softdlm.trace import Pass, Trace


@dataclass(frozen=True)
class Course:
    """One decode. Lists have one entry per pass, except `committed_at`, which has one per answer position."""

    open: list[int]
    """Positions that the pass left open and that the next pass predicted again."""
    changed: list[int]
    """How many of the `open` positions have another best token in the next pass."""
    waiting: list[int]
    """Positions that the pass left open and that a later pass committed."""
    settled: list[int]
    """How many of the `waiting` positions already have the best token that is committed later."""
    committed_at: list[int | None]
    """The pass, counted from 1, that committed the position; None if an early finish left it open."""


@dataclass(frozen=True)
class Reordering:
    """The commits of a decode compared with those of the vanilla decode."""

    first_difference: int | None
    """The first pass that commits other positions or tokens; before it both decodes saw the same hard tokens."""
    earlier: int
    """Positions committed in an earlier pass than by vanilla."""
    later: int
    compared: int
    """Positions committed in both decodes."""


@dataclass(frozen=True)
class AgreementRow:
    """One item: the course of each rule's decode, and its commits compared with vanilla's."""

    task: str
    item: str
    course: dict[str, Course]
    reordering: dict[str, Reordering]


@dataclass(frozen=True)
class AgreementSummary:
    """One task and rule: shares over all passes and positions of the task's items (docs/analysis.md)."""

    task: str
    rule: str
    passes: float
    """Mean number of passes."""
    changed: float | None
    settled: float | None
    reordered: float
    """Share of items whose commits differ from vanilla's."""
    first_difference: float | None
    """Mean pass of the first difference, over the reordered items."""
    earlier: float | None
    later: float | None
    items: int


VANILLA = "vanilla"


def measure_agreement(
    model: Denoiser, batch: Sequence[Question], rules: Rules, decoding: Decoding
) -> list[AgreementRow]:
    """Decode each question with vanilla and with every rule; everything else as `decoding` says."""
    if decoding.temperature:
        raise UsageError(f"agreement compares best tokens: use temperature 0, not {decoding.temperature}")
    traces = {}
    for name, rule in ({VANILLA: Mask()} | dict(rules)).items():
        fed = replace(decoding, feedback=rule, k=None, lam=None)
        traces[name] = [made.trace for made in decode(model, batch, fed, record_candidates=True)]
    return [
        AgreementRow(
            question.task,
            question.item,
            {name: course(found[index]) for name, found in traces.items()},
            {name: reordering(traces[VANILLA][index], found[index]) for name, found in traces.items()},
        )
        for index, question in enumerate(batch)
    ]


def course(trace: Trace) -> Course:
    """How the predictions of a decode settled; its trace must hold candidates."""
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
    """How the commits of `other` differ from those of `base`, the vanilla decode."""
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
    """Position on the canvas -> the pass that committed it, counted from 1."""
    return {place: index for index, step in enumerate(trace.passes, 1) for place in step.positions}


def _commits(step: Pass) -> list[tuple[int, int]]:
    return list(zip(step.positions, step.tokens, strict=True))


def _best(step: Pass) -> dict[int, int]:
    """The best token of each position that the pass predicted and left open."""
    return {place: candidates[0][0] for place, candidates in zip(step.open, step.candidates, strict=True)}


def summarise(rows: Sequence[AgreementRow]) -> list[AgreementSummary]:
    tasks = dict.fromkeys(row.task for row in rows)
    return [
        _summary(task, rule, [row for row in rows if row.task == task]) for task in tasks for rule in rows[0].course
    ]


def _summary(task: str, rule: str, rows: Sequence[AgreementRow]) -> AgreementSummary:
    courses, orders = [row.course[rule] for row in rows], [row.reordering[rule] for row in rows]
    firsts = [order.first_difference for order in orders if order.first_difference is not None]
    compared = sum(order.compared for order in orders)
    return AgreementSummary(
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
