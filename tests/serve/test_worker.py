"""The engine's thread and what it is handed: nothing lost, nothing kept, nothing that depends on the neighbours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import torch

import softdlm
from softdlm.decoding import settle
from softdlm.engine.answer import Answer
from softdlm.errors import CheckpointError
from softdlm.serve import engine_thread
from softdlm.serve.engine_thread import listen
from softdlm.serve.fair_queue import FairQueue
from softdlm.serve.metrics import Metrics
from softdlm.serve.refusals import Refusal
from softdlm.serve.settings import Limits
from softdlm.serve.tickets import News, Ticket
from softdlm.serve.worker import Worker
from tests.conftest import tiny
from tests.test_batches import prompts_of

WAYS: list[dict[str, Any]] = [
    {"commit": "topn(2)", "feedback": "slerp"},
    {"commit": "threshold(0.4)", "feedback": "slerp", "block_length": 4, "cache": "dual"},
    {"commit": "entropy(0.4)", "feedback": "vanilla"},
    {"commit": "topn(2)", "feedback": "euclidean", "temperature": 0.8, "seed": 5},
]


class Bench:
    """A worker on a tiny model, and tickets for it."""

    def __init__(self, worker: Worker, model: Any) -> None:
        self.worker, self.model = worker, model

    def ticket(self, prompt: Sequence[int] = (5, 6, 7), new: int = 8, **how: Any) -> Ticket:
        own = {name: how.pop(name) for name in ("record_candidates", "given") if name in how}
        decoding = settle(self.model, None, {"max_new_tokens": new, **how})
        answer = Answer(self.model, 0, list(prompt), decoding, **own)
        now = self.worker.thread.clock()
        return Ticket(answer, "test", asyncio.Event(), now, now + self.worker.limits.deadline)

    async def over(self, ticket: Ticket) -> News:
        while not ticket.news.over:
            await asyncio.wait_for(ticket.bell.wait(), 30)
            ticket.bell.clear()
        return ticket.news

    async def refusal(self, tickets: Sequence[Ticket]) -> Refusal:
        with pytest.raises(Refusal) as found:
            await self.worker.submit(tickets)
        return found.value


def served(work: Callable[[Bench], Awaitable[None]], *, dtype: torch.dtype = torch.float32, **limits: Any) -> Worker:
    """Run a coroutine beside a ready worker; afterwards nothing may be left in it."""
    model = tiny("llada", dtype)

    async def run() -> Worker:
        worker = Worker(lambda: model, Limits(**limits), Metrics("tiny"))
        worker.start()
        await asyncio.wait_for(worker.ready.wait(), 30)
        try:
            await work(Bench(worker, model))
            await worker.drain(30)
        finally:
            await worker.stop()
        return worker

    worker = asyncio.run(run())
    thread = worker.thread
    assert not thread.is_alive()
    assert (worker.held, thread.live, len(thread.waiting), thread.news, thread.recorded) == (0, {}, 0, {}, 0)
    assert not thread.rows
    assert thread.engine is not None
    assert thread.engine.cohorts == []
    return worker


def test_answers_do_not_depend_on_each_other() -> None:
    """Mixed Decodings, more answers than rows, some cancelled: the rest equal what they are alone, bit by bit."""
    prompts = prompts_of([3, 8, 5, 12, 4, 9, 7, 6, 10, 11, 3, 5], 3)
    model = tiny("llada")
    ways = [WAYS[number % len(WAYS)] for number in range(len(prompts))]
    alone = [
        softdlm.generate(model, p, max_new_tokens=12, requests=[0], **w) for p, w in zip(prompts, ways, strict=True)
    ]

    async def work(bench: Bench) -> None:
        tickets = [bench.ticket(prompt, 12, **way) for prompt, way in zip(prompts, ways, strict=True)]
        for ticket in tickets:
            await bench.worker.submit([ticket])
        bench.worker.cancel(tickets[::3])
        for number, ticket in enumerate(tickets):
            await bench.over(ticket)
            if number % 3:
                made = ticket.answer.generation
                assert made is not None
                assert ticket.refusal is None
                assert (made.ids, made.forwards) == (alone[number].ids, alone[number].forwards)
                assert made.trace.passes == alone[number].trace.passes

    served(work, max_concurrency=3, queue=20)


def test_the_queue_is_bounded_and_opens_again() -> None:
    async def work(bench: Bench) -> None:
        tickets = [bench.ticket(new=64) for _ in range(5)]
        await bench.worker.submit(tickets[:3])
        full = await bench.refusal(tickets[3:5])
        assert (full.status, full.code) == (429, "queue_full")
        assert 1 <= int(full.headers["Retry-After"]) <= 60
        await bench.worker.submit(tickets[3:4])
        for ticket in tickets[:4]:
            await bench.over(ticket)
        await bench.worker.submit(tickets[4:])
        assert (await bench.over(tickets[4])).passes > 0
        too_many = await bench.refusal([bench.ticket() for _ in range(5)])
        assert too_many.status == 400

    worker = served(work, max_concurrency=2, queue=2)
    told = worker.metrics.text().decode()
    assert 'softdlm_request_rejected_total{code="queue_full",model_name="tiny"} 2.0' in told
    assert 'softdlm_num_requests_running{model_name="tiny"} 0.0' in told


def test_a_request_is_accepted_as_a_whole() -> None:
    """One answer that cannot be decoded refuses the whole request, and holds no place."""

    async def work(bench: Bench) -> None:
        long = bench.ticket(new=100_000)
        refusal = await bench.refusal([bench.ticket(), long])
        assert refusal.status == 400
        assert str(100_000 + 3) in str(refusal)
        assert bench.worker.held == 0

    served(work)


def test_a_cancelled_answer_frees_its_row_at_once() -> None:
    async def work(bench: Bench) -> None:
        slow, next_one = bench.ticket(new=400, eos="forbid", commit="topn(1)"), bench.ticket(new=4)
        await bench.worker.submit([slow])
        await bench.worker.submit([next_one])
        bench.worker.cancel([slow])
        assert (await bench.over(next_one)).tokens <= 4
        assert slow.news.over
        assert slow.answer.generation is not None
        assert slow.answer.generation.forwards < 400

    served(work, max_concurrency=1)


def test_each_decoding_has_rows_of_its_own() -> None:
    """A full cohort keeps its own requests waiting, and no others."""

    async def work(bench: Bench) -> None:
        slow: dict[str, Any] = {"new": 400, "eos": "forbid", "commit": "topn(1)"}
        first, second, other = bench.ticket(**slow), bench.ticket(**slow), bench.ticket(new=4, commit="topn(2)")
        for ticket in (first, second, other):
            await bench.worker.submit([ticket])
        await bench.over(other)
        assert not first.news.over
        assert second.began is None
        assert bench.worker.thread.engine is not None
        assert bench.worker.thread.engine.running == 1
        bench.worker.cancel([first, second])

    served(work, max_concurrency=1)


def test_a_deadline_ends_an_answer_with_what_it_has() -> None:
    async def work(bench: Bench) -> None:
        ticket, waiting = bench.ticket(new=400), bench.ticket(new=4)
        await bench.worker.submit([ticket])
        await bench.worker.submit([waiting])
        await bench.over(ticket)
        made = ticket.answer.generation
        assert made is not None
        assert made.finish_reason == "deadline"
        assert made.forwards < 400
        await bench.over(waiting)
        assert waiting.refusal is not None
        assert waiting.refusal.status == 504

    served(work, max_concurrency=1, deadline=0.2)


def test_draining_finishes_what_was_accepted() -> None:
    async def work(bench: Bench) -> None:
        tickets = [bench.ticket(new=32) for _ in range(4)]
        await bench.worker.submit(tickets)
        draining = asyncio.ensure_future(bench.worker.drain(30))
        await asyncio.sleep(0)
        assert bench.worker.state == "draining"
        assert (await bench.refusal([bench.ticket()])).status == 503
        assert await draining
        assert all(ticket.news.over and ticket.refusal is None for ticket in tickets)

    served(work, max_concurrency=2)


def test_stopping_tells_those_who_are_left() -> None:
    async def work(bench: Bench) -> None:
        tickets = [bench.ticket(new=400) for _ in range(3)]
        await bench.worker.submit(tickets)
        assert not await bench.worker.drain(0.05)
        await bench.worker.stop()
        for ticket in tickets:
            await bench.over(ticket)
            assert ticket.refusal is not None
            assert ticket.refusal.status == 503

    served(work, max_concurrency=1)


def test_a_model_that_cannot_be_loaded_is_a_state_with_its_reason() -> None:
    def load() -> Any:
        raise CheckpointError("weights are missing")

    async def run() -> None:
        worker = Worker(load, Limits(), Metrics("none"))
        assert worker.state == "loading"
        worker.start()
        await asyncio.wait_for(worker.ready.wait(), 10)
        assert worker.state == "failed"
        assert isinstance(worker.thread.failure, CheckpointError)
        with pytest.raises(Refusal) as refused:
            await worker.submit([])
        assert refused.value.status == 503
        assert "weights" not in str(refused.value)
        await worker.stop()

    asyncio.run(run())


def test_a_dead_device_refuses_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that raises costs its own request; if the device does not answer afterwards, the server says so."""

    def raises(prediction: Any, open: Any, context: Any) -> Any:
        raise ZeroDivisionError("a secret of the rule")

    def dead(device: torch.device) -> None:
        raise RuntimeError("the device is gone")

    async def work(bench: Bench) -> None:
        broken, sound = bench.ticket(commit=raises), bench.ticket(new=64)
        await bench.worker.submit([broken])
        await bench.over(broken)
        assert broken.refusal is not None
        assert broken.refusal.status == 500
        assert "secret" not in str(broken.refusal)
        idle = threading.Event()
        bench.worker.thread.post(idle.set)  # the turn of the error is over
        await asyncio.to_thread(idle.wait, 10)
        assert bench.worker.state == "ready"
        monkeypatch.setattr(engine_thread, "check_device", dead)
        await bench.worker.submit([sound])
        await bench.worker.submit([bench.ticket(commit=raises)])
        await bench.over(sound)
        assert sound.refusal is not None
        assert sound.refusal.status == 503
        assert bench.worker.state == "failed"
        monkeypatch.undo()

    model = tiny("llada")

    async def run() -> None:
        worker = Worker(lambda: model, Limits(), Metrics("tiny"))
        worker.start()
        await worker.ready.wait()
        try:
            await work(Bench(worker, model))
        finally:
            await worker.stop()
        assert worker.held == 0

    asyncio.run(run())


