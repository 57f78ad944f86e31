"""A few masked positions in a fixed context and the model's predictions there; all analyses of spans use it.

Dimensions in addition to those of softdlm.types: M masked positions of a span, C token tuples that fill them.
Distributions are float64 log-probabilities over the full vocabulary, without temperature (appendix D.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.feedback import FeedbackRule
from softdlm.models.denoiser import Denoiser
from softdlm.predict import Sampling, reduce_logits
from softdlm.registry import needs_of
from softdlm.threads import map_parts
from softdlm.types import Context, Embeddings, Prediction, Stateful, ids_on

BATCH = 64
"""Rows in one forward pass."""
Filling = tuple[int | None, ...]
"""One entry per masked position: a token id, or None for [MASK]."""
Answer = tuple[int, ...]
"""A filling without None: one token id per masked position."""
Rules = Mapping[str, FeedbackRule]


@dataclass(frozen=True)
class Span:
    """One row of ids with [MASK] at `places`."""

    ids: tuple[int, ...]
    places: tuple[int, ...]

    @staticmethod
    def after(context: Sequence[int], masks: int, mask_id: int) -> Span:
        return Span((*context, *[mask_id] * masks), tuple(range(len(context), len(context) + masks)))

    @staticmethod
    def inside(ids: Sequence[int], start: int, masks: int, mask_id: int) -> Span:
        """Masks with visible text on both sides: infilling (appendix D.4)."""
        places = tuple(range(start, start + masks))
        return Span(tuple(mask_id if place in places else token for place, token in enumerate(ids)), places)

    @property
    def open(self) -> Filling:
        """The filling with [MASK] at every position."""
        return (None,) * len(self.places)

    def fill(self, filling: Filling) -> list[int]:
        row = list(self.ids)
        for place, token in zip(self.places, filling, strict=True):
            if token is not None:
                row[place] = token
        return row


def put(filling: Filling, index: int, token: int) -> Filling:
    return (*filling[:index], token, *filling[index + 1 :])


def hard(
    model: Denoiser, span: Span, fillings: Sequence[Filling], batch_size: int = BATCH
) -> Iterator[Float[Tensor, "M V"]]:
    """The model's prediction at the span's positions for each filling, in order."""
    if batch_size < 1:
        raise UsageError(f"batch_size must be at least 1, not {batch_size}")
    for start in range(0, len(fillings), batch_size):
        rows = [span.fill(filling) for filling in fillings[start : start + batch_size]]
        yield from _forward(model, span, model.embed(torch.tensor(rows, device=model.device)))


def parallel(
    model: Denoiser, span: Span, rules: Rules, k: int = 1
) -> tuple[Prediction, dict[str, Float[Tensor, "M V"]]]:
    """The first prediction, from [MASK] at every position, and each rule's prediction after one feedback pass.

    Nothing is committed. The first prediction has at least k candidates. `Mask()` is vanilla parallel decoding.
    """
    (first,) = hard(model, span, [span.open])
    sampling = Sampling(
        mask_id=model.mask_id,
        k=max([k, *(rule.k for rule in rules.values())]),
        needs=needs_of(rules.values()),
    )
    working = first.to(torch.promote_types(model.dtype, torch.float32))
    prediction = reduce_logits(working, sampling, table=model.embedding if "mean" in sampling.needs else None)
    return prediction, _feed_back(model, span, prediction, rules)


def factorised(log_probs: Float[Tensor, "M V"], answers: Sequence[Answer]) -> Float[Tensor, "C"]:
    """log q(y) = sum_j log q_j(y_j): the joint that parallel decoding assumes (section 2.2)."""
    tokens = torch.tensor(answers, device=log_probs.device)
    return log_probs.gather(1, tokens.T).sum(0)


def words(model: Denoiser, answer: Answer) -> str:
    """The answer as text; its ids if the model has no tokenizer."""
    return " ".join(map(str, answer)) if model.tokenizer is None else model.tokenizer.decode(list(answer)).strip()


def _feed_back(model: Denoiser, span: Span, prediction: Prediction, rules: Rules) -> dict[str, Float[Tensor, "M V"]]:
    embeddings = Embeddings(model.embedding, model.embedding[model.mask_id])
    rows = model.embed(torch.tensor([span.ids] * len(rules), device=model.device)).clone()
    for row, rule in zip(rows, rules.values(), strict=True):
        row[list(span.places)] = rule(prediction, embeddings, _first_pass(model, prediction, rule))
    return dict(zip(rules, _forward(model, span, rows), strict=True))


def _first_pass(model: Denoiser, prediction: Prediction, rule: FeedbackRule) -> Context:
    """What the rule knows after the first pass of a decode of the span."""
    token = prediction.token[None]
    whole, none = torch.ones_like(token, dtype=torch.bool), torch.zeros_like(token[:, :1])
    count = whole.sum(1, keepdim=True)
    ends = torch.isin(prediction.topk_ids[None, :, 0], ids_on(token.device, model.eos_ids))
    context = Context(
        none, none, count, count, count, index=whole.cumsum(1) - 1, soft=~whole, ends=ends, in_block=whole
    )
    if isinstance(rule, Stateful):
        start = replace(context, state=rule.init(1, token.shape[1], token.device, len(model.embedding)))
        found = rule.update(start.state, prediction.on(whole), start)
        context = replace(context, state={name: found[name].to(value.dtype) for name, value in start.state.items()})
    return context.at(whole)


@torch.no_grad()
def _forward(model: Denoiser, span: Span, embeds: Float[Tensor, "B L D"]) -> Float[Tensor, "B M V"]:
    """Log-probabilities at the span's positions, with the attention of decoding in one block, as in the paper.

    On a CPU each core computes rows of its own: cores that share a row wait for one another on a busy machine.
    """

    def part(rows: Float[Tensor, "B L D"]) -> Float[Tensor, "B M V"]:
        hidden = model.hidden(rows, block_length=model.attention_block(None))
        return model.head(hidden[:, list(span.places)]).double().log_softmax(-1)

    parts = embeds.chunk(torch.get_num_threads() if model.device.type == "cpu" else 1)
    return torch.cat(map_parts(part, parts))
