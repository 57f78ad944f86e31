"""From measured differences to a verdict: holds, does not hold, undecided. No verdict is written by hand.

Accuracies are compared on the same items by McNemar's exact test, corrected for the number of comparisons of a claim on
a task; means over prompts, items or completions by the bootstrap interval of their paired difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from softdlm.evaluate.metrics import Mean, holm, mcnemar
from softdlm.evaluate.summary import Result
from softdlm.report.document import Verdict
from softdlm.reproduce.measurements import Cells, Measurements, Of, paired, right
from softdlm.reproduce.study import task_title

Values = Sequence[float]
LEVEL = 0.05
LEAST = 6
"""The fewest items that decide anything: five of one sign would still be chance at 5 % (2 / 2^5)."""


@dataclass(frozen=True)
class Sign:
    """One comparison: +1 where the data speak for the claim, -1 against it, 0 where they do not say."""

    sign: int
    words: str


Decided = Iterator[tuple[str, Sequence[Sign]]]
"""Each scope that a claim is decided on, such as a task, with its comparisons."""
Decide = Callable[[Measurements], Decided]


def verdict(signs: Sequence[Sign]) -> Verdict:
    """A claim about several comparisons holds where all speak for it, and does not where any speaks against it."""
    if not signs:
        return "not measured"
    if any(each.sign < 0 for each in signs):
        return "does not hold"
    return "holds" if all(each.sign > 0 for each in signs) else "undecided"


def positive(values: Values, words: str, digits: int = 3, weights: Values | None = None) -> Sign:
    """Whether a mean over items is above 0, by its bootstrap interval; too few items decide nothing."""
    mean = Mean.of(values, weights)
    return Sign(_side(mean, 0), f"{words} {_interval(mean, f'+.{digits}f')}")


def larger(
    words: tuple[str, str], first: Values, second: Values, digits: int = 3, weights: Values | None = None
) -> Sign:
    """Whether the first of two paired quantities, which `words` name, has the larger mean."""
    gap = positive([a - b for a, b in zip(first, second, strict=True)], "difference", digits, weights)
    means = [Mean.of(values, weights).value for values in (first, second)]
    named = ", ".join(f"{name} {value:.{digits}f}" for name, value in zip(words, means, strict=True))
    return Sign(gap.sign, f"{named}, {gap.words}")


def against_limit(
    words: str, values: Values, wanted: Literal["above", "below", "off"], limit: float, weights: Values | None = None
) -> Sign:
    """Whether a mean lies above a limit, below it, or off it on either side."""
    mean = Mean.of(values, weights)
    side = _side(mean, limit)
    sign = {"above": side, "below": -side, "off": abs(side)}[wanted]
    return Sign(sign, f"{words} {_interval(mean, '.3f')}, limit {limit:g}")


def _side(mean: Mean, limit: float) -> int:
    """+1 where the whole interval lies above the limit, -1 where below; 0 otherwise and with too few items."""
    if mean.low is None or mean.high is None or mean.items < LEAST:
        return 0
    return (mean.low > limit) - (mean.high < limit)


def _interval(mean: Mean, form: str) -> str:
    if mean.low is None or mean.high is None or mean.items < LEAST:
        return f"{mean.value:{form}} (only {mean.items})"
    return f"{mean.value:{form}} [{mean.low:{form}}, {mean.high:{form}}]"


@dataclass(frozen=True)
class Pair:
    """Two cells on the same items; the claim says that `better` solves more."""

    words: str
    worse: Result
    better: Result
    among: Result | None = None
    """Where given, only items that this cell solves are compared."""
    of: Of = right

    def verdicts(self) -> tuple[list[bool], list[bool]]:
        first, second = paired(self.worse, self.better, self.of)
        if self.among is None:
            return first, second
        solved, _ = paired(self.among, self.worse)
        keep = [index for index, was in enumerate(solved) if was]
        return [first[index] for index in keep], [second[index] for index in keep]


def pairs(cells: Cells, task: str, better: str, worse: str, commits: Mapping[str, str], of: Of = right) -> list[Pair]:
    """Two methods at each rate where both cells are finished; the keys of `commits` name the pairs."""
    return [
        Pair(words, first, second, of=of)
        for words, commit in commits.items()
        if (first := cells.find(task, worse, commit)) and (second := cells.find(task, better, commit))
    ]


def more_solved(pairs: Sequence[Pair]) -> list[Sign]:
    """McNemar's exact test for each pair, p-values corrected for the number of pairs (Holm)."""
    found = [pair.verdicts() for pair in pairs]
    corrected = holm([mcnemar(*each) for each in found])
    signs = []
    for pair, (first, second), p in zip(pairs, found, corrected, strict=True):
        gain = 100 * (sum(second) - sum(first)) / max(len(first), 1)
        sign = 0 if p >= LEVEL else 1 if gain > 0 else -1
        signs.append(Sign(sign, f"{pair.words} {gain:+.1f} points (p {p:.2g})"))
    return signs


def slerp_solves_more(
    name: str, benchmarks: Sequence[str], worse: str, commits: Mapping[str, str], of: Of = right
) -> Decide:
    """SLERP against another method in the cells of the named experiment, at every rate, by task."""

    def decide(measured: Measurements) -> Decided:
        for task in measured.study.places(*benchmarks):
            yield task_title(task), more_solved(pairs(measured.cells[name], task, "slerp", worse, commits, of))

    return decide
