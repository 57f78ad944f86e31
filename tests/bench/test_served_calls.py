"""The server and the evaluation are timed on the calls that `generate` answers."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from softdlm.bench import public_calls, served_calls
from softdlm.bench.context import Bench
from softdlm.bench.measure import TimeBudget, Timings
from softdlm.bench.public_calls import calls, words
from softdlm.bench.shapes import SHAPES, build_model
from tests.conftest import tiny


def bench(name: str = "tiny-llada") -> Bench:
    return Bench(SHAPES[name], tiny("llada"), "auto", TimeBudget(60))


def test_every_public_call_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    request = served_calls.request
    monkeypatch.setattr(served_calls, "request", lambda *given: (asked.append(given[2]), request(*given)))
    subject = bench()
    found = served_calls.served(subject)
    assert [(row["call"], row["by"]) for row in found.rows] == [
        (words(fields | {"early_finish": False}), by) for fields in calls(subject) for by in ("generate", "served")
    ]
    assert {words(fields) for fields in asked} == {row["call"] for row in found.rows}
    (check,) = found.checks
    assert check.value > 0.5  # a request decodes as much as the call


def test_a_refused_request_is_no_measurement() -> None:
    subject = bench()
    with (
        served_calls.server(subject.model, subject.decode.length) as port,
        pytest.raises(RuntimeError, match=r"answered 400: .*magic"),
    ):
        served_calls.request(port, subject, {"max_new_tokens": 16, "cache": "magic"})


def test_the_default_call_is_compared_with_the_fastest_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst of all calls counts."""
    ratios = iter((1.0, 1.5, 1.25, 0.5))

    def timed(works: Any, *_: Any) -> dict[Any, Timings]:
        return {name: work() or Timings((next(ratios) if name is None else 1.0,)) for name, work in works.items()}

    monkeypatch.setattr(public_calls, "interleave", timed)
    found = public_calls.public(bench())
    assert [check.value for check in found.checks] == [1.5]
    assert [row["engine"] for row in found.rows] == ["default", "dynamic"] * 4
    asked = [(fields.get("cache"), fields["tokens_per_step"]) for fields in calls(bench())]
    assert asked == [(cache, rate) for cache in (None, "dual") for rate in (4, 8)]


def test_evaluation_is_timed_on_the_same_items(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, evaluate = [], served_calls.evaluate
    monkeypatch.setattr(served_calls, "evaluate", lambda *given, **how: cells.extend(evaluate(*given, **how).rows))
    shape = SHAPES["builtin"]
    small = replace(shape, sizes=replace(shape.sizes, items=2, repeats=1, rates=(16,)))
    model = build_model(small, torch.device("cpu"), torch.float32)
    found = served_calls.evaluated(Bench(small, model, "auto", TimeBudget(60)))
    assert [row["call"] for row in found.rows] == ["generate", "evaluate"]
    assert {cell["items"] for cell in cells} == {2}
    (check,) = found.checks
    assert check.value == pytest.approx(found.rows[0]["items/s"] / found.rows[1]["items/s"])
