"""Answers on a canvas with gaps, and what else could have been committed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import softdlm
from softdlm import Canvas, Slerp, TopN, Trace
from softdlm.decoding import settle
from softdlm.engine.answer import Answer
from softdlm.engine.queue import Engine
from softdlm.trace import Candidates
from tests.conftest import tiny


def decoded(*answers: Answer, engine: Any = "dynamic") -> None:
    with Engine(answers[0].model, engine=engine) as queue:
        for answer in answers:
            queue.submit(answer)
        while queue.busy:
            queue.step()
    for answer in answers:
        assert answer.error is None, answer.error


def on_canvas(model: Any, ids: list[int], **how: Any) -> Answer:
    """A canvas with gaps, as /v1/denoise makes it an answer."""
    own = {name: how.pop(name) for name in ("alternatives", "on_pass") if name in how}
    first = ids.index(model.mask_id)
    fields = {"max_new_tokens": len(ids) - first, "early_finish": False, **how}
    return Answer(model, 0, ids[:first], settle(model, None, fields), given=ids, **own)


@pytest.mark.parametrize("engine", ["dynamic", "static"])
@given(st.lists(st.none() | st.integers(5, 120), min_size=4, max_size=14), st.integers(1, 3), st.integers(0, 9))
def test_gaps_are_filled_as_denoise_fills_them(engine: str, gaps: list[int | None], rate: int, other: int) -> None:
    """Token for token and pass for pass, also beside an ordinary answer; what was given stays."""
    model = tiny("llada", torch.float64)
    ids = [9, *(model.mask_id if each is None else each for each in [*gaps, None])]
    how: dict[str, Any] = {"commit": TopN(rate), "feedback": Slerp()}
    *_, last = steps = list(softdlm.denoise(model, Canvas.of(torch.tensor([ids]), model.mask_id), **how))
    answer = on_canvas(model, ids, **how)
    plain = Answer(
        model, 0, [7, 8, other + 5], settle(model, None, {"max_new_tokens": 6, "early_finish": False, **how})
    )
    decoded(plain, answer, engine=engine)
    made = answer.generation
    assert made is not None
    assert [*answer.prompt_ids, *made.canvas_ids] == last.canvas.ids[0].tolist()
    assert made.forwards == len(steps)
    assert answer.given_tokens == sum(each is not None for each in gaps) + 1
    frames = list(made.trace.frames())
    assert frames[0] == ids
    assert frames[-1] == last.canvas.ids[0].tolist()


def test_a_trace_with_gaps_is_saved_and_read(tmp_path: Path) -> None:
    model = tiny("llada")
    mask = model.mask_id
    answer = on_canvas(model, [5, mask, 6, mask, mask, 7])
    decoded(answer)
    assert answer.generation is not None
    trace = answer.generation.trace
    assert trace.fixed == [(2, 6), (5, 7)]
    trace.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json") == trace


@pytest.mark.parametrize("engine", ["dynamic", "static"])
def test_alternatives_are_those_of_the_pass_that_committed(engine: str) -> None:
    """The committed token leads them, with the probability on record, and they are the Step's own candidates."""
    model = tiny("llada", torch.float64)
    mask = model.mask_id
    ids = [5, 6, mask, mask, mask, 9, mask]
    how: dict[str, Any] = {"commit": TopN(2), "feedback": Slerp(), "candidates": 4}
    heard: list[tuple[int, Candidates]] = []
    answer = on_canvas(model, ids, alternatives=True, on_pass=lambda at, left: heard.append((at.passes, left)), **how)
    decoded(answer, engine=engine)
    assert answer.history is not None
    steps = list(softdlm.denoise(model, Canvas.of(torch.tensor([ids]), mask), **how))
    assert sorted(answer.at_commit) == [2, 3, 4, 6]
    for step in steps:
        for place in step.committed[0].nonzero().flatten().tolist():
            told = answer.at_commit[place]
            assert [token for token, _ in told] == step.prediction.topk_ids[0, place].tolist()
            assert told[0][0] == answer.history.ids[place]
            assert told[0][1] == pytest.approx(answer.history.confidence[place], abs=2e-6)
            assert math.log(answer.history.confidence[place]) == pytest.approx(
                float(step.prediction.log_confidence[0, place])
            )
    assert [passes for passes, _ in heard] == [1, 2]
    assert [left for _, (left, _) in heard] == [
        (step.requested[0] & step.canvas.open[0]).nonzero().flatten().tolist() for step in steps
    ]
