"""Requests that wait, fairly: cohorts take turns, and within a cohort the oldest comes first."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
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

    def pop(self, free: Callable[[Hashable], bool]) -> Item | None:
        """The oldest of the next cohort for which something is free; its cohort goes to the end."""
        cohort = next(filter(free, self.lines), None)
        if cohort is None:
            return None
        line = self.lines.pop(cohort)
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
