"""What the host knows of rows between passes, and the shape of the pass that comes next.

Each pass leaves a census, a few numbers per row, and the host reads nothing else. The census says which rows go on and
how many positions are open at most, hence the shape of the next pass. Where the host can compute the census itself, it
reads the device's only now and then, and the device never waits.

With a cache there are passes over the whole canvas and passes over windows of it. A row that needs a whole pass waits,
untouched, until no row is within a block; then all such rows are computed together. Meanwhile no other row begins a
block, so that the wait ends. Each row has the passes that it has alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from softdlm.cache import Dual, Shape, takes_part
from softdlm.commit import TopN
from softdlm.engine.plan import Plan

GRAIN = 64
"""Rooms, widths and lengths are rounded up to multiples of it."""


def rounded(size: int) -> int:
    """Up to a multiple of GRAIN and, beyond 512, of an eighth of the next power of two: few sizes, little waste."""
    grain = max(GRAIN, (1 << (size - 1).bit_length()) // 8)
    return -(-size // grain) * grain


class RowCensus(NamedTuple):
    """One row's entry in the census, which the device counts in each pass."""

    running: bool = False
    reach: int = 0
    """Blocks that its next pass computes; 0 is everything."""
    open: int = 0
    """Open positions of the row."""
    in_block: int = 0
    """Open positions of the row's current block; 0 before its first pass."""
    start: int = 0
    """Start of the current block."""
    passes: int = 0
    """Passes that the row took part in."""
    idle: int = 0
    """Passes in a row in which it committed nothing."""
    broken: int = 0
    """1 if the network gave NaN or infinity for the row."""

    def due(self, reach: int) -> bool:
        """Whether it takes part in a pass of that reach."""
        return self.running and takes_part(self.reach, reach)


def next_shape(plan: Plan, rows: Sequence[RowCensus], computed: int, length: int, masked: bool) -> Shape:
    """The rounded shape that holds the next pass of these rows, of which the first `computed` are computed."""
    running = [row for row in rows if row.running]
    reach = next_reach({row.reach for row in running})
    near, dual = min(plan.blocks.length or length, length), isinstance(plan.caching.policy, Dual)
    due = [row for row in running if row.due(reach)]
    width = None if len(due) == len(running) else length
    if reach:
        begun = min(row.start - (row.reach - 1) * near for row in due)
        columns = reach * near if dual else rounded(length - begun)
        width = min(columns + plan.model.first_open, length)
    in_block = plan.vanilla or (reach and dual)
    room = min(rounded(sum(row.open for row in due)), computed * (near if in_block else width or length))
    return Shape(computed, width, room, masked, reach)


def next_reach(wanted: set[int]) -> int:
    """Of the pass that comes next, when these are wanted.

    While some row is due for everything, the others only finish their blocks. Else those that begin one and those
    within one go together.
    """
    if 0 in wanted:
        return 1 if 1 in wanted else 0
    return max(wanted, default=0)


@dataclass(frozen=True)
class Foresight:
    """Computes the next census on the host, where the plan alone decides it."""

    commits: int | None
    """Positions that every pass commits in a row whose block has as many; None: the predictions decide."""
    reach: int
    """Of a row's next pass while it stays in its block."""
    may_end: bool = False
    """Whether a row may be over in any pass: then the census of each pass is read while the next one runs."""

    @staticmethod
    def of(plan: Plan) -> Foresight:
        """Only for TopN itself: a rule that inherits from it may commit any number."""
        commits = plan.commit.n if type(plan.commit) is TopN else None
        policy = plan.caching.policy
        certain = policy is None or policy.refresh is None
        return Foresight(commits if certain else None, 0 if policy is None else 1, plan.early_finish is True)

    def __call__(self, rows: Sequence[RowCensus], reach: int) -> list[RowCensus] | None:
        """The rows after a pass of that reach; None where a block may close, and with it a row or a kind of pass."""
        due = [row.due(reach) for row in rows]
        if self.commits is None or any(row.in_block <= self.commits for row, now in zip(rows, due, strict=True) if now):
            return None
        return [self._next(row, self.commits) if now else row for row, now in zip(rows, due, strict=True)]

    def _next(self, row: RowCensus, commits: int) -> RowCensus:
        return RowCensus(True, self.reach, row.open - commits, row.in_block - commits, row.start, row.passes + 1)
