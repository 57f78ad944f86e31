"""The analyses' passes are the decoder's own: the same soft tokens, the same context, the same attention."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import softdlm
from softdlm.analysis.spans import Span, factorised, hard, parallel
from softdlm.feedback import FeedbackRule
from softdlm.types import Context, Embeddings, Prediction, RuleState
from tests.conftest import tiny


@dataclass(frozen=True)
class ByPlace:
    """A rule that reads all of its context: a memory, the position's index, and whether its input was soft."""

    k = 1

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
        return {"sure": torch.zeros(rows, length, device=device)}

    def update(self, state: RuleState, prediction: Prediction, context: Context) -> RuleState:
        return {"sure": (state["sure"] + prediction.topk_probs[..., 0]) / (1 + context.index.clamp(min=0))}

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> torch.Tensor:
        strength = context.state["sure"] * (context.index + 1) / 8 + 2 * context.soft + 4 * ~context.in_block
        best = embeddings.table[prediction.topk_ids[:, 0]]
        return torch.lerp(embeddings.mask.expand_as(best), best, strength.to(best.dtype)[:, None])


RULES: dict[str, FeedbackRule] = {
    "vanilla": softdlm.Mask(),
    "euclidean": softdlm.Euclidean(3, 0.3),
    "slerp": softdlm.Slerp(2, 0.5),
    "additive": softdlm.Additive(0.2, 0.1, 0.9),
    "norm-mix": softdlm.NormMix(2),
    "by-place": ByPlace(),
}
ONE_BLOCK = [("llada", "auto", 4), ("dream", "auto", 4), ("llada2", "full", 40), ("llada2", "block-causal", 40)]


def after_one_pass(prediction: Any, open: Any, context: Any) -> torch.Tensor:
    return open & (context.passes > 0)


after_one_pass.may_wait = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("family", "attention", "length"), ONE_BLOCK)
def test_one_feedback_pass_is_the_decoders_second_pass(family: str, attention: Any, length: int, name: str) -> None:
    model = tiny(family, torch.float64, attention)
    span = Span.after([3 + index for index in range(length)], 3, model.mask_id)
    first, found = parallel(model, span, {name: RULES[name]}, k=4)
    canvas = softdlm.Canvas.of(torch.tensor([list(span.ids)]), model.mask_id)
    one, two = softdlm.denoise(model, canvas, commit=after_one_pass, feedback=RULES[name], candidates=4)
    places = list(span.places)
    assert torch.equal(first.topk_ids, one.prediction.topk_ids[0, places])
    torch.testing.assert_close(first.topk_probs, one.prediction.topk_probs[0, places])
    ids, shares = two.prediction.topk_ids[0, places], two.prediction.topk_probs[0, places]
    torch.testing.assert_close(found[name].gather(1, ids).exp(), shares)


def test_rules_do_not_see_each_other() -> None:
    model = tiny("dream", torch.float64)
    span = Span.inside([3, 4, 5, 6, 7, 8], 2, 2, model.mask_id)
    _, together = parallel(model, span, RULES)
    for name, rule in RULES.items():
        _, alone = parallel(model, span, {name: rule})
        torch.testing.assert_close(together[name], alone[name])


def test_fillings_come_back_in_order_whatever_the_batch() -> None:
    model = tiny("llada", torch.float64)
    span = Span.inside([3, 4, 5, 6, 7, 8], 2, 2, model.mask_id)
    fillings = [(None, None), (9, None), (None, 10), (9, 10), (11, 12)]
    small, large = (torch.stack(list(hard(model, span, fillings, size))) for size in (2, 64))
    torch.testing.assert_close(small, large)
    alone = model.logits(torch.tensor([[3, 4, 9, model.mask_id, 7, 8]])).log_softmax(-1)[0, 2:4]
    torch.testing.assert_close(small[1], alone)


def test_a_factorised_answer_is_a_product() -> None:
    log_probs = torch.tensor([[0.5, 0.5], [0.2, 0.8]], dtype=torch.float64).log()
    assert factorised(log_probs, [(0, 0), (1, 1)]).exp().tolist() == pytest.approx([0.1, 0.4])
