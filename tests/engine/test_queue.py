"""Rows that come and go: a request gets the tokens that it gets alone, whatever else is in the slots."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import softdlm
from softdlm import EntropyBound, Generation, Mask, PromptError, Slerp, Steps, Threshold, TopN
from softdlm.engine.captured import Slots
from softdlm.engine.queue import Engine
from softdlm.trace import RowRecord
from tests.conftest import DATA, plan_of, tiny
from tests.test_batches import ROUNDING, prompts_of, smallest_gap, story

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


def engine_for(model: Any, slots: int, **options: Any) -> Engine:
    return Engine(Slots(plan_of(model, **options), slots, 48))


def alone(model: Any, prompt: list[int], length: int, **options: Any) -> RowRecord:
    engine = engine_for(model, 1, **options)
    number = engine.submit(prompt, length)
    while True:
        done = engine.step()
        if done:
            return done[number]


@settings(max_examples=12, phases=(Phase.explicit, Phase.generate))
@given(st.sampled_from(METHODS), st.lists(st.integers(0, 9), min_size=4, max_size=6), st.integers(2, 3))
def test_requests_may_enter_at_any_pass(method: dict[str, Any], arrivals: list[int], slots: int) -> None:
    model = tiny("llada", torch.float64)
    prompts = prompts_of([4, 9, 15, 6, 11, 9][: len(arrivals)], 1)
    lengths = [len(prompt) + 6 + 3 * number for number, prompt in enumerate(prompts)]
    options: Any = {**method, "early_finish": True}
    engine, done, asked = engine_for(model, slots, **options), {}, {}
    for moment in range(max(arrivals) + 1):
        for index, arrival in enumerate(arrivals):
            if arrival == moment:
                asked[engine.submit(prompts[index], lengths[index])] = index
        done |= engine.step()
    while engine.busy:
        done |= engine.step()
    assert len(asked) == len(done) == len(arrivals)
    for number, index in asked.items():
        one, other = done[number], alone(model, prompts[index], lengths[index], **options)
        assert one[:2] == other[:2]
        assert one.forwards == other.forwards


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_a_request_waits_no_longer_than_a_block(cache: Any) -> None:
    """Also among rows that never compute everything again, and that are each at another place of their block."""
    model = tiny("llada", torch.float64)

    def in_turn(prediction: Any, open: Any, context: Any) -> torch.Tensor:
        return open & (open.cumsum(1) <= 1 + torch.arange(3)[:, None])

    engine = engine_for(model, 3, commit=in_turn, block_length=4, cache=cache, renew=99)
    first, second = (engine.submit([5] * n, n + 30) for n in (6, 9))
    for _ in range(6):
        engine.step()
    third = engine.submit([7] * 8, 14)
    for _ in range(4):
        engine.step()
    told = [engine.read(number) for number in (first, second, third)]
    assert all(each is not None and each.forwards for each in told)


def test_a_request_can_be_read_and_cancelled() -> None:
    model = tiny("llada", torch.float64)
    prompts = prompts_of([4, 9, 15], 1)
    engine = engine_for(model, 2, commit=TopN(1))
    first, second, third = (engine.submit(prompt, len(prompt) + 8) for prompt in prompts)
    for _ in range(2):
        engine.step()
    told = engine.read(first)
    assert told is not None
    assert told.forwards == 2
    assert sum(number > 0 for number in told.committed_in) == 2
    assert [len(made.positions) for made in told.passes] == [1, 1]
    assert engine.read(third) is None
    engine.cancel(second)
    done = {}
    engine.step()
    assert engine.read(third) is not None
    while engine.busy:
        done |= engine.step()
    assert set(done) == {first, third}
    assert done[third][:2] == alone(model, prompts[2], 23, commit=TopN(1))[:2]
    assert engine.step() == {}
    waiting = engine.submit(prompts[0], 12)
    engine.cancel(waiting)
    assert not engine.busy


def test_a_request_must_fit() -> None:
    engine = engine_for(tiny("dream"), 1)
    with pytest.raises(PromptError, match="prompt and answer take 49 tokens, these slots have 48"):
        engine.submit([5], 49)
    with pytest.raises(PromptError, match="empty prompt"):
        engine.submit([], 10)
    assert not engine.busy


COMPILED = """
import sys, torch
from dataclasses import replace
from functools import partial
from torch._dynamo.testing import CompileCounter
import softdlm
from softdlm.models.compiled import compile_fixed
from softdlm.engine.captured import Slots
from softdlm.engine.plan import Plan
model = softdlm.load(sys.argv[1], dtype="float64", device="cpu", eos_ids=[181, 190])
canvas = softdlm.Canvas.pack([[5] * 8, [7] * 9], [90, 100], model.mask_id, 0)
options = {"commit": softdlm.Threshold(0.4), "feedback": softdlm.Slerp(), "block_length": 4, "cache": "dual"}
layers, around = CompileCounter(), CompileCounter()
decoding = softdlm.Decoding.of(**options, early_finish=False).settled(model.own)
plan = replace(Plan.of(model, decoding), model=model.compiled(backend=layers))
slots = Slots(plan, 2, 100, compile=partial(compile_fixed, backend=around))
slots.admit([0, 1], canvas)
while slots.running:
    slots.step()
*_, last = softdlm.denoise(model, canvas, **options)
assert torch.equal(slots.state.canvas.ids, last.canvas.ids)
print(len(model.network.model.layers), layers.frame_count, around.frame_count, len(slots.passes.met))
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
