"""What the host knows of rows between passes of rounded shape (captured.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from softdlm.commit import TopN
from softdlm.engine.plan import Plan


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

    def due(self, reach: int) -> bool:
        """Whether it takes part in a pass of that reach."""
        return self.running and (1 <= self.reach <= reach if reach else self.reach == 0)


@dataclass(frozen=True)
class Foresight:
    """Computes the next census on the host, where the plan alone decides it."""

    commits: int | None
    """Positions that every pass commits in a row whose block has as many; None: the predictions decide."""
    reach: int
    """Of a row's next pass while it stays in its block."""

    @staticmethod
    def of(plan: Plan) -> Foresight:
        """Only for TopN itself: a rule that inherits from it may commit any number."""
        commits = plan.commit.n if type(plan.commit) is TopN else None
        policy = plan.caching.policy
        certain = not plan.early_finish and (policy is None or policy.refresh is None)
        return Foresight(commits if certain else None, 0 if policy is None else 1)

    def __call__(self, rows: Sequence[RowCensus], reach: int) -> list[RowCensus] | None:
        """The rows after a pass of that reach; None where a block may close, and with it a row or a kind of pass."""
        due = [row.due(reach) for row in rows]
        if self.commits is None or any(row.in_block <= self.commits for row, now in zip(rows, due, strict=True) if now):
            return None
        return [self._next(row, self.commits) if now else row for row, now in zip(rows, due, strict=True)]

    def _next(self, row: RowCensus, commits: int) -> RowCensus:
        return RowCensus(True, self.reach, row.open - commits, row.in_block - commits, row.start, row.passes + 1)


def next_reach(wanted: set[int]) -> int:
    """Of the pass that comes next, when these are wanted.

    While some row is due for everything, the others only finish their blocks. Else those that begin one and those
    within one go together.
    """
    if 0 in wanted:
        return 1 if 1 in wanted else 0
    return max(wanted, default=0)
