"""The Monte-Carlo log-likelihood, against the sum over all masks that it estimates."""

from itertools import combinations

import pytest
import torch

from softdlm import PromptError, UsageError
from softdlm.evaluate.likelihood import draw_masks, log_likelihood
from tests.conftest import FAMILIES, tiny

CONTEXT, TARGET = [5, 17, 9, 40], [22, 7, 31]


def exact(family: str) -> float:
    """Every mask size, every choice of places, with full-vocabulary logits from `model.logits`."""
    model = tiny(family, torch.float64)
    length = len(TARGET)
    total = 0.0
    for size in range(1, length + 1):
        draws = []
        for places in combinations(range(length), size):
            ids = torch.tensor([[*CONTEXT, *TARGET]])
            at = torch.tensor([len(CONTEXT) + place for place in places])
            ids[0, at] = model.mask_id
            scores = model.logits(ids)[0, at].log_softmax(-1)
            draws.append(sum(float(scores[row, TARGET[place]]) for row, place in enumerate(places)))
        total += sum(draws) / len(draws) * length / size
    return total / length


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mean_of_many_draws_is_the_sum_over_masks(family: str) -> None:
    model = tiny(family, torch.float64)
    values = [log_likelihood(model, CONTEXT, TARGET, samples=30, seed=seed, batch_size=30) for seed in range(40)]
    mean = sum(values) / len(values)
    error = torch.tensor(values).std().item() / len(values) ** 0.5
    assert abs(mean - exact(family)) < 4 * error + 1e-9


def test_one_token_needs_one_draw() -> None:
    model = tiny("llada", torch.float64)
    ids = torch.tensor([[*CONTEXT, model.mask_id]])
    truth = float(model.logits(ids)[0, -1].log_softmax(-1)[22])
    assert log_likelihood(model, CONTEXT, [22], samples=1) == pytest.approx(truth, abs=1e-12)


def test_the_value_depends_on_the_seed_and_not_on_the_batch() -> None:
    model = tiny("dream", torch.float64)
    one, same, other = (
        log_likelihood(model, CONTEXT, TARGET, samples=10, seed=seed, batch_size=size)
        for seed, size in ((3, 1), (3, 7), (4, 1))
    )
    assert one == pytest.approx(same, abs=1e-12)
    assert one != other


def test_mask_sizes_are_shared_out_evenly_and_places_uniformly() -> None:
    masks = draw_masks(5, 5000, torch.Generator().manual_seed(1))
    sizes = masks.sum(1)
    assert all(abs(int((sizes == size).sum()) - 1000) <= 1 for size in range(1, 6))
    share = masks.double().mean(0)
    assert torch.allclose(share, torch.full_like(share, 0.6), atol=0.03)
    first = [int(draw_masks(5, 1, torch.Generator().manual_seed(seed)).sum()) for seed in range(500)]
    assert all(60 < first.count(size) < 140 for size in range(1, 6))


def test_what_has_no_likelihood_is_refused() -> None:
    with pytest.raises(UsageError, match="empty continuation"):
        log_likelihood(tiny("llada"), CONTEXT, [])
    with pytest.raises(PromptError, match="empty prompt"):
        log_likelihood(tiny("dream"), [], TARGET)
    with pytest.raises(PromptError, match="the model's context is"):
        log_likelihood(tiny("llada"), [5] * 5000, TARGET)
