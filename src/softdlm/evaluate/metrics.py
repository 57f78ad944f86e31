"""Numbers with their uncertainty: pure functions of verdicts on the same items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from softdlm.errors import UsageError

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

Z95 = 1.959963984540054
RESAMPLES = 4000


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


class Mean(NamedTuple):
    """A mean over items with its 95 % interval (percentiles of the bootstrap); none with fewer than two items."""

    value: float
    low: float | None
    high: float | None
    items: int

    @staticmethod
    def of(values: Sequence[float], weights: Sequence[float] | None = None) -> Mean:
        """Items are drawn again with their weights, such as the positions that a mean of an item is over."""
        import torch

        if not values:
            raise UsageError("no items: a mean needs at least one")
        each = torch.tensor(values, dtype=torch.float64)
        weight = torch.ones_like(each) if weights is None else torch.tensor(weights, dtype=torch.float64)
        value = float((each * weight).sum() / weight.sum())
        if len(values) < 2:
            return Mean(value, None, None, 1)
        chosen = resamples(len(values))
        means = (each * weight)[chosen].sum(1) / weight[chosen].sum(1)
        low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        return Mean(value, low, high, len(values))


def resamples(items: int) -> Int[Tensor, "R N"]:
    """Which items each bootstrap sample takes: the same for the same number of items, so pairs stay pairs."""
    import torch

    return torch.randint(items, (RESAMPLES, items), generator=torch.Generator().manual_seed(0))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number (Holm): below 0.05, one false alarm in twenty among all of them."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected, highest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = highest
    return corrected


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
