"""Distributions over the vocabulary: how far one moved since the last pass, and its most likely part.

Rules that compare a pass with the one before keep the last distribution in their memory, in float32: the probabilities
of a float64 model lose at most one part in 10^7 there, far below any bar that a rule compares with.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.types import Prediction

FLOOR = 1e-12
"""Least probability inside a logarithm (KLASS's value): against no last distribution KL is then about 27 nats."""


def probs_of(prediction: Prediction) -> Float[Tensor, "*S V"]:
    """The full distribution, for rules that declare that they need it."""
    if prediction.probs is None:
        raise UsageError('this rule reads the full distribution: make the prediction with needs="probs"')
    return prediction.probs


def none_yet(rows: int, length: int, device: torch.device, vocabulary: int) -> Float[Tensor, "B L V"]:
    """Where the last distribution is kept, before the first pass: zeros."""
    return torch.zeros(rows, length, vocabulary, device=device)


def kl(now: Float[Tensor, "*S V"], last: Float[Tensor, "*S V"]) -> Float[Tensor, "*S"]:
    """KL(now || last) in nats."""
    return (now * (now.clamp(min=FLOOR).log() - last.clamp(min=FLOOR).log())).sum(-1)


def js(one: Float[Tensor, "*S V"], other: Float[Tensor, "*S V"]) -> Float[Tensor, "*S"]:
    """The Jensen-Shannon divergence in nats: at most log 2, and half of that against zeros."""
    middle = (one + other) / 2
    return ((one.xlogy(one) + other.xlogy(other)) / 2 - middle.xlogy(middle)).sum(-1)


def entropy(probs: Float[Tensor, "*S V"]) -> Float[Tensor, "*S"]:
    """Of the distribution after it is divided by its sum, in nats."""
    shares = _renormalised(probs)
    return -shares.xlogy(shares).sum(-1)


def nucleus(probs: Float[Tensor, "*S V"], share: float) -> Float[Tensor, "*S V"]:
    """The fewest best tokens that together have this share, renormalised; 0 elsewhere."""
    ranked = _renormalised(probs).sort(dim=-1, descending=True, stable=True)
    before = ranked.values.cumsum(-1) - ranked.values
    kept = ranked.values.masked_fill(before >= share, 0)
    return _renormalised(torch.zeros_like(kept).scatter(-1, ranked.indices, kept))


def _renormalised(probs: Float[Tensor, "*S V"]) -> Float[Tensor, "*S V"]:
    return probs / probs.sum(-1, keepdim=True).clamp(min=torch.finfo(probs.dtype).tiny)
