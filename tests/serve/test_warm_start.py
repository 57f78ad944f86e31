"""What a server compiles before it is ready; a request never pays for a shape that will hardly come again."""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import softdlm
from softdlm.cli import main as cli
from softdlm.decoding import settle
from softdlm.engine.answer import Answer
from softdlm.engine.queue import Engine
from softdlm.errors import UsageError
from softdlm.models.own_settings import OwnSettings
from softdlm.serve import engine_thread, warm_start
from softdlm.serve.metrics import Metrics
from softdlm.serve.settings import Limits
from softdlm.serve.worker import Worker
from tests.conftest import tiny
from tests.test_batches import prompts_of

FLAT = {"commit": "topn(2)", "max_new_tokens": 24}
Size = tuple[int, int | None, bool, int]
"""Rows, width of the window, whether there is padding, and canvas length."""


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` runs passes of rounded shape on this CPU too; "compiled" layers are layers as they are."""
    for module in ("softdlm.engine.queue", "softdlm.serve.warm_start"):
        monkeypatch.setattr(f"{module}.pick_engine", lambda plan, engine: "auto")
    for module in ("softdlm.engine.slot_store", "softdlm.models.compiled"):
        monkeypatch.setattr(f"{module}.compile_fixed", lambda work, **_: work)


def model_with(**own: Any) -> Any:
    """A model that has met no shape yet."""
    model: Any = copy(tiny("llada", torch.float64))
    model.own, model.passes, model.due, model.slot_cache = OwnSettings(**own), {}, set(), []
    model.compile_after, model._compiled = 500, None
    return model


def engine_of(model: Any, rows: int = 4, **more: Any) -> Engine:
    return Engine(model, batch_size=rows, engine="auto", few_shapes=True, **more)


def sizes(shapes: Any) -> set[Size]:
    """The shapes without the Decoding that they are of."""
    return {shape[1:] for shape in shapes}


def decoded(engine: Engine, prompt: list[int], **how: Any) -> tuple[list[int], set[Size]]:
    """The tokens of a request, and the shapes that only it met."""
    before = dict(engine.model.passes)
    answer = Answer(engine.model, 0, prompt, settle(engine.model, None, how))
    engine.submit(answer)
    while engine.busy:
        engine.step()
    assert answer.generation is not None
    return answer.generation.ids, sizes(shape for shape in engine.model.passes if shape not in before)


def together(engine: Engine, prompts: list[list[int]]) -> None:
    for prompt in prompts:
        engine.submit(Answer(engine.model, 0, prompt, settle(engine.model, None, {})))
    while engine.busy:
        engine.step()


@pytest.mark.parametrize(("batch", "rows"), [(4, {1, 2, 4}), (3, {1, 2, 3}), (1, {1})])
def test_each_number_of_rows_and_each_length_is_compiled(
    batch: int, rows: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_a_gpu(monkeypatch)
    model = model_with(**FLAT)
    warm_start.warm_start(engine_of(model, batch), [65, 150, 192])
    assert sizes(model.due) == {(number, None, True, length) for number in rows for length in (128, 192)}
    assert model.compile_after > 0, "other shapes are compiled where requests come back to them"


def test_shorter_requests_of_any_length_meet_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """So none of them compiles anything, alone or with others; one beyond these lengths does not either."""
    as_on_a_gpu(monkeypatch)
    model = model_with(**FLAT)
    engine = engine_of(model)
    warm_start.warm_start(engine, [64, 128])
    compiled = set(model.due)
    prompts = prompts_of([3, 17, 39, 41, 59], 2)
    for prompt in prompts:
        ids, new = decoded(engine, prompt)
        assert ids == softdlm.generate(model, prompt, engine="dynamic").ids
        assert new <= {(1, None, False, 64)}, "only a canvas that fills its slots has no padding"
    together(engine, prompts[:3])
    assert {shape for shape in model.passes if shape[3]} == compiled
    _, new = decoded(engine, prompts_of([150], 2)[0])
    assert new == {(1, None, True, 192)}
    assert model.due == compiled


@pytest.mark.parametrize(("few", "rows"), [(True, {4}), (False, {3})])
def test_rows_are_rounded_up_where_shapes_are_to_be_few(
    few: bool, rows: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_a_gpu(monkeypatch)
    model = model_with(**FLAT)
    model.own = replace(model.own, max_new_tokens=2)  # one pass
    with Engine(model, batch_size=5, engine="auto", few_shapes=few) as engine:
        together(engine, prompts_of([3, 17, 20], 2))
    assert {number for number, *_ in sizes(model.passes)} == rows


def test_without_few_shapes_each_length_is_a_shape_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(monkeypatch)
    model = model_with(**FLAT)
    with Engine(model, engine="auto") as engine:
        for prompt in prompts_of([3, 17], 2):
            decoded(engine, prompt)
    assert sizes(model.passes) == {(1, None, False, 27), (1, None, False, 41)}


@pytest.mark.parametrize("kind", ["auto", "static"])
def test_nothing_is_decoded_where_nothing_is_to_be_compiled(
    kind: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a CPU under `auto`, and under an engine that was named."""
    model = model_with(**FLAT)
    engine = Engine(model, engine=kind, few_shapes=True)
    monkeypatch.setattr(engine, "step", lambda: pytest.fail("a pass was made"))
    warm_start.warm_start(engine, [64])
    assert not model.passes
    assert "nothing is compiled here" in capsys.readouterr().err


def test_nothing_is_compiled_where_no_length_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(monkeypatch)
    model = model_with(**FLAT)
    warm_start.warm_start(engine_of(model), ())
    assert not model.passes


@pytest.mark.parametrize(("words", "lengths"), [([], ()), (["--warm", "700", "--warm", "1500"], (700, 1500))])
def test_the_operator_says_for_which_lengths(words: list[str], lengths: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command gives them to the application, here or on a cluster."""
    served: list[Any] = []
    for place in ("run.make_app", "cluster.serve_on_ray"):
        monkeypatch.setattr(f"softdlm.serve.{place}", lambda *_, warm, **__: served.append(warm) or 1 / 0)
    for executor in ("local", "ray"):
        CliRunner().invoke(cli.app, ["serve", "--executor", executor, *words])
    assert served == [lengths, lengths]


def test_the_start_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the lengths, a single row's come first."""
    as_on_a_gpu(monkeypatch)
    model, moments = model_with(**FLAT), iter([0.0, 1.0, 119.0, 121.0, 130.0])
    warm_start.warm_start(engine_of(model, clock=lambda: next(moments)), [64, 128])
    assert sizes(model.due) == {(1, None, True, 64), (1, None, True, 128)}
    told = capsys.readouterr().err.splitlines()
    assert told[1].startswith("softdlm: compiled 2 of them in 130 s; the others are compiled once requests")


def test_what_does_not_fit_is_said_and_the_server_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_on_a_gpu(monkeypatch)
    warm_start.warm_start(engine_of(model_with(**FLAT), memory_limit=1000), [64])
    assert "compiled 0 of them in 0 s; then: the request needs" in capsys.readouterr().err


def test_lengths_beyond_the_context_are_refused() -> None:
    model = model_with(**FLAT)
    model.max_length = 100
    with pytest.raises(UsageError, match="--warm 101: the model's context is 100 tokens"):
        list(warm_start.cases_of(model, 1, [64, 101]))
    assert list(warm_start.cases_of(model, 3, [100])) == [(1, 128), (2, 128), (3, 128)]
    assert list(warm_start.cases_of(model, 2, [60, 100])) == [(1, 64), (1, 128), (2, 64), (2, 128)]


def test_a_canvas_as_long_as_the_context_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(monkeypatch)
    model = model_with(**FLAT)
    model.max_length = 100
    warm_start.warm_start(engine_of(model, 1), [100])
    assert sizes(model.due) == {(1, None, True, 128)}


@pytest.mark.parametrize("lengths", [(), (64,)])
def test_a_server_is_ready_after_it_has_compiled(lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes are only few where some were compiled for them: rounded ones need padding."""
    seen: list[Any] = []
    model = model_with(**FLAT)

    async def run() -> None:
        worker = Worker(lambda: model, Limits(max_concurrency=3), Metrics("tiny"), "auto", lengths)

        def compiling(engine: Engine, lengths: Any) -> None:
            seen.append((worker.state, lengths, engine.batch_size, engine.few_shapes))

        monkeypatch.setattr(engine_thread, "warm_start", compiling)
        worker.start()
        await asyncio.wait_for(worker.ready.wait(), 30)
        assert worker.state == "ready"
        await worker.stop()

    asyncio.run(run())
    assert seen == [("loading", lengths, 3, bool(lengths))]
