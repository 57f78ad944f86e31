"""Commit rules around another one: a first position alone, and only positions that were fed [MASK]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

import softdlm
from softdlm import (
    KLASS,
    Alternate,
    EntropyBound,
    Factor,
    HardOnly,
    LeadIn,
    Mask,
    Prophet,
    Slerp,
    Steps,
    Threshold,
    TopN,
    UsageError,
)
from softdlm.commit import rate_label, wait_of
from softdlm.types import Context
from tests.engine.test_slots import RAGGED, canvas_of
from tests.strategies import Scene, generator, scenes
from tests.test_cache import model_of
from tests.test_commit import bounds, rules

PROMISE_ONE = (TopN(1), TopN(3, "margin"), Threshold(0.5), Factor(1.2), EntropyBound(0.4), Prophet(TopN(2)))
parts = st.sampled_from([0.0, 0.3, 0.8, 1.0])


def fed(scene: Scene, share: float) -> Context:
    """The scene's context with so many positions soft, open or not."""
    soft = torch.rand(scene.open.shape, generator=generator(int(scene.open.sum()))) < share
    return replace(scene.context, soft=soft)


@given(scenes(last=True), bounds)
def test_a_lead_in_is_the_first_position_of_a_block_and_then_the_rule(scene: Scene, tau: float) -> None:
    chosen = LeadIn(Threshold(tau))(scene.prediction, scene.open, scene.context)
    usual = Threshold(tau)(scene.prediction, scene.open, scene.context)
    for row, passes in enumerate(scene.context.block_passes.flatten().tolist()):
        first = [int(scene.open[row].int().argmax())]
        expected = first if passes == 0 else usual[row].nonzero().flatten().tolist()
        assert chosen[row].nonzero().flatten().tolist() == expected


@given(scenes(), rules, parts)
def test_hard_only_is_the_rule_among_the_hard_positions_of_a_row_that_has_some(
    scene: Scene, rule: Any, share: float
) -> None:
    context = fed(scene, share)
    hard = scene.open & ~context.soft
    among = torch.stack([own if bool(own.any()) else every for own, every in zip(hard, scene.open, strict=True)])
    chosen = HardOnly(rule)(scene.prediction, scene.open, context)
    assert torch.equal(chosen, rule(scene.prediction, among, context))
    assert not (chosen & ~among).any()


@given(scenes(last=True), rules)
def test_where_nothing_is_soft_hard_only_is_the_inner_rule(scene: Scene, rule: Any) -> None:
    for context in (scene.context, fed(scene, 0.0)):
        chosen = HardOnly(rule)(scene.prediction, scene.open, context)
        assert torch.equal(chosen, rule(scene.prediction, scene.open, context))


@given(scenes(last=True), st.sampled_from(PROMISE_ONE), parts)
def test_hard_only_keeps_the_promise_to_commit(scene: Scene, rule: Any, share: float) -> None:
    chosen = HardOnly(rule)(scene.prediction, scene.open, fed(scene, share))
    assert not (chosen & ~scene.open).any()
    assert chosen.any(1).all()


@given(scenes(last=True), st.integers(1, 4), parts)
def test_under_hard_only_a_token_that_is_to_commit_last_waits_for_soft_positions_too(
    scene: Scene, n: int, share: float
) -> None:
    chosen = HardOnly(TopN(n))(scene.prediction, scene.open, fed(scene, share))
    late, others = chosen & scene.prediction.deferred, scene.open & ~scene.prediction.deferred
    left = others & ~chosen
    assert not (late.any(1) & left.any(1)).any()


@given(scenes(), parts)
def test_where_all_that_is_open_is_to_commit_last_hard_positions_come_first(scene: Scene, share: float) -> None:
    """Soft positions elsewhere, such as those of later blocks, keep nothing waiting."""
    late = scene.prediction.log_confidence.masked_fill(scene.open, float("-inf"))
    context, prediction = fed(scene, share), replace(scene.prediction, log_confidence=late)
    chosen = HardOnly(TopN(1))(prediction, scene.open, context)
    for own, soft, open in zip(chosen, context.soft, scene.open, strict=True):
        places = (open & ~soft).nonzero().flatten().tolist() or open.nonzero().flatten().tolist()
        assert own.nonzero().flatten().tolist() == places[:1]


@settings(max_examples=14, phases=(Phase.explicit, Phase.generate))
@given(
    st.sampled_from(["llada", "dream", "llada2"]),
    st.integers(0, 99),
    st.sampled_from([(2, 1), (3, 2), (4, 3), (2, 2)]),
    st.sampled_from(PROMISE_ONE),
    st.sampled_from([{}, {"block_length": 4}, {"block_length": 5, "cache": "dual"}, {"eos": "last"}]),
)
def test_in_a_decode_no_row_waits_and_hard_positions_come_first(
    network: str, seed: int, turn: tuple[int, int], rule: Any, fields: dict[str, Any]
) -> None:
    model = model_of(network)
    options: Any = {"commit": HardOnly(rule), "feedback": Alternate(Slerp(lam=0.5), *turn), **fields}
    soft_passes = 0
    for step in softdlm.denoise(model, canvas_of(model, RAGGED, seed), **options):
        assert torch.equal(step.committed.any(1), step.running)
        sure = step.active & ~step.context.soft & ~step.prediction.deferred
        soft_commit = step.committed & step.context.soft
        assert not (sure.any(1) & soft_commit.any(1)).any()
        soft_passes += int(step.context.soft.any())
    assert soft_passes > 0


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_beside_vanilla_hard_only_changes_nothing(family: str) -> None:
    model = model_of(family)

    def run(commit: Any) -> list[list[list[int]]]:
        steps = softdlm.denoise(model, canvas_of(model, RAGGED), commit=commit, feedback=Mask(), block_length=5)
        return [step.canvas.ids.tolist() for step in steps]

    for rule in (EntropyBound(0.4), Steps(3, schedule="cosine")):
        assert run(HardOnly(rule)) == run(rule)


def test_inner_rules_without_a_memory_only() -> None:
    for wrapped in (HardOnly, LeadIn):
        with pytest.raises(UsageError, match=r"klass.* has a memory and cannot stand inside another rule"):
            wrapped(KLASS())


@pytest.mark.usefixtures("unchecked")
def test_an_inner_rule_is_a_rule() -> None:
    with pytest.raises(UsageError, match="the inner rule must be a commit rule, such as topn"):
        HardOnly(4)  # type: ignore[arg-type]


def leftmost(prediction: Any, open: Tensor, context: Context) -> Tensor:
    return open & (open.cumsum(1) == 1)


def test_names_and_waits_are_those_of_the_inner_rule() -> None:
    slow = Steps(6, schedule="eps")
    assert wait_of(HardOnly(slow)) == wait_of(LeadIn(slow)) == 6
    assert wait_of(HardOnly(TopN())) == 0
    assert rate_label(HardOnly(EntropyBound(0.1))) == "entropy bound 0.1, hard only"
    assert rate_label(HardOnly(leftmost)) == "leftmost, hard only"
