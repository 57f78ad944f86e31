"""A race of decoding settings, within a budget of forward passes.

Cells and journals are those of `softdlm eval`. A race is replayed from them, so that a stopped one goes on where it
was, with the same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from softdlm.commit import wait_of
from softdlm.decoding import Decoding
from softdlm.errors import SoftDLMError
from softdlm.evaluate.executors import Executor, Failure
from softdlm.evaluate.grid import Planned
from softdlm.evaluate.race import Goal, Track, choose, judge, rounds
from softdlm.evaluate.run import prompts_of, session, work_of
from softdlm.evaluate.summary import summarise
from softdlm.records.journal import SUMMARY, Journal, Sample
from softdlm.registry import spell
from softdlm.report.progress import progress_line


@dataclass(frozen=True)
class Course:
    """The cells of a race, and what there is to say about the items."""

    settings: tuple[Planned, ...]
    """The reference first."""
    notes: tuple[str, ...]

    @property
    def items(self) -> tuple[str, ...]:
        return self.settings[0].items


NO_ROOM = "not decoded beyond"
"""How the reason begins for which a setting is out that was neither dropped nor failed."""


@dataclass
class Runner:
    """A setting in the race."""

    name: str
    planned: Planned
    samples: list[Sample] = field(default_factory=list)
    """In the order of the items."""
    out: str = ""
    """Why it is no longer in the race."""

    def track(self, size: int) -> Track:
        done = self.samples[:size]
        return Track(self.name, tuple(each.correct for each in done), tuple(each.forwards for each in done))

    @property
    def bound(self) -> int:
        """Passes of one more item, as far as they are known: the most so far."""
        return max((each.forwards for each in self.samples), default=most_passes(self.planned.cell.decoding))

    @property
    def cost(self) -> float:
        """Mean passes so far: the cheapest come first, and in the first round the keys decide, which favour none."""
        return fmean(each.forwards for each in self.samples) if self.samples else 0.0


@dataclass(frozen=True)
class Standing:
    """Where a race stands after a sample."""

    label: str
    items: int
    settings: int
    left: int
    """Settings of this round that are still to come, this one included."""
    used: int
    budget: int

    def line(self, width: int | None = None) -> str:
        facts = (f"{self.items} items", f"{self.left} of {self.settings} settings left")
        passes = f"{self.used:,} of {self.budget:,} passes"
        return progress_line(min(1.0, self.used / self.budget), self.label, *facts, passes, width=width)


Report = Callable[[Standing | str], None]
"""Takes where the race stands, or a line that is to stay."""


class SettingFailed(SoftDLMError):
    """A setting that could not be decoded; the others go on."""

    exit_code = 1


@dataclass
class Store:
    """The cells on disk, decoded as far as the race asks."""

    folder: Path
    executor: Executor
    begun: set[str] = field(default_factory=set)
    """Cells whose manifest names this process."""

    def answers(self, planned: Planned, items: Sequence[str], seen: Callable[[Sample], None]) -> list[Sample]:
        """The samples of these items in their order; what is missing is decoded and kept."""
        place = self.folder / planned.key
        with Journal(place, planned.protocol, planned.cell.labels, prompts_of(planned)) as journal:
            if missing := tuple(item for item in items if item not in journal.samples):
                self._decode(planned, journal, missing, seen)
            if len(journal.samples) == len(planned.items) and (missing or not (place / SUMMARY).exists()):
                journal.finish(summarise(list(journal.samples.values())))
            return [journal.samples[item] for item in items]

    def _decode(
        self, planned: Planned, journal: Journal, missing: tuple[str, ...], seen: Callable[[Sample], None]
    ) -> None:
        if planned.key not in self.begun:
            journal.begin(session(self.executor, planned.cell))
            self.begun.add(planned.key)
        for _, result in self.executor.run([work_of(planned, planned.cell, missing)]):
            if isinstance(result, Failure):
                raise SettingFailed(f"{planned.cell}: {result.reason}")
            journal.append(result)
            seen(result)


@dataclass
class Race:
    """Rounds over growing prefixes of the items, until all items are done or the budget is."""

    course: Course
    store: Store
    goal: Goal
    budget: int
    alpha: float
    report: Report = lambda standing: None
    used: int = 0
    size: int = 0
    """Items of the last round that a setting besides the reference ended."""
    ended: str = ""
    """Why it ended before the last item, in words."""

    def __post_init__(self) -> None:
        self.reference, *self.others = (Runner(name_of(each), each) for each in self.course.settings)

    @property
    def left(self) -> int:
        return self.budget - self.used

    @property
    def running(self) -> list[Runner]:
        return [each for each in self.others if not each.out]

    def run(self) -> None:
        for size in rounds(len(self.course.items)):
            if not self.running or not self._round(size):
                return

    def finalists(self) -> list[Track]:
        return [each.track(self.size) for each in self.running]

    def choice(self) -> Track | None:
        return choose(self.finalists(), self.reference.track(self.size), self.goal)

    def _round(self, size: int) -> bool:
        """Decode each setting that is left on the prefix, the cheapest first, and drop some; whether any got there."""
        field_size = len(self.running)
        if not self._extend(self.reference, size, field_size, field_size):
            return self._end(size)
        order = sorted(self.running, key=lambda each: (each.cost, each.planned.key))
        done = [each for place, each in enumerate(order) if self._enters(each, size, field_size - place, field_size)]
        if not done and self.size:
            return self._end(size)
        for each in self.running:
            if each not in done:
                each.out = each.out or f"{NO_ROOM} {len(each.samples)} items: the budget had no room"
        self.size = size
        tracks, reference = [each.track(size) for each in done], self.reference.track(size)
        dropped = judge(tracks, reference, self.goal, self.alpha)
        for each in done:
            if each.name in dropped:
                each.out = f"dropped after {size} items: {dropped[each.name]}"
        self.report(
            f"{size} items: {len(self.running)} of {field_size} settings left, "
            f"{self.used:,} of {self.budget:,} passes used"
        )
        return bool(done)

    def _end(self, size: int) -> bool:
        """The race ends before this round."""
        self.ended = f"The race ended at {self.size} items: the {self.left:,} passes left are too few for {size} items."
        return False

    def _enters(self, runner: Runner, size: int, left: int, settings: int) -> bool:
        try:
            return self._extend(runner, size, left, settings)
        except SettingFailed as error:
            runner.out = f"failed: {error}"
            return False

    def _extend(self, runner: Runner, size: int, left: int, settings: int) -> bool:
        """Decode a setting up to `size` items, where the budget has room for them.

        The passes so far say whether it is begun. What is decoded at once fits at the most passes that answers may
        take, so that the budget holds in any case.
        """
        new = list(self.course.items[len(runner.samples) : size])
        if runner.bound * len(new) > self.left:
            return False
        spent: list[int] = []

        def seen(sample: Sample) -> None:
            spent.append(sample.forwards)
            used = self.used + sum(spent)
            self.report(Standing(str(runner.planned.cell), size, settings, left, used, self.budget))

        while new:
            spent.clear()
            now = new[: self.left // most_passes(runner.planned.cell.decoding)]
            if not now:
                return False
            samples = self.store.answers(runner.planned, now, seen)
            self.used += sum(each.forwards for each in samples)
            runner.samples += samples
            new = new[len(now) :]
        return True


def name_of(planned: Planned) -> str:
    """A setting in words: its rules, spelled."""
    commit, feedback = planned.cell.decoding.rules
    return f"{spell(feedback)} with {spell(commit)}"


def most_passes(decoding: Decoding) -> int:
    """Of an answer: each pass commits a token, except where a rule may wait, once in each block."""
    canvas, block = decoding.max_new_tokens or 0, decoding.block_length
    whole = canvas + (block or 1) - 1  # LLaDA-2 rounds the canvas up to whole blocks
    return whole + min(wait_of(decoding.rules[0]), whole) * math.ceil(whole / (block or whole))
