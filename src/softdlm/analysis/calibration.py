"""Whether predictions are as often right as they are sure: pure functions of confidences and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from softdlm.evaluate.metrics import Share

BINS = 10
SURE = 0.9
"""From this confidence on a prediction counts as sure: adaptive commit rules act on such predictions."""


@dataclass(frozen=True)
class Seen:
    """Predictions one after another: the probability of the likeliest token, and whether it is the true one."""

    confidence: list[float]
    right: list[bool]


@dataclass(frozen=True)
class Bin:
    """The predictions of one range of confidence, in per cent; None where there are none."""

    low: float
    high: float
    predictions: int
    confidence: float | None
    """Mean over the bin."""
    right: float | None
    interval: list[float] | None
    """95 % interval of `right` (Wilson)."""


@dataclass(frozen=True)
class Calibration:
    """Confidence held against the share that is right, in per cent; None where there are no predictions."""

    predictions: int
    confidence: float | None
    right: float | None
    interval: list[float] | None
    """95 % interval of `right` (Wilson)."""
    gap: float | None
    """Confidence minus right: above 0, predictions are surer than they are right."""
    ece: float | None
    """Expected calibration error: the distance between confidence and right, averaged over bins by their size."""
    sure: int
    """Predictions with a confidence of at least `SURE`."""
    sure_right: float | None
    """How many of these are right."""
    sure_interval: list[float] | None
    curve: list[Bin]


def calibration(seen: Seen) -> Calibration:
    """All numbers of a list of predictions."""
    whole, curve = _bin(seen, 0.0, 100.0), reliability_curve(seen)
    sure = _bin(_kept(seen, [value >= SURE for value in seen.confidence]), 100 * SURE, 100.0)
    gap = None if whole.confidence is None or whole.right is None else whole.confidence - whole.right
    return Calibration(
        whole.predictions,
        whole.confidence,
        whole.right,
        whole.interval,
        gap,
        expected_error(curve),
        sure.predictions,
        sure.right,
        sure.interval,
        curve,
    )


def reliability_curve(seen: Seen) -> list[Bin]:
    """Bins of equal width; each holds its lower edge, the last one also its upper."""
    numbers = [min(int(value * BINS), BINS - 1) for value in seen.confidence]
    return [
        _bin(_kept(seen, [each == number for each in numbers]), 100 * number / BINS, 100 * (number + 1) / BINS)
        for number in range(BINS)
    ]


def expected_error(curve: Sequence[Bin]) -> float | None:
    """The mean distance between confidence and share right, each bin weighted by its predictions."""
    total = sum(each.predictions for each in curve)
    parts = [
        each.predictions * abs(each.confidence - each.right)
        for each in curve
        if each.confidence is not None and each.right is not None
    ]
    return fsum(parts) / total if total else None


def joined(parts: Sequence[Seen]) -> Seen:
    """Several lists as one."""
    return Seen(
        [value for part in parts for value in part.confidence], [verdict for part in parts for verdict in part.right]
    )


def _kept(seen: Seen, chosen: Sequence[bool]) -> Seen:
    return Seen(
        [value for value, kept in zip(seen.confidence, chosen, strict=True) if kept],
        [verdict for verdict, kept in zip(seen.right, chosen, strict=True) if kept],
    )


def _bin(seen: Seen, low: float, high: float) -> Bin:
    if not seen.right:
        return Bin(low, high, 0, None, None, None)
    share = Share.of(seen.right)
    mean = 100 * fsum(seen.confidence) / len(seen.confidence)
    return Bin(low, high, share.items, mean, share.percent, [share.low, share.high])
