"""The event loop's side of the engine's thread: what is accepted, what is refused, and the state of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from softdlm.models.denoiser import Denoiser
from softdlm.serve.engine_thread import EngineThread, Kind, Load
from softdlm.serve.metrics import Metrics
from softdlm.serve.refusals import Refusal
from softdlm.serve.settings import Limits
from softdlm.serve.shares import Shares
from softdlm.serve.tickets import News, Ticket

State = Literal["loading", "ready", "draining", "failed"]
WHY_NOT = {
    "loading": "the model is being loaded and compiled: try again in a moment",
    "draining": "the server is shutting down: ask another one",
    "failed": "the server's device or model failed: its operator must restart it",
}


class Worker:
    """Accepts answers up to the server's capacity. All of it happens on one event loop."""

    def __init__(
        self, load: Load, limits: Limits, metrics: Metrics, kind: Kind = "auto", warm: Sequence[int] = ()
    ) -> None:
        self.limits, self.metrics = limits, metrics
        self.thread = EngineThread(load, limits, metrics, kind, self._from_thread, self._changed, warm)
        self.draining = False
        self.shares = Shares(limits)
        """Answers that were accepted and are not over, by their cohort."""
        self.ready = asyncio.Event()
        """The model is loaded, or loading it failed."""

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread.start()

    @property
    def held(self) -> int:
        return self.shares.held

    @property
    def state(self) -> State:
        if self.thread.failure is not None:
            return "failed"
        return "draining" if self.draining else "loading" if self.thread.engine is None else "ready"

    @property
    def model(self) -> Denoiser:
        self.check_ready()
        assert self.thread.model is not None
        return self.thread.model

    def check_ready(self) -> None:
        if self.state != "ready":
            raise Refusal(503, WHY_NOT[self.state], code=f"server_{self.state}", retry_after=1)

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        """Accept these answers of one request, all or none; a Refusal says why not."""
        self.check_ready()
        capacity, cohort = self.limits.capacity, tickets[0].answer.decoding.cohort
        if len(tickets) > capacity:
            raise Refusal(400, f"{len(tickets)} answers are asked for; this server holds at most {capacity}", param="n")
        if why := self.shares.why_full(cohort, len(tickets)):
            full = Refusal(429, f"{why}: try later", code="queue_full", retry_after=self.retry_after)
            self.metrics.refuse(self.metrics.rejected, full, len(tickets))
            raise full
        self.shares.take(cohort, len(tickets))
        refusal = await asyncio.shield(self._call(lambda: self.thread.accept(tickets), tickets))
        if refusal is not None:
            self.metrics.refuse(self.metrics.rejected, refusal, len(tickets))
            raise refusal

    async def _call(self, accept: Callable[[], Refusal | None], tickets: Sequence[Ticket]) -> Refusal | None:
        """The verdict of the engine's thread. It runs to its end even where its client is gone."""
        told: asyncio.Future[Refusal | None] = self.loop.create_future()
        self.thread.post(lambda: self._on_loop(told.set_result, accept()))
        refusal = await told
        if refusal is not None:
            self.shares.give_back(tickets[0].answer.decoding.cohort, len(tickets))
        return refusal

    @property
    def retry_after(self) -> int:
        """Seconds until about a quarter of the queue is done, at the pace of late."""
        return min(60, max(1, round(self.thread.pace * (1 + self.limits.queue / 4))))

    def cancel(self, tickets: Sequence[Ticket]) -> None:
        """Nobody waits for these answers any more; those that are over stay as they are."""
        if not all(ticket.news.over for ticket in tickets):
            self.thread.post(lambda: self.thread.cancel(tickets))

    async def drain(self, seconds: float) -> bool:
        """Accept nothing more and let what was accepted finish; whether it did in time."""
        self.draining = True
        end = self.loop.time() + seconds
        while self.held and self.loop.time() < end:
            await asyncio.sleep(0.02)
        return not self.held

    async def stop(self) -> None:
        """End what is left, and the thread; one that still loads its model ends with the process."""
        self.draining = True
        self.thread.post(self.thread.stop)
        await asyncio.to_thread(self.thread.join, 10)

    def _from_thread(self, news: Sequence[tuple[Ticket, News]]) -> None:
        self._on_loop(self._hand_over, news)

    def _hand_over(self, news: Sequence[tuple[Ticket, News]]) -> None:
        for ticket, each in news:
            if each.over:
                self.shares.give_back(ticket.answer.decoding.cohort)
            ticket.hear(each)

    def _changed(self) -> None:
        self._on_loop(self.ready.set)

    def _on_loop(self, call: Callable[..., None], *values: object) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call, *values)