def test_traces_are_bounded_together() -> None:
    async def work(bench: Bench) -> None:
        first = bench.ticket(new=200, record_candidates=True)
        await bench.worker.submit([first])
        second = await bench.refusal([bench.ticket(new=200, record_candidates=True)])
        assert (second.status, second.code) == (429, "traces_full")
        alone = await bench.refusal([bench.ticket(new=400, record_candidates=True)])
        assert (alone.status, alone.code) == (400, "too_large")
        bench.worker.cancel([first])

    served(work, max_concurrency=1, trace_bytes=12 << 20)


def test_news_wait_for_a_slow_reader_in_one_piece() -> None:
    """Text is joined, of drafts the newest is kept, and what was taken does not come again."""

    async def run() -> None:
        bench = Bench(Worker(lambda: tiny("llada"), Limits(), Metrics("tiny")), tiny("llada"))
        ticket = bench.ticket()
        for news in (
            News("a", 1, 1),
            News("", 1, 2, "ab?", 0.5),
            News("b", 2, 3, "abc", 0.7),
            News(over=True, tokens=2),
        ):
            ticket.hear(news)
        taken = ticket.take()
        assert (taken.text, taken.draft, taken.over) == ("ab", "abc", True)
        again = ticket.take()
        assert (again.text, again.draft, again.over, again.tokens) == ("", None, True, 2)

    asyncio.run(run())


