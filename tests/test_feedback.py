"""Feedback rules against the paper's formulas, and the laws of the sphere."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from softdlm import Additive, Euclidean, Mask, NormMix, Slerp, UsageError
from softdlm.feedback import aggregate, slerp
from softdlm.registry import build
from softdlm.types import Context, Embeddings, Prediction
from tests.strategies import generator

WIDTH, VOCABULARY, OPEN = 16, 12, 5
lams = st.floats(0, 1, allow_subnormal=False)
seeds = st.integers(0, 2**31)


def world(seed: int, dtype: torch.dtype = torch.float32) -> tuple[Prediction, Embeddings, Context]:
    """Random candidates with raw probabilities that sum to less than 1, over a random table."""
    rng = generator(seed)
    table = torch.randn(VOCABULARY, WIDTH, generator=rng, dtype=torch.float64) * 3
    probabilities = torch.rand(OPEN, 4, generator=rng, dtype=torch.float64).sort(descending=True).values / 4
    ids = torch.stack([torch.randperm(VOCABULARY - 1, generator=rng)[:4] for _ in range(OPEN)])
    flat = torch.zeros(OPEN, dtype=dtype)
    mean = torch.randn(OPEN, WIDTH, generator=rng, dtype=torch.float64).to(dtype)
    prediction = Prediction(ids[:, 0], flat, flat, flat, ids, probabilities.to(dtype), mean)
    embeddings = Embeddings(table.to(dtype), table[-1].to(dtype))
    numbers = torch.arange(OPEN)
    return prediction, embeddings, Context(numbers, numbers, numbers, numbers, numbers)


def angle(one: Tensor, other: Tensor) -> Tensor:
    one, other = one / one.norm(dim=-1, keepdim=True), other / other.norm(dim=-1, keepdim=True)
    return 2 * torch.atan2((one - other).norm(dim=-1), (one + other).norm(dim=-1))


def textbook_slerp(mask: Tensor, mean: Tensor, lam: float) -> Tensor:
    """The paper's own expression (section 4.2), in double."""
    start, end = mask / mask.norm(), mean / mean.norm(dim=-1, keepdim=True)
    theta = torch.arccos((start * end).sum(-1, keepdim=True))
    return mask.norm() * (torch.sin((1 - lam) * theta) * start + torch.sin(lam * theta) * end) / torch.sin(theta)


@given(seeds, lams)
def test_slerp_is_the_papers_formula(seed: int, lam: float) -> None:
    prediction, embeddings, context = world(seed, torch.float64)
    soft = Slerp(k=3, lam=lam)(prediction, embeddings, context)
    expected = textbook_slerp(embeddings.mask, aggregate(prediction, embeddings, 3), lam)
    torch.testing.assert_close(soft, expected, atol=1e-9, rtol=1e-9)


