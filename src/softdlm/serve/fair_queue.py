"""Requests that wait, fairly: cohorts take turns, and within a cohort the oldest comes first."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Many requests of one kind do not keep those of another kind waiting."""

    def __init__(self) -> None:
        self.lines: OrderedDict[Hashable, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self.lines.values()))

    def __iter__(self) -> Iterator[Item]:
        return iter([item for line in self.lines.values() for item in line])

    def push(self, cohort: Hashable, item: Item) -> None:
        self.lines.setdefault(cohort, deque()).append(item)

    def pop(self) -> Item:
        """The oldest of the cohort whose turn it is; its cohort goes to the end."""
        cohort, line = self.lines.popitem(last=False)
        item = line.popleft()
        if line:
            self.lines[cohort] = line
        return item

    def remove(self, item: Item) -> None:
        for cohort, line in list(self.lines.items()):
            if item in line:
                line.remove(item)
                if not line:
                    del self.lines[cohort]
                return
