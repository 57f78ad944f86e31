"""From measured differences to a verdict: holds, does not hold, undecided. No verdict is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from softdlm.evaluate.metrics import Mean, holm, mcnemar
from softdlm.evaluate.summary import Result
from softdlm.report.document import Finding, Verdict
from softdlm.reproduce.measurements import Data, paired

LEVEL = 0.05
LEAST = 6
"""Items below which nothing is decided: all of one sign would still be chance at 5 % (2 / 2^5)."""


@dataclass(frozen=True)
class Sign:
    """One comparison: +1 where the data speak for the claim, -1 against it, 0 where they do not say."""

    sign: int
    words: str


Signs = Sequence[Sign]
Decide = Callable[[Data], Iterator[tuple[str, Signs]]]
"""Scope and comparisons, once for each scope that a claim is decided on."""


def conclude(signs: Sequence[Sign]) -> Verdict:
    """A claim about several comparisons holds where all speak for it, and does not where any speaks against it."""
    if not signs:
        return "not measured"
    if any(each.sign < 0 for each in signs):
        return "does not hold"
    return "holds" if all(each.sign > 0 for each in signs) else "undecided"


def positive(values: Sequence[float], words: str, digits: int = 3, weights: Sequence[float] | None = None) -> Sign:
    """Whether a mean over items is above 0, by its bootstrap interval; too few items decide nothing."""
    mean = Mean.of(values, weights)
    if mean.low is None or mean.high is None or mean.items < LEAST:
        return Sign(0, f"{words} {mean.value:+.{digits}f} (only {mean.items})")
    sign = 1 if mean.low > 0 else -1 if mean.high < 0 else 0
    return Sign(sign, f"{words} {mean.value:+.{digits}f} [{mean.low:+.{digits}f}, {mean.high:+.{digits}f}]")


@dataclass(frozen=True)
class Pair:
    """Two cells on the same items; the claim says that the second solves more."""

    words: str
    worse: Result
    better: Result
    among: Result | None = None
    """Only items that this cell solves."""

    def verdicts(self) -> tuple[list[bool], list[bool]]:
        first, second = paired(self.worse, self.better)
        if self.among is None:
            return first, second
        solved, _ = paired(self.among, self.worse)
        keep = [index for index, was in enumerate(solved) if was]
        return [first[index] for index in keep], [second[index] for index in keep]


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


def finding(claim: str, where: str, scope: str, signs: Sequence[Sign]) -> Finding:
    return Finding(claim, where, scope, conclude(signs), "; ".join(each.words for each in signs) or "no data")
