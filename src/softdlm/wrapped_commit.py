"""Commit rules around another commit rule."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from softdlm.commit import CommitRule, check_inner, rate_label, wait_of
from softdlm.registry import named
from softdlm.types import Context, Prediction


@dataclass(frozen=True)
class Around:
    """What rules around another one share: they wait as long as the rule `then`, which has no memory."""

    then: CommitRule

    @property
    def may_wait(self) -> int:
        return wait_of(self.then)

    def __post_init__(self) -> None:
        check_inner(self.then)


@named("commit", "lead_in")
@dataclass(frozen=True)
class LeadIn(Around):
    """A block's first open position alone in its first pass, whatever its confidence; from then on the rule `then`.

    Fast-dLLM's Dream with a cache, `LeadIn(Threshold(0.9))`: its cached passes cannot predict that position, which
    depends on the state before the block. Ours can, so there it is a choice.
    """

    def __str__(self) -> str:
        return f"first alone, then {rate_label(self.then)}"

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        leading = open & (open.cumsum(1) == 1)
        return torch.where(context.block_passes == 0, leading, self.then(prediction, open, context))


@named("commit", "hard_only")
@dataclass(frozen=True)
class HardOnly(Around):
    """The rule `then` among the positions whose input was [MASK] in this pass; among all where no such one is open.

    Beside `Alternate`, every position is judged only in passes in which it sees its neighbours' soft tokens and not its
    own. A token that is to commit last waits for the soft positions too.
    """

    def __str__(self) -> str:
        return f"{rate_label(self.then)}, hard only"

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        soft, deferred = open & context.soft, prediction.deferred
        hard = open & ~soft & ~(deferred & (soft & ~deferred).any(1, keepdim=True))
        return self.then(prediction, torch.where(hard.any(1, keepdim=True), hard, open), context)