@given(seeds, lams)
def test_slerp_keeps_the_norm_and_goes_lam_of_the_angle(seed: int, lam: float) -> None:
    prediction, embeddings, context = world(seed)
    soft = Slerp(k=3, lam=lam)(prediction, embeddings, context)
    theta = angle(embeddings.mask.expand_as(soft), aggregate(prediction, embeddings, 3))
    torch.testing.assert_close(soft.norm(dim=-1), embeddings.mask.norm().expand(OPEN), atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(angle(embeddings.mask.expand_as(soft), soft), lam * theta, atol=2e-6, rtol=1e-5)


@given(seeds)
def test_slerp_at_one_points_along_the_aggregate(seed: int) -> None:
    prediction, embeddings, context = world(seed)
    mean = aggregate(prediction, embeddings, 3)
    soft = Slerp(k=3, lam=1.0)(prediction, embeddings, context)
    assert angle(soft, mean).max() < 1e-5
    scaled = Slerp(k=3, lam=1.0, norm="candidate")(prediction, embeddings, context)
    torch.testing.assert_close(scaled, mean, atol=1e-5, rtol=1e-5)


@given(seeds, st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_strength_zero_is_mask_to_the_bit(seed: int, dtype: torch.dtype) -> None:
    prediction, embeddings, context = world(seed, dtype)
    for rule in [Slerp(lam=0.0), Euclidean(lam=0.0), Additive(start=0.0, grow=0.0, stop=0.0), Mask()]:
        soft = rule(prediction, embeddings, context)
        assert torch.equal(soft, embeddings.mask.expand_as(soft)), rule
        assert soft.dtype == dtype
    soft = Euclidean(lam=0.0, norm="mask")(prediction, embeddings, context)
    torch.testing.assert_close(soft, embeddings.mask.expand_as(soft))


@given(seeds, st.floats(1e-9, 1e-3), lams)
def test_nearly_parallel_ends_go_straight(seed: int, tilt: float, lam: float) -> None:
    mask = torch.randn(WIDTH, generator=generator(seed))
    sideways = torch.randn(WIDTH, generator=generator(seed + 1))
    mean = ((mask + tilt * sideways) * 1.7)[None]
    soft = slerp(mask, mean, lam)
    straight = (1 - lam) * mask / mask.norm() + lam * mean / mean.norm()
    torch.testing.assert_close(soft, straight * (mask.norm() / straight.norm()), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(soft.norm(dim=-1), mask.norm()[None], atol=1e-5, rtol=1e-5)


@given(seeds, st.floats(0, 1e-6), lams)
def test_opposite_or_vanishing_aggregates_stay_mask(seed: int, tilt: float, lam: float) -> None:
    mask = torch.randn(WIDTH, generator=generator(seed))
    sideways = torch.randn(WIDTH, generator=generator(seed + 1))
    hopeless = torch.stack([-mask, -(mask + tilt * sideways) * 3, mask * 0, sideways * 1e-12])
    assert torch.equal(slerp(mask, hopeless, lam), mask.expand(4, -1))


@given(seeds, st.floats(1e-7, math.pi - 1e-7), lams)
def test_slerp_is_finite_and_keeps_the_norm_at_every_angle(seed: int, theta: float, lam: float) -> None:
    mask = torch.randn(WIDTH, generator=generator(seed))
    side = torch.randn(WIDTH, generator=generator(seed + 1))
    side = side - (side @ mask) / (mask @ mask) * mask
    mean = math.cos(theta) * mask / mask.norm() + math.sin(theta) * side / side.norm()
    soft = slerp(mask, mean[None] * 2.5, lam)
    assert soft.isfinite().all()
    torch.testing.assert_close(soft.norm(dim=-1), mask.norm()[None], atol=1e-5, rtol=1e-5)


@given(seeds)
def test_one_candidate_aggregates_to_its_embedding(seed: int) -> None:
    prediction, embeddings, _ = world(seed)
    best = embeddings.table[prediction.topk_ids[:, 0]]
    torch.testing.assert_close(aggregate(prediction, embeddings, 1), best, atol=1e-6, rtol=1e-6)


@given(seeds, st.integers(1, 4), st.floats(0.01, 50))
def test_probabilities_renormalise_over_the_candidates(seed: int, k: int, factor: float) -> None:
    """The aggregate is a convex combination, and a common factor of the raw probabilities does not matter."""
    prediction, embeddings, _ = world(seed, torch.float64)
    scaled = Prediction(**{**vars(prediction), "topk_probs": prediction.topk_probs * factor})
    mean = aggregate(prediction, embeddings, k)
    torch.testing.assert_close(aggregate(scaled, embeddings, k), mean)
    weights = prediction.topk_probs[:, :k] / prediction.topk_probs[:, :k].sum(1, keepdim=True)
    by_hand = sum(weights[:, [i]] * embeddings.table[prediction.topk_ids[:, i]] for i in range(k))
    torch.testing.assert_close(mean, by_hand)


@given(seeds, lams)
def test_euclidean_is_the_straight_mix(seed: int, lam: float) -> None:
    prediction, embeddings, context = world(seed, torch.float64)
    mix = (1 - lam) * embeddings.mask + lam * aggregate(prediction, embeddings, 3)
    torch.testing.assert_close(Euclidean(k=3, lam=lam)(prediction, embeddings, context), mix)
    normed = Euclidean(k=3, lam=lam, norm="mask")(prediction, embeddings, context)
    torch.testing.assert_close(normed, embeddings.mask.norm() * mix / mix.norm(dim=-1, keepdim=True))


@given(seeds)
def test_additive_ramps_up_to_its_stop(seed: int) -> None:
    prediction, embeddings, context = world(seed, torch.float64)
    assert prediction.mean is not None
    soft = Additive(start=0.15, grow=0.05, stop=0.3)(prediction, embeddings, context)
    for row, weight in enumerate([0.15, 0.2, 0.25, 0.3, 0.3]):
        torch.testing.assert_close(soft[row], embeddings.mask + weight * prediction.mean[row])


@given(seeds, st.integers(1, 4))
def test_norm_mix_takes_the_mixture_of_the_norms(seed: int, k: int) -> None:
    prediction, embeddings, context = world(seed, torch.float64)
    shares, ids = prediction.topk_probs[:, :k], prediction.topk_ids[:, :k]
    soft = NormMix(k)(prediction, embeddings, context)
    for row in range(OPEN):
        ends = torch.cat([embeddings.table[ids[row]], embeddings.mask[None]])
        weights = torch.cat([shares[row], 1 - shares[row].sum(0, keepdim=True)])
        mix, norm = weights @ ends, weights @ ends.norm(dim=-1)
        torch.testing.assert_close(soft[row], norm * mix / mix.norm())


@given(seeds, st.integers(1, 4), st.floats(0, 2))
def test_soft_token_is_a_mean_with_mask_weighted_by_what_the_best_candidate_lacks(
    seed: int, k: int, extra: float
) -> None:
    prediction, embeddings, context = world(seed, torch.float64)
    soft = build("feedback", f"soft-token(k={k}, extra={extra!r})")(prediction, embeddings, context)
    for row in range(OPEN):
        shares = prediction.topk_probs[row, :k]
        weights = torch.cat([shares, 1 - shares[:1] + extra])
        ends = torch.cat([embeddings.table[prediction.topk_ids[row, :k]], embeddings.mask[None]])
        torch.testing.assert_close(soft[row], (weights / weights.sum()) @ ends)
    with pytest.raises(UsageError, match=r"extra weight of \[MASK\] must be at least 0, not -1"):
        build("feedback", "soft-token(extra=-1)")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Slerp(k=0), "k must be at least 1, not 0"),
        (lambda: Slerp(lam=1.1), r"lam must lie in \[0, 1\], not 1.1"),
        (lambda: Euclidean(lam=-0.1), "not -0.1"),
        (lambda: Euclidean(lam=float("nan")), "not nan"),
        (lambda: Slerp(norm="unit"), "not 'unit'"),  # type: ignore[arg-type]
        (lambda: Euclidean(norm="candidate"), "not 'candidate'"),  # type: ignore[arg-type]
        (lambda: Additive(start=0.4, stop=0.3), "start=0.4"),
        (lambda: NormMix(k=-1), "not -1"),
    ],
)
def test_bad_values_are_named(make: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()  # type: ignore[operator]
