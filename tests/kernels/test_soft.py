"""The soft-embedding kernel against the rules in torch, degenerate geometry included."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, cos, sin, sqrt, where

from softdlm import Additive, Alternate, Euclidean, Mask, NormMix, Slerp, kernels
from softdlm.arc import Ends
from softdlm.feedback import ArcRule, FeedbackRule, aggregate, feed_back
from softdlm.kernels.soft import write_soft
from softdlm.types import Context, Embeddings, Prediction
from tests.conftest import DEVICE
from tests.kernels.test_paths import Counted
from tests.strategies import generator

TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|divide by zero) encountered:RuntimeWarning"  # the interpreter's, in a branch not taken
)
lams = st.floats(0, 1, allow_subnormal=False)


@dataclass(frozen=True)
class Turn:
    """A rule of a user's, in the words that `plane` allows."""

    k: int = 2
    lam: float = 0.5
    norm: str | None = None

    @staticmethod
    def weights(lam, norm, mask_norm, mean_norm, cosine, sine, angle):
        return cos(lam * angle) + cosine, where(mean_norm > 0, lam * sin(angle) * sqrt(mean_norm * mask_norm), 0.0)

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Tensor:
        ends = Ends.of(embeddings.mask.float(), aggregate(prediction, embeddings, self.k))
        soft = ends.point(*self.weights(self.lam, self.norm, *ends.numbers))
        return soft.to(embeddings.table.dtype)


def rules(k: int, lam: float) -> list[ArcRule]:
    return [
        Slerp(k, lam),
        Slerp(k, lam, norm="candidate"),
        Euclidean(k, lam),
        Euclidean(k, lam, norm="mask"),
        Turn(k, lam),
    ]


def named(rule: FeedbackRule) -> Callable[[str], str]:
    return lambda text: f"{rule}: {text}"


@dataclass(frozen=True)
class World:
    """A prediction over a canvas; nothing is said (-1, NaN) where nothing is chosen."""

    prediction: Prediction
    embeddings: Embeddings
    chosen: Tensor
    embeds: Tensor
    context: Context

    def by_torch(self, rule: FeedbackRule) -> Tensor:
        embeds = self.embeds.clone()
        embeds[self.chosen] = rule(self.prediction.at(self.chosen), self.embeddings, self.context.at(self.chosen))
        return embeds

    def by_kernel(self, rule: FeedbackRule) -> Tensor:
        embeds = self.embeds.clone()
        write_soft(rule, self.prediction, self.embeddings, self.chosen, embeds)
        return embeds


def world(table: Tensor, ids: Tensor, probs: Tensor, chosen: Tensor) -> World:
    """The last row of the table is [MASK]."""
    flat = torch.zeros(len(ids), device=DEVICE)
    prediction = Prediction(ids[:, 0], flat, flat, flat, ids, probs).on(chosen)
    embeds = torch.randn(*chosen.shape, table.shape[1], generator=generator(1)).to(DEVICE).to(table.dtype)
    count = torch.zeros(len(chosen), 1, dtype=torch.long, device=DEVICE)
    zero, no = count[0, 0], torch.tensor(False, device=DEVICE)
    context = Context(*[count] * 5, index=zero, soft=no, ends=no, in_block=~no)
    return World(prediction, Embeddings(table, table[-1]), chosen, embeds, context)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    seed, width, stored = draw(st.integers(0, 2**31)), draw(st.integers(8, 40)), draw(st.integers(1, 16))
    rng = generator(seed)
    chosen = torch.rand(2, 2, generator=rng) < draw(st.sampled_from([0.3, 0.8]))
    ids = torch.randint(0, 11, (int(chosen.sum()), stored), generator=rng)
    probs = torch.rand(len(ids), stored, generator=rng) * draw(st.sampled_from([1e-30, 0.1]))
    table = torch.randn(12, width, generator=rng) * draw(st.sampled_from([0.02, 3.0]))
    dtype = draw(st.sampled_from(list(TOLERANCE)))
    return world(*(value.to(DEVICE) for value in (table.to(dtype), ids, probs, chosen)))


