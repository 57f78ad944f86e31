"""Numbers with their uncertainty: pure functions of verdicts on the same items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from softdlm.errors import UsageError

Z95 = 1.959963984540054


class Share(NamedTuple):
    """A share of items with its 95 % interval (Wilson), in per cent."""

    percent: float
    low: float
    high: float
    items: int

    @staticmethod
    def of(verdicts: Sequence[bool]) -> Share:
        n, hits = len(verdicts), sum(verdicts)
        if n == 0:
            raise UsageError("no items: a share needs at least one")
        p = hits / n
        spread = Z95 * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
        centre, scale = p + Z95**2 / (2 * n), 1 + Z95**2 / n
        return Share(100 * p, 100 * (centre - spread) / scale, 100 * (centre + spread) / scale, n)

    def __str__(self) -> str:
        return f"{self.percent:.1f} [{self.low:.1f}, {self.high:.1f}]"


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Exact two-sided p-value that two methods solve the same items equally often (paired)."""
    pairs = list(zip(first, second, strict=True))
    only_first, only_second = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    n = only_first + only_second
    tail = sum(math.comb(n, k) for k in range(min(only_first, only_second) + 1)) / 2**n
    return min(1.0, 2 * tail)


def recovery(single: Sequence[bool], method: Sequence[bool]) -> float | None:
    """Of the items that vanilla solves at one token a step, the per cent that the method solves too (appendix C).

    None where single-token decoding solves nothing.
    """
    solved = [kept for kept, was in zip(method, single, strict=True) if was]
    return 100 * sum(solved) / len(solved) if solved else None


class Effort(NamedTuple):
    """What the answers cost. Only tokens up to EOS count, and only the time spent decoding."""

    items: int
    forwards: int
    tokens: int
    seconds: float

    @property
    def passes(self) -> float:
        """Forward passes an item."""
        return self.forwards / self.items

    @property
    def tokens_per_forward(self) -> float:
        return self.tokens / self.forwards

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.seconds if self.seconds > 0 else None
