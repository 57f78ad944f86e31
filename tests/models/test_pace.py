"""When a shape is compiled: after as many passes as pay for it, for as long as there is room for more shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from softdlm.models import pace
from softdlm.models.compiled import compile_fixed
from softdlm.models.pace import WORTH, Paced, passes_worth
from tests.conftest import tiny


def paced(after: int) -> Paced:
    made = Paced()
    made.compile_after, made.passes, made.due = after, {}, set()
    return made


@pytest.mark.parametrize(("weights", "passes"), [(16_000_000_000, 1), (8_000_000_000, 1), (2_000_000_000, 4)])
def test_the_smaller_a_network_the_more_passes_must_pay(weights: int, passes: int) -> None:
    assert passes_worth(weights) == WORTH * passes


def test_a_model_counts_its_weights() -> None:
    model = tiny("llada")
    assert type(model)(model.network, mask_id=0).compile_after == passes_worth(sum(map(torch.numel, model.weights())))


@pytest.mark.parametrize(("passes", "warm"), [(9, False), (10, True)])
def test_a_model_that_expects_enough_passes_is_warm_for_them(passes: int, warm: bool) -> None:
    model = paced(5)
    with model.expecting(passes):
        assert model.count_pass("met in it") is warm
    assert model.compile_after == 5
    assert model.count_pass("met in it") is warm, "what was compiled stays compiled"
    assert not model.count_pass("met after it")


def test_a_model_is_no_longer_warm_after_an_error() -> None:
    model = paced(5)
    with pytest.raises(ZeroDivisionError), model.expecting(100):
        raise ZeroDivisionError
    assert model.compile_after == 5


def test_a_warm_model_stays_warm() -> None:
    model = paced(5)
    model.warm()
    with model.expecting(0):
        assert model.count_pass("one")
    assert model.count_pass("two")


def test_shapes_that_came_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Decoding that a client thinks of brings shapes: a server would keep them for ever."""
    monkeypatch.setattr(pace, "MOST_COUNTED", 2)
    model = paced(2)
    for shape in ("often", "once", "often", "another"):
        assert not model.count_pass(shape)
    assert list(model.passes) == ["often", "another"]
    assert model.count_pass("often")
    assert not model.count_pass("once")


def test_no_more_shapes_are_compiled_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "MOST_COMPILED", 2)
    model = paced(0)
    assert [model.count_pass(shape) for shape in "abcab"] == [True, True, False, True, True]


def test_torch_does_not_stop_compiling_before_us() -> None:
    """Its own limits hold for a process: a decode that comes after them would end with an error."""
    seen: list[Any] = []

    def note(graph: Any, _: Any) -> Any:
        seen.append(graph)
        return graph.forward

    with torch._dynamo.config.patch(recompile_limit=1, accumulated_recompile_limit=1):
        double = compile_fixed(lambda value: 2 * value, backend=note)
        for size in (2, 3, 4):
            assert double(torch.ones(size)).sum() == 2 * size
    assert len(seen) == 3
