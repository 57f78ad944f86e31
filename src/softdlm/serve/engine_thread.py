"""The engine's thread: it loads the model, lets tickets in, makes passes, and says what they meant for each ticket.

Everything of the engine happens here. Other threads only `post` commands.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence

import torch

from softdlm.engine.answer import Answer
from softdlm.engine.memory import recording_bytes
from softdlm.engine.pick_engine import EngineKind
from softdlm.engine.queue import Engine
from softdlm.errors import SoftDLMError
from softdlm.models.denoiser import Denoiser
from softdlm.serve.fair_queue import FairQueue
from softdlm.serve.metrics import Metrics
from softdlm.serve.refusals import Refusal, refusal_of
from softdlm.serve.settings import Limits
from softdlm.serve.tickets import News, Ticket, draft_of
from softdlm.serve.warm_start import warm_start
from softdlm.trace import Candidates

log = logging.getLogger("softdlm.serve")
Load = Callable[[], Denoiser]
Kind = EngineKind
EXPECTED = (SoftDLMError, Refusal)
"""Errors that are about the request, not about the server."""


class EngineThread(threading.Thread):
    """One model, one engine. `hand_over` is called after each pass with the news of it, `changed` when the model is
    loaded or the thread has failed.
    """

    def __init__(
        self,
        load: Load,
        limits: Limits,
        metrics: Metrics,
        kind: Kind,
        hand_over: Callable[[Sequence[tuple[Ticket, News]]], None],
        changed: Callable[[], None],
        warm: Sequence[int] = (),
    ) -> None:
        super().__init__(name="softdlm-engine", daemon=True)
        self.load, self.limits, self.metrics, self.clock = load, limits, metrics, time.monotonic
        self.kind: Kind = kind
        self.warm = warm
        """Canvas lengths to compile passes for at the start."""
        self.hand_over, self.changed = hand_over, changed
        self.model: Denoiser | None = None
        self.engine: Engine | None = None
        self.failure: Exception | None = None
        """Why the model could not be loaded, or what ended the engine."""
        self.stopping = False
        self.commands: deque[Callable[[], None]] = deque()
        self.wake = threading.Condition()
        self.waiting: FairQueue[Ticket] = FairQueue()
        self.live: dict[Answer, Ticket] = {}
        """Answers that the engine has."""
        self.rows: Counter[Hashable] = Counter()
        """How many of them each cohort has."""
        self.news: dict[Ticket, News] = {}
        self.recorded = 0
        """Host memory that the traces of all tickets may take."""
        self.pace, self.last_end = 1.0, self.clock()
        """Seconds between two answers that end, on average of late; and when the last one ended."""

    def post(self, command: Callable[[], None]) -> None:
        """Have a command carried out on this thread, between two passes."""
        with self.wake:
            self.commands.append(command)
            self.wake.notify()

    def run(self) -> None:
        try:
            self.model = self.load()
            rows = self.limits.max_concurrency
            engine = Engine(self.model, batch_size=rows, engine=self.kind, few_shapes=bool(self.warm))
            warm_start(engine, self.warm)
            self.engine = engine
            self.changed()
        except Exception as error:
            self._fail(error)
        while not self.stopping:
            try:
                self._turn()
            except Exception as error:
                self._fail(error)

    def _turn(self) -> None:
        """Carry out what was posted, let tickets in, make a pass, hand the news over."""
        engine = self.engine
        busy = engine is not None and (engine.busy or len(self.waiting) > 0)
        self._obey(wait=not busy)
        if engine is None or self.failure is not None:
            return
        self._end_late()
        self._let_in(engine)
        over = engine.step() if engine.busy else []
        for answer in over:
            self._end(self.live[answer], answer.error or self._unbegun(answer))
        running = engine.running
        self.metrics.load(
            running, len(self.live) + len(self.waiting) - running, engine.held_bytes / max(engine.memory_limit, 1)
        )
        self.flush()
        if any(answer.error is not None and not isinstance(answer.error, EXPECTED) for answer in over):
            check_device(engine.model.device)

    def _obey(self, wait: bool) -> None:
        with self.wake:
            if wait and not self.commands:
                self.wake.wait()
            found, self.commands = self.commands, deque()
        for command in found:
            command()

    def accept(self, tickets: Sequence[Ticket]) -> Refusal | None:
        """Queue these tickets, all or none: each is checked before any is queued."""
        try:
            if self.engine is None or self.failure is not None or self.stopping:
                raise Refusal(503, "the server cannot answer any more", code="server_failed")
            for ticket in tickets:
                self.engine.check(ticket.answer)
            self._reserve(tickets)
        except EXPECTED as error:
            return refusal_of(error)
        except Exception as error:
            log.exception("request %s was refused by an unexpected error", tickets[0].name)
            return refusal_of(error, tickets[0].name)
        for ticket in tickets:
            self.waiting.push(ticket.answer.decoding.cohort, ticket)
        return None

    def _reserve(self, tickets: Sequence[Ticket]) -> None:
        """Host memory for the traces that are recorded."""
        for ticket in tickets:
            answer, new = ticket.answer, ticket.answer.max_new_tokens
            ticket.recorded = recording_bytes(new, new, answer.decoding.candidates or 1) * answer.record_candidates
        wanted, limit = sum(ticket.recorded for ticket in tickets), self.limits.trace_bytes
        if wanted > limit:
            message = f"the trace may take {wanted >> 20} MiB, the limit is {limit >> 20}: ask for fewer tokens"
            raise Refusal(400, message, code="too_large")
        if self.recorded + wanted > limit:
            taken = f"{self.recorded >> 20} of {limit >> 20} MiB"
            raise Refusal(429, f"traces may take {taken} now: try later", code="traces_full", retry_after=5)
        self.recorded += wanted

    def cancel(self, tickets: Sequence[Ticket]) -> None:
        """End these answers; those that are over stay as they are."""
        for ticket in tickets:
            self._withdraw(ticket, Refusal(503, "the request was cancelled", code="cancelled"))
        self.flush()

    def stop(self) -> None:
        """End everything that is left, and the thread."""
        self.stopping = True
        self._end_all(Refusal(503, "the server is shutting down", code="server_draining"))
        if self.engine is not None:
            self.engine.close()

    def _withdraw(self, ticket: Ticket, refusal: Refusal) -> None:
        if ticket.answer in self.live:
            if self.engine is not None and self.failure is None:
                self.engine.cancel(ticket.answer)
        elif ticket in self.waiting:
            self.waiting.remove(ticket)
        else:
            return
        self._end(ticket, refusal)

    def _let_in(self, engine: Engine) -> None:
        """From the queue into the engine, while a pass of their cohort has a row."""
        while (ticket := self.waiting.pop(self._has_row)) is not None:
            ticket.began = self.clock()
            ticket.answer.seconds = max(ticket.deadline - ticket.began, 0.0)
            self.live[ticket.answer] = ticket
            self.rows[ticket.answer.decoding.cohort] += 1
            try:
                engine.submit(ticket.answer)
            except Exception as error:
                self._end(ticket, error)

    def _has_row(self, cohort: Hashable) -> bool:
        return self.rows[cohort] < self.limits.max_concurrency

    def _end_late(self) -> None:
        """Answers whose time was over before they were begun."""
        now = self.clock()
        for ticket in [each for each in self.waiting if each.deadline <= now]:
            self.waiting.remove(ticket)
            self._end(ticket, self._late())

    def _unbegun(self, answer: Answer) -> Refusal | None:
        """The deadline came while the answer waited in the engine: for memory, or for the end of another cohort."""
        made = answer.generation
        return self._late() if made and made.finish_reason == "deadline" and made.forwards == 0 else None

    def _late(self) -> Refusal:
        message = f"the deadline of {self.limits.deadline:g} s passed while the request waited"
        return Refusal(504, message, code="deadline")

    def _end(self, ticket: Ticket, error: Exception | None) -> None:
        """This answer is over, with an error or without."""
        if self.live.pop(ticket.answer, None) is not None:
            self.rows -= Counter([ticket.answer.decoding.cohort])
        self.recorded -= ticket.recorded
        now, answer = self.clock(), ticket.answer
        ticket.ended = now
        if error is not None:
            if not isinstance(error, EXPECTED):
                log.error("request %s failed", ticket.name, exc_info=error)
            ticket.refusal = refusal_of(error, ticket.name)
        self.tell(ticket, News("", *counts_of(answer), progress=1.0, over=True))
        self.metrics.answer(ticket)
        self.pace, self.last_end = self.pace + 0.1 * (min(now - self.last_end, 10.0) - self.pace), now

    def tell(self, ticket: Ticket, news: News) -> None:
        """News that are handed over after the pass."""
        if news.text and ticket.first_text is None:
            ticket.first_text = self.clock()
        self.news[ticket] = self.news[ticket].then(news) if ticket in self.news else news

    def flush(self) -> None:
        if self.news:
            self.hand_over(list(self.news.items()))
            self.news = {}

    def _end_all(self, error: Exception) -> None:
        for ticket in [*self.live.values(), *self.waiting]:
            self._withdraw(ticket, refusal_of(error, ticket.name))
        self.flush()

    def _fail(self, error: Exception) -> None:
        """The engine cannot go on: every request ends, and later ones are refused."""
        if self.failure is None:
            self.failure = error
            if not isinstance(error, SoftDLMError):
                log.critical("the engine failed", exc_info=error)
        self._end_all(Refusal(503, "the server's device or model failed", code="server_failed"))
        self.changed()


def counts_of(answer: Answer) -> tuple[int, int]:
    """Tokens and passes of an answer that is over; of a canvas with gaps, all that were committed."""
    made = answer.generation
    if made is None:
        return 0, 0
    committed = sum(len(each.positions) for each in made.trace.passes)
    return len(made.ids) if answer.given is None else committed, made.forwards


def listen(ticket: Ticket, tell: Callable[[Ticket, News], None], text: bool, drafts: bool) -> None:
    """Have a ticket's answer report its text, or its drafts, as passes are made."""
    answer = ticket.answer
    if text:
        answer.on_text = lambda _, piece: tell(ticket, News(piece, len(answer.ids), answer.passes))

    def draft(answer: Answer, left_open: Candidates) -> None:
        best = {place: options[0][0] for place, options in zip(*left_open, strict=True) if options}
        now, progress = draft_of(answer, best)
        tell(ticket, News("", len(answer.ids), answer.passes, now, progress))

    if drafts:
        answer.on_pass = draft


def check_device(device: torch.device) -> None:
    """Raises where a GPU answers no more, which shows at the next synchronisation."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
