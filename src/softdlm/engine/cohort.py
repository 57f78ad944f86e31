"""A cohort: requests that share passes, because their Decodings agree in everything but what is a row's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from softdlm.engine.answer import Answer, FinishReason
from softdlm.engine.census import rounded
from softdlm.engine.pick_engine import EngineKind
from softdlm.engine.plan import Plan
from softdlm.engine.slots import Slots
from softdlm.types import Canvas, Step


def canvas_of(answers: Sequence[Answer]) -> Canvas:
    """The answers' canvases before their first pass, one row each."""
    model = answers[0].model
    return Canvas.rows([answer.start for answer in answers], model.mask_id, next(iter(model.eos_ids), 0))


@dataclass(eq=False)
class Cohort:
    """Requests that wait, and those that are decoded: the answer of row i is `answers[i]`."""

    plan: Plan
    engine: EngineKind
    key: tuple[Any, ...]
    """What its requests have in common."""
    few_shapes: bool = False
    """Whether its slots always have a rounded length."""
    waiting: deque[tuple[int, Answer]] = field(default_factory=deque)
    """With their places in the queue of all requests."""
    answers: list[Answer] = field(default_factory=list)
    slots: Slots | None = None
    lengths: tuple[int, int] | None = None
    """Shortest and longest canvas of its requests so far."""

    @staticmethod
    def key_of(answer: Answer, engine: EngineKind) -> tuple[Any, ...]:
        """Passes of rounded shape are for requests of about one length; exact ones follow each row's own."""
        return answer.decoding.cohort, engine, None if engine == "dynamic" else rounded(answer.length)

    @property
    def length(self) -> int:
        """Of its slots: without padding, where all requests have one length, attention needs no mask."""
        assert self.lengths is not None
        shortest, longest = self.lengths
        exact = self.engine == "dynamic" or (shortest == longest and not self.few_shapes)
        return longest if exact else rounded(longest)

    def room_for(self, answer: Answer) -> int:
        """The longest that slots of one row for this answer may have to be."""
        return answer.length if self.engine == "dynamic" else rounded(answer.length)

    def add(self, place: int, answer: Answer) -> None:
        shortest, longest = self.lengths or (answer.length, answer.length)
        self.lengths = min(shortest, answer.length), max(longest, answer.length)
        self.waiting.append((place, answer))

    def enter(self) -> None:
        """Requests into free rows, the oldest first, while they fit."""
        assert self.slots is not None
        free, entering = self.slots.batch - self.slots.used, []
        while self.waiting and len(entering) < free and self.waiting[0][1].length <= self.slots.length:
            entering.append(self.waiting.popleft()[1])
        if entering:
            self.answers += entering
            seeds, numbers = [each.decoding.seed or 0 for each in entering], [each.request for each in entering]
            self.slots.admit(canvas_of(entering), seeds, numbers)
            for answer in entering:
                answer.begin()

    def step(self, heard: bool = False) -> Step:
        """One pass; its Step lies in buffers that the next pass overwrites. `heard`: somebody is told of each pass."""
        assert self.slots is not None
        ends_unseen = heard and self.slots.foresight.may_end  # a pass more than the row has
        return self.slots.step(read=ends_unseen or any(answer.watched for answer in self.answers))

    def read(self, step: Step) -> Iterator[Answer]:
        """What a pass means for each answer; yields those that are over. Rows go from last to first: rows move up."""
        slots = self.slots
        assert slots is not None
        heard = slots.read_ids([row for row, answer in enumerate(self.answers) if answer.speaks])
        for row in reversed(range(len(self.answers))):
            answer = self.answers[row]
            try:
                if fault := slots.fault(row):
                    raise fault
                answer.passes = slots.rows[row].passes
                if answer.speaks:
                    answer.listen(heard[row])
                answer.record(step, row)
                if answer.stopped or not slots.rows[row].running:
                    answer.finish(slots.read_row(row))
            except Exception as error:  # of this request alone: its rule, its network's numbers, its listener
                answer.error = error
            if answer.over:
                self._leave(row)
                yield answer

    def end(self, answer: Answer, reason: FinishReason) -> None:
        """A request that ends before it is done, with what was committed so far."""
        row = next((row for row, each in enumerate(self.answers) if each is answer), None)
        try:
            if row is None:
                self.waiting = deque(each for each in self.waiting if each[1] is not answer)
                answer.end_unseen(reason)
            else:
                assert self.slots is not None
                answer.finish(self._current(row), reason)
        except Exception as error:
            answer.error = error
        if row is not None:
            self._leave(row)

    def fail(self, error: Exception, waiting: bool = False) -> Sequence[Answer]:
        """What failed leaves the rows in an unknown state: they end, and the slots are dropped."""
        failed, self.answers, self.slots = self.answers, [], None
        if waiting:
            failed += [answer for _, answer in self.waiting]
            self.waiting.clear()
        for answer in failed:
            answer.error = error
        return failed

    def _current(self, row: int) -> Any:
        assert self.slots is not None
        if self.slots.unread:
            self.slots.read()
        return self.slots.read_row(row)

    def _leave(self, row: int) -> None:
        assert self.slots is not None
        self.slots.leave(row)
        last = self.answers.pop()
        if row < len(self.answers):
            self.answers[row] = last
