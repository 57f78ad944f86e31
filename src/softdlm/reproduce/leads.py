"""Claims about many settings, as the paper words them: a method leads "in most settings", or in all of them.

A setting is a model, a task and a rate. Two things are reported of a claim: the share of settings in which the method
leads, which is what the paper counts, and the paired tests behind it, which say whether the lead could be chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from softdlm.evaluate.metrics import holm, mcnemar
from softdlm.evaluate.summary import Result
from softdlm.report.document import Verdict
from softdlm.reproduce.evidence import LEVEL, Pair
from softdlm.reproduce.measurements import Measurements, Of, right

Wanted = Literal["most", "all"]


@dataclass(frozen=True)
class Lead:
    """One setting: by how many points a method leads the best of the others."""

    points: float
    p: float | None = None
    """McNemar's exact test against that other method, on the same items; None where only the numbers are known."""


def lead(ours: Result, others: Sequence[Result], among: Result | None = None, of: Of = right) -> Lead:
    """A cell against the best of others on the same items; `among` keeps the items that this cell solves."""
    found = [Pair("", other, ours, among, of).verdicts() for other in others]
    first, second = max(found, key=lambda pair: sum(pair[0]))
    return Lead(100 * (sum(second) - sum(first)) / max(len(first), 1), mcnemar(first, second))


def slerp_leads(
    name: str, benchmarks: Sequence[str], others: Sequence[str], commits: Iterable[str], *, recovered: bool = False
) -> Callable[[Measurements], Iterator[Lead]]:
    """SLERP against other methods in the cells of the named experiment, in each task and under each commit rule.

    `recovered` looks only at the items that vanilla solves at one token a step.
    """

    def leads(measured: Measurements) -> Iterator[Lead]:
        cells = measured.cells[name]
        for task, commit in product(measured.study.places(*benchmarks), commits):
            ours, *rest = [cells.find(task, method, commit) for method in ("slerp", *others)]
            among = cells.single(task) if recovered else None
            if ours and all(rest) and (among or not recovered):
                yield lead(ours, [each for each in rest if each], among)

    return leads


def printed(numbers: Any, ours: int, others: Sequence[int]) -> Iterator[Lead]:
    """The leads of one column over others in a table of the paper, its rows nested by model, benchmark and rate."""
    if isinstance(numbers, Mapping):
        for each in numbers.values():
            yield from printed(each, ours, others)
    else:
        yield Lead(round(numbers[ours] - max(numbers[other] for other in others), 6))


def leading(leads: Sequence[Lead]) -> int:
    """In how many settings the method leads; a tie is no lead."""
    return sum(each.points > 0 for each in leads)


def by_share(leads: Sequence[Lead], wanted: Wanted) -> bool:
    """Whether the numbers alone bear the claim out: the method leads in more than half of the settings, or in all."""
    return leading(leads) == len(leads) if wanted == "all" else 2 * leading(leads) > len(leads)


def judge(leads: Sequence[Lead], wanted: Wanted) -> tuple[Verdict, str]:
    """The verdict, and the share and the tests that it rests on.

    A claim holds where the share bears it out and more tests speak for it than against it. It does not hold where
    the share contradicts it and more tests speak against it, or where one of "all" settings is tested to be worse.
    """
    if not leads:
        return "not measured", "no data"
    better, worse = significant(leads)
    tests = f"of {len(leads)} paired test{'s' * (len(leads) > 1)} {better} significant for it, {worse} against it"
    words = f"leads in {share_words(leads)}; {tests}"
    if by_share(leads, wanted):
        return "holds" if better > worse else "undecided", words
    contradicted = worse > 0 if wanted == "all" else worse > better
    return "does not hold" if contradicted else "undecided", words


def significant(leads: Iterable[Lead]) -> tuple[int, int]:
    """Settings in which the method is significantly better and worse; p-values are corrected for their number."""
    known = [(each.points, each.p) for each in leads if each.p is not None]
    corrected = holm([p for _, p in known])
    clear = [points for (points, _), p in zip(known, corrected, strict=True) if p < LEVEL]
    return sum(points > 0 for points in clear), sum(points < 0 for points in clear)


def share_words(leads: Sequence[Lead]) -> str:
    count, of = leading(leads), len(leads)
    return f"{count} of {of} setting{'s' * (of > 1)} ({100 * count / of:.0f} %)"