@given(worlds(), st.integers(1, 5), lams)
@settings(max_examples=30, phases=(Phase.explicit, Phase.generate))
def test_the_kernel_is_the_rule(scene: World, k: int, lam: float) -> None:
    tolerance = TOLERANCE[scene.embeds.dtype]
    for rule in rules(k, lam):
        ours, reference = scene.by_kernel(rule), scene.by_torch(rule)
        scale = float(reference.abs().max())
        torch.testing.assert_close(ours, reference, atol=tolerance * scale, rtol=tolerance, msg=named(rule))
        assert torch.equal(ours[~scene.chosen], scene.embeds[~scene.chosen])


@given(worlds(), st.integers(1, 4), st.integers(1, 4), st.integers(0, 5), lams)
@settings(max_examples=20, phases=(Phase.explicit, Phase.generate))
def test_a_rule_in_turns_goes_through_the_kernel(scene: World, period: int, soft: int, passes: int, lam: float) -> None:
    """What has no turn is left as it is, which in a decode is [MASK]; so the outer rule needs no kernel of its own."""
    embeds = scene.embeds.clone()
    embeds[scene.chosen] = scene.embeddings.mask
    index = torch.arange(2, device=DEVICE).expand(2, -1)
    scene = replace(
        scene, embeds=embeds, context=replace(scene.context, passes=scene.context.passes + passes, index=index)
    )
    for inner in (Slerp(2, lam), Alternate(Euclidean(2, lam), 3, 2)):
        rule, written = Alternate(inner, period, min(soft, period)), Counted(write_soft)
        ours, places = scene.embeds.clone(), torch.arange(4, device=DEVICE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "wanted", lambda device: True)
            patch.setattr("softdlm.kernels.soft.write_soft", written)
            flat = scene.prediction.at(torch.ones_like(scene.chosen))
            feed_back(rule, scene.prediction, scene.embeddings, scene.context, scene.chosen, ours, flat, places)
        reference, tolerance = scene.by_torch(rule), TOLERANCE[ours.dtype]
        scale = float(reference.abs().max())
        torch.testing.assert_close(ours, reference, atol=tolerance * scale, rtol=tolerance, msg=named(rule))
        assert written.calls == 1


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
def test_degenerate_means_fall_back_as_in_torch(lam: float) -> None:
    """Parallel, nearly so, opposite, nearly so, vanishing, at every angle between, and impossible candidates."""
    mask, side = torch.randn(2, 24, generator=generator(7), dtype=torch.float64)
    side = (side - side @ mask / (mask @ mask) * mask) * (mask.norm() / side.norm())
    angles = [0.0, 1e-7, 1e-5, 3e-4, 0.01, 1.0, 2.0, 3.0, math.pi - 3e-4, math.pi - 1e-6, math.pi]
    means = [1.7 * (math.cos(angle) * mask + math.sin(angle) * side) for angle in angles]
    table = torch.stack([*means, side * 1e-9, side * 0, mask]).float()
    count = len(table) - 1
    ids = torch.arange(count)[:, None]
    probs = torch.full((count, 1), 0.5)
    probs[5] = 0  # a candidate of no probability: the mean vanishes
    scene = world(*(value.to(DEVICE) for value in (table, ids, probs, torch.ones(1, count, dtype=torch.bool))))
    for rule in rules(1, lam):
        ours, reference = scene.by_kernel(rule), scene.by_torch(rule)
        assert ours.isfinite().all()
        if DEVICE != "cpu":  # it sums in another order, and float32 keeps three digits of the arc at pi - 3e-4
            torch.testing.assert_close(ours[:, 8], reference[:, 8], atol=2e-3, rtol=0, msg=named(rule))
            ours[:, 8] = reference[:, 8]
        torch.testing.assert_close(ours, reference, atol=3e-5, rtol=1e-5, msg=named(rule))
    if lam == 0:
        assert torch.equal(scene.by_kernel(Slerp(1, lam))[0], scene.embeddings.mask.expand(count, -1))
        assert torch.equal(scene.by_kernel(Euclidean(1, lam))[0], scene.embeddings.mask.expand(count, -1))


def test_only_rules_of_the_plane_are_the_kernels() -> None:
    assert all(isinstance(rule, ArcRule) for rule in rules(2, 0.5))
    assert not any(isinstance(rule, ArcRule) for rule in (Mask(), Additive(), NormMix()))
