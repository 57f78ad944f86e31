"""Feedback rules around another feedback rule: where its soft tokens are fed, and where [MASK] is fed instead."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.feedback import FeedbackRule
from softdlm.parsing import whole
from softdlm.registry import named, spell
from softdlm.types import Context, Embeddings, Prediction, RuleState, Stateful, first_memory


@dataclass(frozen=True)
class Around:
    """What rules around another one share; `turn` says where the inner rule's soft tokens are fed."""

    feedback: FeedbackRule

    def __post_init__(self) -> None:
        if not isinstance(self.feedback, FeedbackRule):
            name = spell(self).partition("(")[0]
            raise UsageError(f"{name} needs a feedback rule inside, such as slerp(k=1, lam=0.5), not {self.feedback!r}")

    @property
    def k(self) -> int:
        return self.feedback.k

    def turn(self, context: Context) -> Bool[Tensor, "*S"]:
        raise TypeError(f"{type(self).__name__} must define turn()")

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
        return first_memory(self.feedback, rows, length, device, vocabulary)

    def update(self, state: RuleState, prediction: Prediction, context: Context) -> RuleState:
        return self.feedback.update(state, prediction, context) if isinstance(self.feedback, Stateful) else state

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        soft = self.feedback(prediction, embeddings, context)
        return torch.where(self.turn(context).unsqueeze(-1), soft, embeddings.mask)


@named("feedback", "alternate")
@dataclass(frozen=True)
class Alternate(Around):
    """`feedback` where (position + pass) mod period < soft, else [MASK]: no position sees its own guess all the time.

    Positions count from the start of the answer, passes from 0; the pass is the one that is fed. With the defaults each
    position is soft in every second pass, and its neighbours in the passes between.
    """

    period: int = 2
    soft: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("period", "soft"):
            whole(name, getattr(self, name))
        if not 1 <= self.soft <= self.period:
            raise UsageError(f"need 1 <= soft <= period, not soft={self.soft} period={self.period}")

    def turn(self, context: Context) -> Bool[Tensor, "*S"]:
        """Where the next pass is to see a soft token."""
        return (context.index + context.passes + 1) % self.period < self.soft


@named("feedback", "no_eos")
@dataclass(frozen=True)
class NoEos(Around):
    """`feedback`, but [MASK] where the likeliest candidate is EOS: how long the answer is, is not decided by guesses.

    A soft EOS says that the answer has ended. Positions before it take that as settled and leave out what is missing.
    """

    def turn(self, context: Context) -> Bool[Tensor, "*S"]:
        return ~context.ends
