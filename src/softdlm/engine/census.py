"""What the host knows of rows between passes of fixed shape (static.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from softdlm.commit import TopN
from softdlm.decode import Plan


class Row(NamedTuple):
    """Of one row. The device counts all of it at each pass: the census."""

    running: bool = False
    reach: int = 0
    """Blocks that its next pass computes; 0 is everything."""
    open: int = 0
    in_block: int = 0
    """Those of its current block; before its first pass 0."""
    start: int = 0
    """Of that block."""
    passes: int = 0
    """That it has had."""

    def due(self, reach: int) -> bool:
        """Whether it takes part in a pass of that reach."""
        return self.running and (1 <= self.reach <= reach if reach else self.reach == 0)


@dataclass(frozen=True)
class Foresight:
    """What the census of a pass will say, where the plan alone decides it."""

    commits: int | None
    """Positions that every pass commits in a row whose block has as many; None: the predictions decide."""
    reach: int
    """Of a row's next pass while it stays in its block."""

    @staticmethod
    def of(plan: Plan) -> Foresight:
        """Of TopN itself only: a rule that inherits from it may commit as it likes."""
        commits = plan.commit.n if type(plan.commit) is TopN else None
        certain = not plan.early_finish and plan.caching.refresh is None
        return Foresight(commits if certain else None, 1 if plan.caching.kind else 0)

    def __call__(self, rows: Sequence[Row], reach: int) -> list[Row] | None:
        """The rows after a pass of that reach; None where a block may close, and with it a row or a kind of pass."""
        due = [row.due(reach) for row in rows]
        if self.commits is None or any(row.in_block <= self.commits for row, now in zip(rows, due, strict=True) if now):
            return None
        return [self._next(row, self.commits) if now else row for row, now in zip(rows, due, strict=True)]

    def _next(self, row: Row, commits: int) -> Row:
        return Row(True, self.reach, row.open - commits, row.in_block - commits, row.start, row.passes + 1)


def next_reach(wanted: set[int]) -> int:
    """Of the pass that comes next, when these are wanted.

    While some row is due for everything, the others only finish their blocks. Else those that begin one and those
    within one go together.
    """
    if 0 in wanted:
        return 1 if 1 in wanted else 0
    return max(wanted, default=0)
