"""Which settings stay in a race, and which one is chosen: pure functions of their samples on the same items.

Settings are compared item by item, so that easy and hard items count for all alike. No decision depends on the order
in which settings are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from softdlm.errors import UsageError

KEPT = 6
"""Settings that stay, the fastest ones, though others with as many right answers are faster still.

Equal scores on a few items show little: the fastest of all is often one that loses later.
"""
FIRST = 12
"""Items of the first round; each further round has twice as many."""


@dataclass(frozen=True)
class Goal:
    """What is wanted: the fewest passes within points of accuracy of the reference, or the best within passes."""

    within: float | None = None
    passes: float | None = None

    def __post_init__(self) -> None:
        if (self.within is None) == (self.passes is None):
            raise UsageError(
                "give within, the points of accuracy that may be lost, or passes, the most a mean answer takes"
            )
        if self.within is not None and not 0 <= self.within <= 100:
            raise UsageError(f"within must lie between 0 and 100 points of accuracy, not {self.within}")
        if self.passes is not None and not 1 <= self.passes < math.inf:
            raise UsageError(f"passes must be a finite number from 1, not {self.passes}")

    def __str__(self) -> str:
        if self.passes is not None:
            return f"best accuracy in at most {self.passes:g} passes"
        return f"fewest passes within {self.within:g} {'point' if self.within == 1 else 'points'} of the reference"

    def holds(self, track: Track, reference: Track) -> bool:
        """Whether a setting meets the bound of the goal, as measured."""
        if self.passes is not None:
            return track.mean <= self.passes
        return 100 * (reference.correct - track.correct) <= (self.within or 0) * len(track.right)


@dataclass(frozen=True)
class Track:
    """How one setting did on the items of the race so far, in their order."""

    name: str
    right: tuple[bool, ...]
    passes: tuple[int, ...]

    @property
    def correct(self) -> int:
        return sum(self.right)

    @property
    def percent(self) -> float:
        return 100 * self.correct / len(self.right)

    @property
    def mean(self) -> float:
        return sum(self.passes) / len(self.passes)


def rounds(items: int) -> list[int]:
    """The sizes of the growing prefixes: 12, 24, 48 ... and all items."""
    sizes = [FIRST]
    while sizes[-1] < items:
        sizes.append(2 * sizes[-1])
    return [*sizes[:-1], items]


def judge(tracks: Sequence[Track], reference: Track, goal: Goal, alpha: float) -> dict[str, str]:
    """The settings to drop, by name, each with the reason in words; tests are made at the level `alpha`."""
    ordered = sorted(tracks, key=lambda track: track.name)
    return _over(ordered, reference, goal.passes, alpha) if goal.passes else _behind(ordered, reference, goal, alpha)


def _over(tracks: Sequence[Track], reference: Track, most: float, alpha: float) -> dict[str, str]:
    """Those that take too many passes, and those less accurate than the best that does not."""
    found = {
        track.name: f"{track.mean:.1f} passes, at most {most:g} are wanted"
        for track in tracks
        if track.mean > most and p_fewer([most] * len(track.passes), track.passes) < alpha
    }
    feasible = [track for track in (*tracks, reference) if track.mean <= most]
    best = min(feasible, key=_most_right, default=None)
    for track in tracks:
        if best is not None and p_below(track, best) < alpha:
            found.setdefault(track.name, f"{track.percent:.0f} % right, {best.name} {best.percent:.0f} %")
    return found


def _behind(tracks: Sequence[Track], reference: Track, goal: Goal, alpha: float) -> dict[str, str]:
    """Those too far below the reference, and of the others, the slowest first, those that a faster one replaces."""
    found = {
        track.name: f"{track.percent:.0f} % right, reference {reference.percent:.0f} %"
        for track in tracks
        if p_below(track, reference, goal.within or 0) < alpha
    }
    left = sorted((track for track in tracks if track.name not in found), key=_fastest)
    slower = {track.name: faster for track in left if (faster := _replacement(track, left, alpha)) is not None}
    for track in [track for track in reversed(left) if track.name in slower][: max(0, len(left) - KEPT)]:
        faster = slower[track.name]
        found[track.name] = f"{track.mean:.1f} passes, {faster.name} {faster.mean:.1f} with as many right"
    return found


def _replacement(track: Track, others: Sequence[Track], alpha: float) -> Track | None:
    return next((each for each in others if replaces(each, track, alpha)), None)


def replaces(faster: Track, track: Track, alpha: float) -> bool:
    """Whether a setting has as many right answers in significantly fewer passes, on the mean as well."""
    ahead = faster.correct >= track.correct and faster.mean < track.mean
    return ahead and p_fewer(faster.passes, track.passes) < alpha


def choose(tracks: Sequence[Track], reference: Track, goal: Goal) -> Track | None:
    """Of the settings that meet the goal's bound the fastest, or the most accurate; then by their spelling.

    The reference takes part. None: no setting keeps to the number of passes.
    """
    fit = [track for track in (*tracks, reference) if goal.holds(track, reference)]
    return min(fit, key=_fastest if goal.passes is None else _most_right, default=None)


def frontier(tracks: Sequence[Track]) -> list[str]:
    """The settings that no other one beats: none has as many right in fewer passes, or more right in as many."""

    def beaten(track: Track) -> bool:
        mine = track.correct, -track.mean
        theirs = [(each.correct, -each.mean) for each in tracks]
        return any(right >= mine[0] and speed >= mine[1] and (right, speed) != mine for right, speed in theirs)

    return sorted(track.name for track in tracks if not beaten(track))


def _fastest(track: Track) -> tuple[float, int, str]:
    return track.mean, -track.correct, track.name


def _most_right(track: Track) -> tuple[int, float, str]:
    return -track.correct, track.mean, track.name


def p_below(track: Track, other: Track, points: float = 0.0) -> float:
    """One-sided p-value that a setting is at most `points` less accurate than another (paired).

    Without points this is McNemar's exact test: of the items that only one of the two solves, the other's share is a
    half. Points raise that share by as much as they would move, given the number of such items.
    """
    theirs, ours = _only(other, track), _only(track, other)
    if theirs == 0:
        return 1.0
    share = min(1.0, 0.5 + 0.5 * points / 100 * len(track.right) / (theirs + ours))
    return tail(theirs + ours, theirs, share)


def p_fewer(first: Sequence[float], second: Sequence[float]) -> float:
    """One-sided p-value that the first are not fewer than the second, item by item: the sign test."""
    pairs = list(zip(first, second, strict=True))
    fewer, more = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return tail(fewer + more, fewer, 0.5)


def tail(trials: int, least: int, share: float) -> float:
    """The probability of at least `least` successes in independent trials."""
    if least <= 0:
        return 1.0
    if share <= 0 or share >= 1:
        return float(share >= 1)
    logs = [
        math.lgamma(trials + 1) - math.lgamma(hits + 1) - math.lgamma(trials - hits + 1)
        + hits * math.log(share) + (trials - hits) * math.log1p(-share)
        for hits in range(least, trials + 1)
    ]  # fmt: skip
    return min(1.0, math.fsum(map(math.exp, logs)))


def _only(track: Track, other: Track) -> int:
    """Items that a setting solves and another does not."""
    return sum(a and not b for a, b in zip(track.right, other.right, strict=True))
