"""The engine: requests of any length, each with its own Decoding, in one queue."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal

import torch

from softdlm.engine.answer import Answer
from softdlm.engine.cohort import Cohort
from softdlm.engine.memory import available, gib, host_memory, need, recording_bytes
from softdlm.engine.pick_engine import EngineKind, check_engine, pick_engine
from softdlm.engine.plan import Plan, check_length, check_start
from softdlm.engine.slot_store import give_back, kept_bytes, shrink_kept, take_slots
from softdlm.engine.tensor_records import mapped
from softdlm.errors import CapacityError, UsageError
from softdlm.models.denoiser import Denoiser
from softdlm.types import Step

OnStep = Callable[[Step, Sequence[int]], None]
"""Called after each pass with the numbers of the requests in the Step's rows."""
MOST_COHORTS = 8
"""Cohorts that are decoded at once; requests of further ones wait."""


class Engine:
    """`submit` requests at any time and call `step` while the engine is `busy`: one pass each time.

    Requests share passes with others of their cohort; cohorts take turns, so in one round every request has one pass.
    A request gets the tokens that it gets alone. Not for several threads: one thread submits and steps.
    """

    def __init__(
        self,
        model: Denoiser,
        *,
        batch_size: int = 16,
        engine: EngineKind | None = None,
        memory_limit: int | None = None,
        most_cohorts: int = MOST_COHORTS,
        few_shapes: bool = False,
        on_step: OnStep | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`batch_size` rows per cohort; by default the model's engine; `memory_limit` in bytes, by default most of what
        is free now. With `few_shapes`, passes of rounded shape have rounded rows and canvas lengths even where requests
        have one length: so later requests, of other lengths, meet the same shapes.
        """
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, not {batch_size}")
        self.model, self.batch_size = model, batch_size
        self.engine: EngineKind = check_engine(model.engine if engine is None else engine)
        self.memory_limit = available(model.device) + kept_bytes(model) if memory_limit is None else memory_limit
        self.most_cohorts, self.on_step, self.clock = most_cohorts, on_step, clock
        self.few_shapes = few_shapes
        self.cohorts: list[Cohort] = []
        self.turns: deque[Cohort] = deque()
        """Cohorts that are decoded, in the order of their turns."""
        self.timed: dict[Answer, float] = {}
        """Answers with a time limit, and when it ends."""
        self.places, self.passes, self.changed = count(), count(1), False

    @property
    def busy(self) -> bool:
        return bool(self.cohorts)

    @property
    def running(self) -> int:
        """Requests that have a row."""
        return sum(len(cohort.answers) for cohort in self.cohorts)

    @property
    def held_bytes(self) -> int:
        """Memory of the rows that are decoded now, and of their captured passes."""
        return sum(cohort.slots.bytes for cohort in self.cohorts if cohort.slots is not None)

    def check(self, answer: Answer) -> Cohort:
        """The cohort of a request. One that can never be decoded here is refused."""
        check_start(self.model, len(answer.prompt_ids))
        check_length(self.model, answer.length)
        cohort = self._cohort(answer)
        self._check_memory(cohort, answer)
        return cohort

    def submit(self, answer: Answer) -> None:
        """Queue a request, or refuse it at once."""
        cohort = self.check(answer)
        if cohort not in self.cohorts:
            self.cohorts.append(cohort)
        cohort.add(next(self.places), answer)
        if answer.seconds is not None:
            self.timed[answer] = self.clock() + answer.seconds
        self.changed = True

    def cancel(self, answer: Answer) -> None:
        """End a request with what was committed so far; one that is over already stays as it is."""
        self._end(answer, "cancelled")

    def step(self) -> list[Answer]:
        """Let requests in, make one pass, and return the requests that are over: done, late or failed."""
        late = [answer for answer, moment in self.timed.items() if self.clock() >= moment]
        for answer in late:
            self._end(answer, "deadline")
        over = [*late, *(self._let_in() if self.changed else ())]
        if self.turns:
            over += self._pass(self.turns[0])
            self.turns.rotate(-1)
        elif self.cohorts and not over:
            raise RuntimeError(f"requests wait and nothing is decoded: {[len(each.waiting) for each in self.cohorts]}")
        for answer in over:
            self.timed.pop(answer, None)
        if over:
            self._tidy()
        return over

    def close(self, keep: bool = True) -> None:
        """Give slots and captured passes back to the model; `keep=False` drops them."""
        for cohort in self.cohorts:
            if cohort.slots is not None and keep:
                give_back(self.model, cohort.slots, cohort.engine)
        self.cohorts.clear()
        self.turns.clear()
        self.timed.clear()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(keep=kind is None)

    def _cohort(self, answer: Answer) -> Cohort:
        for cohort in self.cohorts:
            if cohort.key == Cohort.key_of(answer, cohort.engine):
                return cohort
        plan = Plan.of(self.model, answer.decoding)
        engine = pick_engine(plan, self.engine)
        return Cohort(plan, engine, Cohort.key_of(answer, engine), self.few_shapes and engine != "dynamic")

    def _check_memory(self, cohort: Cohort, answer: Answer) -> None:
        alone = need(cohort.plan, 1, cohort.room_for(answer))
        remedy = "shorten the prompt or max_new_tokens, leave out the cache, or raise the limit"
        if alone.total > self.memory_limit:
            raise CapacityError(f"the request needs {alone}, the limit is {gib(self.memory_limit)}: {remedy}")
        open = answer.max_new_tokens
        recorded = recording_bytes(open, open, cohort.plan.sampling.k) if answer.record_candidates else 0
        if recorded > host_memory():
            raise CapacityError(
                f"recording candidates may need {gib(recorded)} of the host's memory, {gib(host_memory())} are free: "
                "shorten max_new_tokens, or record none"
            )

    def _let_in(self) -> list[Answer]:
        """Requests into rows, the cohort of the oldest first; returns those that failed.

        A cohort that must wait for others to end is overtaken by nobody.
        """
        self.changed, failed = False, []
        queued = [cohort for cohort in self.cohorts if cohort.waiting]
        for cohort in sorted(queued, key=lambda cohort: cohort.waiting[0][0]):
            full = cohort.slots is None and len(self.turns) >= self.most_cohorts
            try:
                if full or not self._make_room(cohort):
                    break
                cohort.enter()
            except Exception as error:  # of a rule's `init`, or of the device
                failed += cohort.fail(error, waiting=True)
                self.turns = deque(each for each in self.turns if each is not cohort)
            if cohort.answers and cohort not in self.turns:
                self.turns.append(cohort)
        return failed

    def _make_room(self, cohort: Cohort) -> bool:
        """Slots for as many requests of the cohort as fit; False: it has none and waits for memory."""
        slots, length = cohort.slots, cohort.length
        wanted = len(cohort.answers) + len(cohort.waiting)
        wanted = min(self.batch_size, 1 << (wanted - 1).bit_length() if cohort.few_shapes else wanted)
        if slots is not None:
            if slots.batch >= wanted and slots.length >= length:
                return True
            wanted = min(self.batch_size, max(wanted, 2 * slots.batch)) if wanted > slots.batch else slots.batch
        while wanted >= (1 if slots is None else slots.batch) and not self._allocated(cohort, wanted, length):
            wanted //= 2
        if cohort.slots is None and not self.turns:
            raise CapacityError(f"the device has no room for a single row of {length} positions")
        return cohort.slots is not None

    def _allocated(self, cohort: Cohort, rows: int, length: int) -> bool:
        if not self._fits(cohort, rows, length):
            return False
        try:
            if cohort.slots is None:
                cohort.slots = take_slots(cohort.plan, rows, length, cohort.engine, most=self.batch_size)
            else:
                cohort.slots.grow(rows, length)
        except torch.cuda.OutOfMemoryError:  # others use the device too
            torch.cuda.empty_cache()
            return False
        return True

    def _fits(self, cohort: Cohort, rows: int, length: int) -> bool:
        """Whether the memory allows it, if need be without the slots that are kept for later."""
        asked = need(cohort.plan, rows, length)
        live = [(each, each.slots) for each in self.cohorts if each.slots is not None]
        held = sum(slots.bytes for _, slots in live)
        passes = [need(each.plan, slots.batch, slots.length).a_pass for each, slots in live]
        left = self.memory_limit - held - asked.canvas - asked.keys_values - max([asked.a_pass, *passes])
        if left >= 0:
            shrink_kept(self.model, left)
        return left >= 0

    def _pass(self, cohort: Cohort) -> Sequence[Answer]:
        try:
            step = cohort.step(heard=self.on_step is not None)
        except torch.cuda.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            return cohort.fail(CapacityError(f"the device ran out of memory in a pass: {str(error).splitlines()[0]}"))
        except Exception as error:
            return cohort.fail(error)
        if self.on_step:
            names = [answer.request for answer in cohort.answers]
            mine = mapped(step, lambda tensor: tensor[: len(names)].clone())
            self.on_step(replace(mine, index=next(self.passes)), names)
        return list(cohort.read(step))

    def _end(self, answer: Answer, reason: Literal["deadline", "cancelled"]) -> None:
        if not answer.over:
            for cohort in self.cohorts:
                if answer in cohort.answers or any(each is answer for _, each in cohort.waiting):
                    cohort.end(answer, reason)
        self.timed.pop(answer, None)
        self._tidy()

    def _tidy(self) -> None:
        """Cohorts without rows give their slots back; those without requests go."""
        self.changed = True
        for cohort in self.cohorts:
            if not cohort.answers and cohort.slots is not None:
                give_back(self.model, cohort.slots, cohort.engine)
                cohort.slots = None
        self.turns = deque(cohort for cohort in self.turns if cohort.answers)
        self.cohorts = [cohort for cohort in self.cohorts if cohort.answers or cohort.waiting]
