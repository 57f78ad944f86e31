"""Rows that come and go: a request gets the tokens that it gets alone, whatever else is in the slots."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import softdlm
from softdlm import EntropyBound, Euclidean, Generation, Mask, PromptError, Slerp, Steps, Threshold, TopN
from softdlm.decoding import settle
from softdlm.engine.answer import Answer
from softdlm.engine.census import rounded
from softdlm.engine.memory import need
from softdlm.engine.plan import Plan
from softdlm.engine.queue import Engine
from softdlm.engine.slots import Slots
from softdlm.engine.state import Buffers
from softdlm.errors import CapacityError
from tests.conftest import DATA, plan_of, tiny
from tests.test_batches import ROUNDING, prompts_of, smallest_gap, story
from tests.tokenizers import checkpoint


@dataclass(frozen=True)
class LastTime:
    """Soft tokens from the position's confidence in this pass and the one before: a rule with a memory."""

    k: int = 2

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> dict[str, torch.Tensor]:
        return {"sure": torch.zeros(rows, length, device=device), "passes": torch.zeros(rows, 1, device=device)}

    def update(self, state: Any, prediction: Any, context: Any) -> dict[str, torch.Tensor]:
        return {"sure": state["sure"] / 2 + prediction.confidence, "passes": state["passes"] + 1}

    def __call__(self, prediction: Any, embeddings: Any, context: Any) -> torch.Tensor:
        weight = (context.state["sure"] / (1 + context.state["passes"])).clamp(0, 1)[:, None]
        soft = embeddings.table[prediction.topk_ids[:, 0]]
        return (embeddings.mask + weight * (soft - embeddings.mask)).to(embeddings.table.dtype)


METHODS: list[dict[str, Any]] = [
    {"commit": TopN(2), "feedback": Slerp()},
    {"commit": Steps(5, schedule="eps"), "feedback": Mask()},
    {"commit": Threshold(0.4), "feedback": Slerp(), "block_length": 4},
    {"commit": Threshold(0.4), "feedback": Slerp(), "block_length": 4, "cache": "dual"},
    {"commit": EntropyBound(0.4), "feedback": Slerp(), "block_length": 5, "cache": "prefix", "refresh": 3},
    {"commit": Threshold(0.4), "feedback": Slerp(), "block_length": 4, "cache": "dual", "renew": 9},
    {"commit": EntropyBound(0.4), "feedback": Slerp(), "block_length": 3, "cache": "prefix", "renew": 2},
]
LENGTHS = [3, 8, 8, 13, 21, 70, 4]


def sure(result: Generation) -> list[float]:
    return [value for made in result.trace.passes for value in made.confidence]