def test_drafts_show_every_open_position() -> None:
    """A draft holds what is committed, the best candidates elsewhere, and ends in the answer."""
    model = softdlm.load("builtin", device="cpu")
    told: list[News] = []

    async def run() -> Ticket:
        worker = Worker(lambda: model, Limits(), Metrics("builtin"))
        worker.start()
        await worker.ready.wait()
        bench = Bench(worker, model)
        ticket = bench.ticket(model.tokenizer("What is 2 + 3?")["input_ids"], 16, tokens_per_step=4)
        listen(ticket, lambda at, news: (told.append(news), worker.thread.tell(at, news))[0], False, True)
        await worker.submit([ticket])
        await bench.over(ticket)
        await worker.stop()
        return ticket

    ticket = asyncio.run(run())
    made = ticket.answer.generation
    assert made is not None
    drafts = [news for news in told if news.draft is not None]
    assert [news.progress for news in drafts] == [0.25, 0.5, 0.75, 1.0][: len(drafts)]
    assert drafts[-1].draft == made.text
    assert all("\u2591" not in (news.draft or "") for news in drafts)


def test_cohorts_take_turns_in_the_queue() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.push(name[0], name)
    assert len(queue) == 6
    queue.remove("a2")
    queue.remove("nobody")
    assert [queue.pop(lambda cohort: cohort != "a") for _ in range(3)] == ["b1", "c1", "b2"]
    queue.push("b", "b3")
    assert [queue.pop(lambda _: True) for _ in range(4)] == ["a1", "b3", "a3", None]
