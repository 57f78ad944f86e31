"""How many answers a server holds of each decoding, and how many more it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from softdlm.serve.settings import Limits

KEPT = 8
"""One place in so many."""


class Shares:
    """The capacity of a server, shared by the cohorts that have answers in it.

    Without shares slow decodings fill a queue that is bounded as a whole: their answers stay longest, so they wait
    longer and longer, and fast ones find no place. While places are free, any decoding takes more than its share; the
    last ones are kept for those that have less.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.taken: Counter[Hashable] = Counter()

    @property
    def held(self) -> int:
        return self.taken.total()

    def share(self, cohort: Hashable) -> int:
        """Answers that a cohort may hold: an equal part of the capacity, and at least the rows of its passes."""
        return max(self.limits.max_concurrency, self.limits.capacity // len({*self.taken, cohort}))

    @property
    def kept(self) -> int:
        """Places that a decoding with more than its share leaves free: more than end in most passes."""
        return max(1, self.limits.capacity // KEPT)

    def why_full(self, cohort: Hashable, wanted: int) -> str | None:
        """Why so many more answers cannot be held now. A cohort that has none is only refused by a full server."""
        own, share, capacity = self.taken[cohort], self.share(cohort), self.limits.capacity
        if self.held + wanted > capacity:
            return f"{self.held} answers are decoded or wait, and this server holds at most {capacity}"
        if own and own + wanted > share and self.held + wanted > capacity - self.kept:
            return f"{own} answers of this decoding are decoded or wait, and in a crowd it may have {share}"
        return None

    def take(self, cohort: Hashable, answers: int) -> None:
        self.taken[cohort] += answers

    def give_back(self, cohort: Hashable, answers: int = 1) -> None:
        self.taken -= Counter({cohort: answers})