@pytest.mark.parametrize("family", ["llada", "dream"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_queue_gives_what_each_prompt_gives_alone(family: str, method: dict[str, Any]) -> None:
    """More prompts than slots, of several lengths: rows enter while others are under way."""
    model, early = tiny(family, torch.float64), family == "llada"
    prompts = prompts_of(LENGTHS, 3)
    options: dict[str, Any] = {**method, "max_new_tokens": 14, "early_finish": early}
    alone = softdlm.generate(model, prompts, batch_size=1, engine="dynamic", **options)
    queued = softdlm.generate(model, prompts, batch_size=3, engine="static", **options)
    assert [story(result) for result in queued] == [story(result) for result in alone]
    for one, other in zip(queued, alone, strict=True):
        assert sure(one) == pytest.approx(sure(other), abs=2e-6)
        assert one.trace.method == other.trace.method
        assert one.finish_reason == other.finish_reason


@pytest.mark.parametrize("method", [METHODS[0], METHODS[3]], ids=str)
def test_watched_decodes_are_the_same(method: dict[str, Any]) -> None:
    """Stop strings, streamed text, steps and candidates read every pass."""
    model = softdlm.load("builtin", dtype="float64", device="cpu")
    prompts = ["What is 2 + 3?", "Tom has 5 apples and eats 2. How many are left?", "hello"]
    found = {}
    for engine in ("dynamic", "static"):
        said: list[tuple[int, str]] = []
        seen: list[int] = []
        answers = softdlm.generate(
            model,
            prompts,
            max_new_tokens=12,
            engine=engine,
            stop=[" is"],
            record_candidates=True,
            on_text=lambda *piece, said=said: said.append(piece),
            on_step=lambda step, names, seen=seen: seen.extend(names),
            **method,
        )
        texts = ["".join(text for number, text in said if number == request) for request in range(3)]
        found[engine] = [(story(each), each.text, each.finish_reason) for each in answers], texts
        assert set(seen) == {0, 1, 2}
        assert any(made.candidates for made in answers[0].trace.passes)
    assert found["static"] == found["dynamic"]


@pytest.mark.parametrize("commit", [TopN(2), EntropyBound(0.4)], ids=str)
def test_in_float32_engines_part_only_within_rounding(commit: Any) -> None:
    model = tiny("llada")
    prompts = prompts_of([3, 8, 21], 5)
    options: Any = {"max_new_tokens": 24, "commit": commit, "early_finish": False}
    static = softdlm.generate(model, prompts, engine="static", **options)
    dynamic = softdlm.generate(model, prompts, engine="dynamic", **options)
    for one, other in zip(static, dynamic, strict=True):
        for ours, theirs in zip(one.trace.passes, other.trace.passes, strict=False):
            if (ours.positions, ours.tokens) != (theirs.positions, theirs.tokens):
                assert smallest_gap(ours.confidence, theirs.confidence) < ROUNDING
                break


def request(model: Any, prompt: list[int], number: int = 0, new: int = 8, **options: Any) -> Answer:
    """A request whose fields are those of `Answer` or of a Decoding."""
    own = {name: options.pop(name) for name in ("on_text", "record_candidates", "seconds") if name in options}
    decoding = settle(model, None, {"max_new_tokens": new, **options})
    return Answer(model, number, prompt, decoding, **own)


def told(answer: Answer) -> tuple[Any, ...]:
    made = answer.generation
    assert made is not None, answer.error
    return made.ids, made.canvas_ids, made.forwards, made.finish_reason, story(made)[2]


def alone(model: Any, engine: Any, *given: Any, **options: Any) -> tuple[Any, ...]:
    answer = request(model, *given, **options)
    with Engine(model, engine=engine) as queue:
        queue.submit(answer)
        while queue.busy:
            queue.step()
    return told(answer)


class Ticks:
    """A clock that advances by one with each pass."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def breaks_at_three(prediction: Any, open: Any, context: Any) -> Any:
    if int(context.passes.max()) >= 3:
        raise ZeroDivisionError("a rule's own mistake")
    return open & (open.cumsum(1) == 1)


MIX: list[dict[str, Any]] = [
    *METHODS,
    {"commit": TopN(2), "feedback": Slerp(), "temperature": 0.8, "top_p": 0.9},
    {"commit": TopN(1), "feedback": Euclidean(k=2), "eos": "last"},
    {"commit": Threshold(0.4), "feedback": LastTime()},
]
"""Decodings of many cohorts."""


@dataclass(frozen=True)
class Arrival:
    """A request, when it is submitted, and what else happens to it."""

    at: int
    method: int
    length: int
    new: int
    seed: int
    cancelled: int | None
    seconds: int | None


arrivals = st.builds(
    Arrival,
    st.integers(0, 12),
    st.integers(0, len(MIX) - 1),
    st.integers(2, 20),
    st.integers(3, 16),
    st.integers(0, 3),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 20),
)


@settings(max_examples=25, phases=(Phase.explicit, Phase.generate))
@given(
    st.lists(arrivals, min_size=3, max_size=7),
    st.sampled_from([("dynamic", torch.float64), ("dynamic", torch.float32), ("static", torch.float64)]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([None, 60_000]),
    st.booleans(),
)
def test_every_request_gets_what_it_gets_alone(
    asked: list[Arrival], how: tuple[Any, torch.dtype], rows: int, cohorts: int, limit: int | None, few: bool
) -> None:
    """The queue law: any interleaving of submissions, cancellations, deadlines and Decodings.

    Exact in float64; with exact shapes on a CPU to the bit, so in float32 too. A request that ends early has the first
    passes of those that it has alone.
    """
    engine, dtype = how
    model, clock = tiny("llada", dtype), Ticks()
    prompts = prompts_of([each.length for each in asked], 2)
    answers = [
        request(model, prompt, number, each.new, seed=each.seed, seconds=each.seconds, **MIX[each.method])
        for number, (prompt, each) in enumerate(zip(prompts, asked, strict=True))
    ]
    limit = None if limit is None else max(limit, max(need_of(model, answer) for answer in answers))
    over: list[Answer] = []
    bounds: Any = {"batch_size": rows, "most_cohorts": cohorts, "memory_limit": limit, "few_shapes": few}
    with Engine(model, engine=engine, clock=clock, **bounds) as queue:
        while queue.busy or clock.now <= 22:
            for answer, each in zip(answers, asked, strict=True):
                if each.at == clock.now:
                    queue.submit(answer)
                if each.cancelled is not None and each.at + each.cancelled == clock.now:
                    queue.cancel(answer)
            over += queue.step()
            clock.now += 1
    assert len(over) + sum(told(each)[3] == "cancelled" for each in answers) == len(answers)
    for number, (answer, each) in enumerate(zip(answers, asked, strict=True)):
        ids, canvas, forwards, reason, passes = told(answer)
        expected = alone(model, engine, prompts[number], number, each.new, seed=each.seed, **MIX[each.method])
        if reason in ("cancelled", "deadline"):
            assert passes == expected[4][:forwards]
            assert forwards <= expected[2]
        else:
            assert (ids, canvas, forwards, reason, passes) == expected


def need_of(model: Any, answer: Answer) -> int:
    return need(Plan.of(model, answer.decoding), 1, rounded(answer.length)).total


@settings(max_examples=8, phases=(Phase.explicit, Phase.generate))
@given(st.lists(st.integers(0, len(MIX) - 1), min_size=3, max_size=6), st.integers(1, 3))
def test_on_a_cpu_a_request_has_the_bits_it_has_alone(methods: list[int], rows: int) -> None:
    """In float32: confidences are equal to the last digit that a trace keeps, and so are all tokens."""
    model = tiny("dream")
    prompts = prompts_of([4 + 3 * number for number in range(len(methods))], 4)

    def made(prompts: Any, decodings: Any, **keywords: Any) -> Any:
        return softdlm.generate(model, prompts, decoding=decodings, **keywords)

    decodings = [settle(model, None, {**MIX[each], "max_new_tokens": 10, "seed": 2}) for each in methods]
    together = made(prompts, decodings, batch_size=rows)
    for number, (prompt, decoding) in enumerate(zip(prompts, decodings, strict=True)):
        assert together[number] == made([prompt], [decoding], requests=[number])[0]


def test_cohorts_take_turns() -> None:
    """Four Decodings side by side: after any number of passes no two requests are more than one pass apart."""
    model = tiny("llada", torch.float64)
    queue = Engine(model, engine="dynamic", batch_size=2)
    for number in range(8):
        how: Any = {"commit": TopN(1), "feedback": Slerp(lam=0.1 * (number % 4)), "early_finish": False}
        queue.submit(request(model, [5 + number] * 4, number, 12, **how))
    passes: list[int] = []
    queue.step()
    for _ in range(30):
        queue.step()
        passes = [row.passes for cohort in queue.cohorts for row in (cohort.slots.rows if cohort.slots else ())]
        assert max(passes) - min(passes) <= 1
    assert len(passes) == 8
    queue.close()


def test_the_oldest_cohort_is_not_overtaken_for_ever() -> None:
    """One cohort at a time, and the first has a new request with every pass: the second still gets its turn."""
    model = tiny("llada", torch.float64)
    queue = Engine(model, engine="dynamic", batch_size=2, most_cohorts=1)
    late = request(model, [9] * 5, 99, 6, commit=TopN(3))
    for number in range(40):
        queue.submit(request(model, [5] * 4, number, 8, commit=TopN(2)))
        if number == 3:
            queue.submit(late)
        queue.step()
    assert late.generation is not None
    queue.close()


def test_a_broken_rule_ends_its_own_requests_only() -> None:
    model = tiny("llada", torch.float64)
    for engine in ("dynamic", "static"):
        queue = Engine(model, engine=engine)
        good = [request(model, [5 + n] * 6, n, 10, commit=TopN(1), feedback=Slerp()) for n in range(2)]
        bad = [request(model, [7 + n] * 6, 5 + n, 10, commit=breaks_at_three, early_finish=False) for n in range(2)]
        over = []
        for answer in (*good, *bad):
            queue.submit(answer)
        while queue.busy:
            over += queue.step()
        assert [type(each.error) for each in bad] == [ZeroDivisionError] * 2
        assert {id(each) for each in over} == {id(each) for each in (*good, *bad)}
        for number, answer in enumerate(good):
            expected = alone(model, engine, [5 + number] * 6, number, 10, commit=TopN(1), feedback=Slerp())
            assert told(answer) == expected
        queue.submit(again := request(model, [5] * 6, 0, 10, commit=TopN(1), feedback=Slerp()))
        while queue.busy:
            queue.step()
        assert told(again) == told(good[0])


@pytest.mark.parametrize("engine", ["dynamic", "static"])
def test_a_row_with_nan_ends_and_its_neighbours_go_on(engine: Any) -> None:
    """Infinity in one token's embedding gives NaN where a prompt holds it, and nowhere else."""
    model = softdlm.load(DATA / "llada", dtype="float64", device="cpu")
    model.embedding.data[77] = float("inf")
    queue = Engine(model, engine=engine)
    good, bad = (request(model, prompt, 0, 6, commit=TopN(2)) for prompt in ([5, 6, 7], [5, 77, 7]))
    expected = alone(model, engine, [5, 6, 7], 0, 6, commit=TopN(2))
    for answer in (bad, good):
        queue.submit(answer)
    while queue.busy:
        queue.step()
    assert isinstance(bad.error, softdlm.SoftDLMError)
    assert "the network gave NaN or infinity in pass 1" in str(bad.error)
    assert told(good) == expected
    with pytest.raises(softdlm.SoftDLMError, match="NaN or infinity"):
        softdlm.generate(model, [5, 77, 7], max_new_tokens=4, engine=engine)
    canvas = softdlm.Canvas.pack([[5, 77, 7]], [9], model.mask_id, 0)
    with pytest.raises(softdlm.SoftDLMError, match="NaN or infinity"):
        list(softdlm.denoise(model, canvas, engine=engine))


def test_out_of_memory_ends_the_requests_of_that_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llada", torch.float64)
    queue = Engine(model, engine="dynamic")
    one, two = (request(model, [5, 6], n, 6, commit=TopN(1 + n)) for n in range(2))
    run = Slots.run

    def out(slots: Slots, shape: Any) -> Any:
        if slots.plan.commit == TopN(2):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")
        return run(slots, shape)

    monkeypatch.setattr(Slots, "run", out)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    for answer in (one, two):
        queue.submit(answer)
    while queue.busy:
        queue.step()
    assert one.generation is not None
    assert str(two.error) == "the device ran out of memory in a pass: CUDA out of memory. Tried to allocate 20.00 GiB."


def test_a_listener_that_fails_ends_its_own_request(speaker: Any) -> None:
    def deaf(request: int, piece: str) -> None:
        raise BrokenPipeError("the client went away")

    queue, heard = Engine(speaker), []
    bad = request(speaker, [5, 6, 7], 0, 12, on_text=deaf, eos="forbid")
    good = request(speaker, [5, 6, 7], 1, 12, on_text=lambda number, piece: heard.append(piece), eos="forbid")
    for answer in (bad, good):
        queue.submit(answer)
    while queue.busy:
        queue.step()
    assert isinstance(bad.error, BrokenPipeError)
    assert good.generation is not None
    assert "".join(heard) == good.generation.text


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return softdlm.load(checkpoint(tmp_path_factory.mktemp("llada"), "llada"))


@pytest.mark.parametrize("engine", ["dynamic", "static"])
def test_streams_stops_and_candidates_are_each_requests_own(speaker: Any, engine: Any) -> None:
    """In one cohort, in one pass: one streams, one stops at a string, one records, one does nothing of that."""
    whole = softdlm.generate(speaker, [5, 6, 7], max_new_tokens=16, early_finish=False, engine=engine)
    stop = whole.text[2:4]
    heard: list[str] = []
    common: Any = {"early_finish": False}
    answers = [
        request(speaker, [5, 6, 7], 0, 16, on_text=lambda number, piece: heard.append(piece), **common),
        request(speaker, [5, 6, 7], 0, 16, stop=(stop,), **common),
        request(speaker, [5, 6, 7], 0, 16, record_candidates=True, **common),
        request(speaker, [5, 6, 7], 0, 16, **common),
    ]
    with Engine(speaker, engine=engine) as queue:
        for answer in answers:
            queue.submit(answer)
        assert len(queue.cohorts) == 1
        while queue.busy:
            queue.step()
    streamed, stopped, recorded, plain = (answer.generation for answer in answers)
    assert streamed
    assert stopped
    assert recorded
    assert plain
    assert story(plain) == story(streamed) == story(whole)
    assert "".join(heard) == whole.text == plain.text
    assert (stopped.text, stopped.finish_reason) == (whole.text[: whole.text.index(stop)], "stop")
    assert stopped.forwards < whole.forwards
    assert [(each.positions, each.tokens) for each in recorded.trace.passes] == [
        (each.positions, each.tokens) for each in whole.trace.passes
    ]
    assert [len(each.open) for each in recorded.trace.passes] == list(range(15, -1, -1))
    assert not any(each.open for each in whole.trace.passes)


def test_a_request_can_be_cancelled_or_late() -> None:
    model, clock = tiny("llada", torch.float64), Ticks()
    queue = Engine(model, engine="dynamic", batch_size=2, clock=clock)
    first, second, third = (request(model, [5 + n] * 4, n, 8, commit=TopN(1), early_finish=False) for n in range(3))
    timed = request(model, [8] * 4, 3, 8, commit=TopN(1), early_finish=False, seconds=5)
    for answer in (first, second, third, timed):
        queue.submit(answer)
    for _ in range(2):
        queue.step()
        clock.now += 1
    queue.cancel(second)
    queue.cancel(second)
    assert second.generation is not None
    assert (second.generation.finish_reason, second.generation.forwards) == ("cancelled", 2)
    over = []
    while queue.busy:
        over += queue.step()
        clock.now += 1
    assert {each.request for each in over} == {0, 2, 3}
    assert told(timed)[2:4] == (0, "deadline")
    assert told(third)[3] in ("length", "eos")
    assert queue.step() == []
    queue.submit(waiting := request(model, [5], 9, 4))
    queue.cancel(waiting)
    assert not queue.busy
    assert told(waiting)[2:4] == (0, "cancelled")
    assert waiting.generation is not None
    assert waiting.generation.tokens_per_forward == 0


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_a_request_waits_no_longer_than_a_block(cache: Any) -> None:
    """Also among rows that never compute everything again, and that are each at another place of their block."""
    model = tiny("llada", torch.float64)

    def in_turn(prediction: Any, open: Any, context: Any) -> torch.Tensor:
        return open & (open.cumsum(1) <= 1 + torch.arange(len(open))[:, None])

    options: Any = {"commit": in_turn, "block_length": 4, "cache": cache, "renew": 99, "early_finish": False}
    queue = Engine(model, engine="static", batch_size=3)
    for number, length in enumerate((6, 9)):
        queue.submit(request(model, [5] * length, number, 30, **options))
    for _ in range(6):
        queue.step()
    queue.submit(request(model, [7] * 8, 2, 6, **options))
    for _ in range(4):
        queue.step()
    (cohort,) = queue.cohorts
    assert cohort.slots is not None
    assert cohort.slots.used == 3
    assert all(row.passes for row in cohort.slots.rows)


def test_a_request_must_fit() -> None:
    model = tiny("dream")
    queue = Engine(model, memory_limit=400_000)
    with pytest.raises(PromptError, match="take 40000 tokens, the model's context is"):
        queue.submit(request(model, [5], 0, 39_999))
    with pytest.raises(PromptError, match="empty prompt"):
        queue.submit(request(model, [], 0, 10))
    words = r"the request needs [\d.]+ MiB \(canvas [\d.]+ MiB, keys and values [\d.]+ MiB, a pass [\d.]+ MiB\)"
    with pytest.raises(CapacityError, match=rf"{words}, the limit is 0.4 MiB: shorten the prompt or max_new_tokens"):
        queue.submit(request(model, [5] * 50, 0, 60, block_length=8, cache="dual"))
    with pytest.raises(CapacityError, match=r"recording candidates may need [\d.]+ GiB of the host's memory"):
        Engine(model).submit(request(model, [5], 0, 1500, record_candidates=True, candidates=3000))
    assert not queue.busy


def test_what_does_not_fit_beside_others_waits() -> None:
    """Memory for one row of the larger: the requests take turns instead of failing, and none of them starves."""
    model = tiny("llada", torch.float64)
    small, large = (request(model, [5 + n] * 4, n, 8 + 24 * n, commit=TopN(2 + n)) for n in range(2))
    more = [request(model, [9] * 4, 2 + n, 8, commit=TopN(2)) for n in range(3)]
    limit = need(Plan.of(model, large.decoding), 1, large.length).total
    queue = Engine(model, engine="dynamic", memory_limit=limit)
    for answer in (small, large, *more):
        queue.submit(answer)
    live = []
    while queue.busy:
        queue.step()
        live.append(len(queue.turns))
        held = sum(cohort.slots.bytes for cohort in queue.cohorts if cohort.slots)
        assert held <= limit
    assert max(live) == 1
    assert all(answer.generation is not None for answer in (small, large, *more))


@pytest.mark.parametrize("options", [{}, {"cache": "dual", "block_length": 4}], ids=str)
@pytest.mark.parametrize("feedback", [Slerp(), LastTime()], ids=str)
def test_what_a_request_needs_is_what_its_buffers_take(options: Any, feedback: Any) -> None:
    """But for a few numbers per row."""
    plan = plan_of(tiny("dream"), feedback=feedback, **options)
    for rows, length in ((1, 20), (3, 64)):
        asked, held = need(plan, rows, length), Buffers.empty(plan, rows, length).bytes
        assert 0 <= held - asked.canvas - asked.keys_values <= 256 * rows
    assert need(plan, 1, 64).a_pass > 64 * 64 * 4


def test_kept_slots_make_room_for_requests() -> None:
    model = tiny("llada", torch.float64)
    model.slot_cache.clear()
    softdlm.generate(model, [[5, 6, 7]], max_new_tokens=40, engine="static")
    ((_, kept),) = model.slot_cache
    answer = request(model, [5] * 4, 0, 60)
    limit = need_of(model, answer) + kept.bytes // 2
    queue = Engine(model, engine="static", memory_limit=limit)
    queue.submit(answer)
    queue.step()
    assert kept not in [slots for _, slots in model.slot_cache]
    queue.close()


def test_slots_grow_with_the_queue() -> None:
    """From one row on, as a server's do; without new slots for each request."""
    model = tiny("llada", torch.float64)
    queue = Engine(model, engine="static", batch_size=4)
    sizes = []
    for number in range(6):
        queue.submit(request(model, [5 + number] * 4, number, 20, commit=TopN(1), early_finish=False))
        queue.step()
        (cohort,) = queue.cohorts
        assert cohort.slots is not None
        sizes.append(cohort.slots.batch)
    assert sizes == [1, 2, 4, 4, 4, 4]
    queue.close()


COMPILED = """
import sys, torch
from dataclasses import replace
from functools import partial
from torch._dynamo.testing import CompileCounter
import softdlm
from softdlm.models.compiled import compile_fixed
from softdlm.engine.slots import Slots
from softdlm.engine.plan import Plan
model = softdlm.load(sys.argv[1], dtype="float64", device="cpu", eos_ids=[181, 190])
canvas = softdlm.Canvas.pack([[5] * 8, [7] * 9], [90, 100], model.mask_id, 0)
options = {"commit": softdlm.Threshold(0.4), "feedback": softdlm.Slerp(), "block_length": 4, "cache": "dual"}
layers, around = CompileCounter(), CompileCounter()
decoding = softdlm.Decoding.of(**options, early_finish=False).settled(model.own)
plan = replace(Plan.of(model, decoding), model=model.compiled(backend=layers))
slots = Slots(plan, 2, 100, compile=partial(compile_fixed, backend=around))
slots.admit(canvas)
while slots.running:
    slots.step()
*_, last = softdlm.denoise(model, canvas, **options)
assert torch.equal(slots.state.canvas.ids, last.canvas.ids)
print(len(model.network.model.layers), layers.frame_count, around.frame_count, len(slots.graphs.met))
"""


def test_layers_are_compiled_once_for_all_of_them() -> None:
    """And what surrounds them once per width, however many rooms there are.

    In a process of its own: the type checks of this one are not for compiling.
    """
    run = [sys.executable, "-c", COMPILED, str(DATA / "llada")]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    layers, of_layers, around, shapes = map(int, done.stdout.split())
    assert (layers, of_layers, around) == (3, 2, 3)
    assert shapes > 3


@pytest.mark.parametrize("engine", ["dynamic", "static"])
def test_a_trace_is_what_each_pass_committed(engine: Any) -> None:
    """By the Steps, which are read pass by pass, while a trace is read once at the end."""
    steps: list[tuple[Any, Any]] = []
    how: Any = {"commit": Threshold(0.4), "feedback": Slerp(), "block_length": 4, "early_finish": False}
    watch: Any = {"engine": engine, "record_candidates": True, "on_step": lambda *seen: steps.append(seen)}
    model, prompts = tiny("llada", torch.float64), prompts_of([3, 7], 1)
    for number, made in enumerate(softdlm.generate(model, prompts, max_new_tokens=12, **how, **watch)):
        own = [(step, names.index(number)) for step, names in steps if number in names]
        for noted, (step, row) in zip(made.trace.passes, own, strict=True):
            committed, left = step.committed[row], step.canvas.open[row]
            assert noted.positions == committed.nonzero().flatten().tolist()
            assert noted.tokens == step.canvas.ids[row][committed].tolist()
            assert noted.confidence == pytest.approx(step.prediction.confidence[row][committed].tolist(), abs=1e-6)
            assert noted.open == left.nonzero().flatten().tolist()


def test_a_request_can_end_between_two_readings() -> None:
    """Where the host foresees what passes do, it reads the device only when somebody asks."""
    model = tiny("llada", torch.float64)
    how: Any = {"commit": TopN(1), "early_finish": False}
    expected = alone(model, "static", [5] * 4, 0, 30, **how)
    queue = Engine(model, engine="static", batch_size=2)
    first, second = (request(model, [5] * 4, n, 30, **how) for n in range(2))
    queue.submit(first)
    queue.submit(second)
    for _ in range(5):
        queue.step()
    (cohort,) = queue.cohorts
    assert cohort.slots is not None
    assert cohort.slots.unread > 1
    queue.cancel(first)
    assert told(first)[2:] == (5, "cancelled", expected[4][:5])
    while queue.busy:
        queue.step()
    assert second.generation is not None


@dataclass(frozen=True)
class Alone(LastTime):
    """Refuses a memory for several rows."""

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> dict[str, torch.Tensor]:
        if rows > 1:
            raise ValueError("one row at most")
        return super().init(rows, length, device, vocabulary)


def test_a_memory_that_cannot_be_made_ends_the_requests_that_need_it() -> None:
    """Also when their cohort is being decoded already and its slots are to grow."""
    model = tiny("llada", torch.float64)
    queue = Engine(model, engine="dynamic", batch_size=2)
    good = request(model, [5] * 4, 0, 8, commit=TopN(1), early_finish=False)
    first, second = (request(model, [6] * 4, n, 8, feedback=Alone(), early_finish=False) for n in (1, 2))
    queue.submit(good)
    queue.submit(first)
    for _ in range(3):
        queue.step()
    queue.submit(second)
    over = queue.step()
    assert over == [first, second]
    assert {type(answer.error) for answer in over} == {ValueError}
    while queue.busy:
        queue.step()
    assert good.generation is not None
