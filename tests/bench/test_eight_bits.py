"""The suite of eight bits: what is compared with each target, and that every call of it can be made."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from softdlm.bench import eight_bits
from softdlm.bench.context import Bench, NotHere
from softdlm.bench.measure import TimeBudget, Timings
from softdlm.bench.passes import STEP, WHOLE
from softdlm.bench.shapes import SHAPES, build_model
from softdlm.bench.targets import TARGETS

CPU = torch.device("cpu")
DENSE = {name for name in TARGETS if name.startswith("fp8") and name != "fp8 mixture"}
MIXTURE = {"fp8 weights", "fp8 mixture", "fp8 gain"}


def bench(name: str) -> Bench:
    return Bench(SHAPES[name], build_model(SHAPES[name], CPU, torch.float32), "auto", TimeBudget(0))


@pytest.mark.parametrize(("name", "targets"), [("tiny-llada", DENSE), ("tiny-llada2", MIXTURE)])
def test_every_target_of_eight_bits_is_measured(name: str, targets: set[str]) -> None:
    """On a real tiny network: all calls are made, and the one of an entropy bound commits several tokens a pass."""
    subject = bench(name)
    found = eight_bits.fp8(subject, "fp8-emulated")
    assert {check.target for check in found.checks} == targets
    assert all(check.value > 0 for check in found.checks)
    assert {row["dtype"] for row in found.rows} == {"float32", "fp8-emulated"}
    called = [row for row in found.rows if "passes" in row]
    assert len(called) == len(eight_bits.wanted(subject))


def test_each_number_is_that_of_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def passes(model: Any, decodes: Any, *_: Any) -> Any:
        whole, step = (1.0, 0.1) if model.fp8 else (2.0, 0.2)
        slower = {WHOLE: Timings((3 * whole,)), STEP: Timings((step,))}
        return {"no cache": {WHOLE: Timings((whole,))}, "dual": slower}

    monkeypatch.setattr(eight_bits, "pass_times", passes)
    monkeypatch.setattr(eight_bits, "interleave", lambda *_: {"ours": Timings((0.5,)), "loop": Timings((2.0,))})
    monkeypatch.setattr(eight_bits, "time_calls", lambda work, *_: work() or Timings((0.25,)))
    subject = bench("tiny-llada")
    values = {check.target: check.value for check in eight_bits.fp8(subject, "fp8-emulated").checks}
    assert (values["fp8 whole canvas"], values["fp8 step"], values["fp8 gain"]) == (1000, 100, 4)
    rates = {values[name] for name in ("fp8 dual first", "fp8 dual second", "fp8 adaptive", "fp8 recommended")}
    assert rates == {subject.sizes.new / 0.25}


def test_each_weight_is_counted_once() -> None:
    model = build_model(SHAPES["tiny-llada"], CPU, torch.float32)
    table, head = model.network.model.embed_tokens, model.network.lm_head
    alone = eight_bits.gigabytes(model)
    head.weight = torch.nn.Parameter(table.weight.data, requires_grad=False)
    assert alone - eight_bits.gigabytes(model) == pytest.approx(table.weight.nbytes / 1e9)


def test_there_is_no_suite_of_eight_bits_in_eight_bits_or_on_a_cpu() -> None:
    subject = bench("tiny-llada")
    with pytest.raises(NotHere, match="needs a GPU of Hopper or later"):
        eight_bits.fp8(subject)
    subject.model.fp8 = "fp8-emulated"
    with pytest.raises(NotHere, match="runs in fp8 itself"):
        eight_bits.fp8(subject, "fp8-emulated")
