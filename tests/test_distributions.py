"""Divergences and the nucleus against numbers worked by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softdlm.distributions import entropy, js, kl, none_yet, nucleus, probs_of
from softdlm.errors import UsageError
from softdlm.predict import Sampling, reduce_logits
from tests.strategies import random_logits

seeds = st.integers(0, 2**31)


def test_kl_is_in_nats_and_of_now_against_last() -> None:
    now, last = torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])
    assert kl(now, last).item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert kl(last, now).item() == pytest.approx(0.25 * math.log(1 / 2) + 0.75 * math.log(3 / 2))
    assert kl(now, now).item() == 0


def test_kl_against_nothing_is_large_and_finite() -> None:
    none = none_yet(1, 1, torch.device("cpu"), 2)[0, 0]
    assert kl(torch.tensor([1.0, 0.0]), none).item() == pytest.approx(-math.log(1e-12), rel=1e-5)


def test_js_is_in_nats() -> None:
    """Of (1/2, 1/2) and (1, 0) the middle is (3/4, 1/4)."""
    half, sure, other = torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    by_hand = (0.5 * math.log(2 / 3) + 0.5 * math.log(2)) / 2 + math.log(4 / 3) / 2
    assert js(half, sure).item() == pytest.approx(by_hand)
    assert js(sure, half).item() == pytest.approx(by_hand)
    assert js(sure, other).item() == pytest.approx(math.log(2))
    assert js(half, torch.zeros(2)).item() == pytest.approx(math.log(2) / 2)


@given(seeds, seeds)
def test_js_is_the_mean_kl_to_the_middle(one: int, other: int) -> None:
    p, q = (random_logits(seed, 3, 3.0).double().softmax(-1) for seed in (one, other))
    middle = (p + q) / 2
    torch.testing.assert_close(js(p, q), (kl(p, middle) + kl(q, middle)) / 2, atol=1e-9, rtol=1e-6)


def test_the_nucleus_is_the_fewest_tokens_that_reach_the_share() -> None:
    probs = torch.tensor([0.125, 0.5, 0.0625, 0.3125])
    for share, ids in [(0.1, [1]), (0.5, [1]), (0.6, [1, 3]), (0.9, [0, 1, 3]), (1.0, [0, 1, 2, 3])]:
        kept = torch.zeros(4)
        kept[ids] = probs[ids]
        torch.testing.assert_close(nucleus(probs, share), kept / kept.sum())
        torch.testing.assert_close(nucleus(probs / 3, share), kept / kept.sum())


def test_entropy_is_of_the_renormalised_distribution() -> None:
    assert entropy(torch.tensor([0.5, 0.5, 0.0])).item() == pytest.approx(math.log(2))
    assert entropy(torch.tensor([0.1, 0.1, 0.0])).item() == pytest.approx(math.log(2))
    assert entropy(torch.tensor([0.3, 0.0])).item() == 0


def test_a_prediction_without_the_distribution_is_refused() -> None:
    with pytest.raises(UsageError, match='needs="probs"'):
        probs_of(reduce_logits(random_logits(0, 2, 1.0), Sampling(mask_id=0)))
