"""Feedback rules of other published methods that need the full distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from softdlm.distributions import entropy, js, none_yet, nucleus, probs_of
from softdlm.errors import UsageError
from softdlm.feedback import working
from softdlm.registry import named
from softdlm.types import Context, Embeddings, Prediction, RuleState

MOST_TOKENS, LEAST_SHARE, MOST_SHARE = 50, 0.2, 0.9
"""ReMix's set: at most so many tokens, and the clip of its share 2 p_1."""


@named("feedback", "lrd")
@dataclass(frozen=True)
class LRD:
    """(1 - a) e_MASK + a x mean over the nucleus of share p, with a = r_f (1 - H / log V): LRD (arXiv 2510.11052).

    H is the entropy of the model's own distribution, V the vocabulary. The paper takes r_f from 0.1 to 0.2 and p = 0.9.
    """

    r_f: float = 0.15
    p: float = 0.9
    k = 1
    needs = "probs"

    def __post_init__(self) -> None:
        if not 0 <= self.r_f <= 1:
            raise UsageError(f"the largest weight r_f must lie in [0, 1], not {self.r_f}")
        if not 0 < self.p <= 1:
            raise UsageError(f"the nucleus share p must lie in (0, 1], not {self.p}")

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        probs, table, mask = probs_of(prediction), working(embeddings.table), working(embeddings.mask)
        sure = (1 - entropy(probs) / math.log(probs.shape[-1])).clamp(min=0)
        weight = (self.r_f * sure).to(mask.dtype).unsqueeze(-1)
        mean = nucleus(probs, self.p).to(mask.dtype) @ table
        return ((1 - weight) * mask + weight * mean).to(embeddings.table.dtype)


@named("feedback", "remix")
@dataclass(frozen=True)
class ReMix:
    """(1 - mix) e_MASK + mix s in the block, s = sum of p_v e_v over the best tokens and e_MASK for the rest: ReMix.

    The best tokens are at most 50, with a cumulative p of at most clip(2 p_1, 0.2, 0.9), the first in any case. Where
    the distribution jumps, JS(now, last) > reject nats, the position is [MASK] in the next pass. So is every position
    in the first pass of a block and in the second pass of a decode, which has no soft tokens yet.

    With `forget`, as in the published code (Serpientw/ReMix-DLLM), a rejected position forgets its distribution too.
    The next JS is then log(2) / 2 = 0.347: with a smaller `reject` the position stays [MASK] until it is committed.
    """

    mix: float = 0.5
    reject: float = 0.3
    forget: bool = True
    k = 1
    needs = "probs"

    def __post_init__(self) -> None:
        if not 0 <= self.mix <= 1:
            raise UsageError(f"mix must lie in [0, 1], not {self.mix}")
        if not self.reject >= 0:
            raise UsageError(f"the bar reject must be at least 0 nats, not {self.reject}")

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
        no = torch.zeros(rows, length, dtype=torch.bool, device=device)
        return {"last": none_yet(rows, length, device, vocabulary), "seen": no, "rejected": no.clone()}

    def update(self, state: RuleState, prediction: Prediction, context: Context) -> RuleState:
        probs = probs_of(prediction)
        rejected = context.in_block & state["seen"] & (js(probs, state["last"]) > self.reject)
        kept = probs.masked_fill(rejected.unsqueeze(-1), 0) if self.forget else probs
        return {"last": kept, "seen": torch.ones_like(state["seen"]), "rejected": rejected}

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        probs, mask = probs_of(prediction), working(embeddings.mask)
        best = probs.topk(min(MOST_TOKENS, probs.shape[-1]), dim=-1)
        within = best.values.cumsum(-1) <= (2 * best.values[:, :1]).clamp(LEAST_SHARE, MOST_SHARE)
        within[:, 0] = True
        weights = best.values.where(within, 0).to(mask.dtype).unsqueeze(-1)
        mean = (weights * working(embeddings.table[best.indices])).sum(1) + (1 - weights.sum(1)) * mask
        hard = ~context.in_block | (context.passes == 0) | context.state["rejected"]
        soft = torch.where(hard.unsqueeze(-1), mask, (1 - self.mix) * mask + self.mix * mean)
        return soft.to(embeddings.table.dtype)
