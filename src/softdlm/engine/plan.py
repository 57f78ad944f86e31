"""A Decoding bound to a model: everything that stays the same over a decode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softdlm.blocks import Blocks, first
from softdlm.cache import CachePolicy, Caching
from softdlm.commit import CommitRule
from softdlm.decoding import Decoding, EarlyFinish
from softdlm.errors import PromptError
from softdlm.feedback import FeedbackRule, is_vanilla
from softdlm.models.denoiser import Denoiser
from softdlm.predict import Sampling
from softdlm.registry import inside, needs_of
from softdlm.types import Canvas, Embeddings, Step, ids_on


@dataclass(frozen=True)
class Plan:
    """What stays the same over a decode."""

    model: Denoiser
    commit: CommitRule
    feedback: FeedbackRule
    blocks: Blocks
    caching: Caching
    sampling: Sampling
    early_finish: EarlyFinish
    ends: Int[Tensor, "_"]
    """The model's EOS ids."""

    @staticmethod
    def of(model: Denoiser, decoding: Decoding) -> Plan:
        """A settled Decoding on this model."""
        commit, feedback = decoding.rules
        rules = [*inside(commit), *inside(feedback)]
        sampling = Sampling(
            model.mask_id,
            **decoding.token_policy(model),
            **decoding.sampling,
            k=max(decoding.candidates or 1, *(getattr(rule, "k", 0) for rule in rules)),
            needs=needs_of(decoding.rules),
        )
        blocks = Blocks.of(model, decoding.block_length)
        assert not isinstance(decoding.cache, str)
        caching = Caching.of(blocks, decoding.cache)
        if caching.policy is not None:
            model.position_bytes()  # refuses a model without a KV cache
        finish, ends = decoding.early_finish or False, ids_on(model.device, model.eos_ids)
        return Plan(model, commit, feedback, blocks, caching, sampling, finish, ends)

    @property
    def vanilla(self) -> bool:
        """Whether an open position stays [MASK], so that only the block's positions need a prediction."""
        return is_vanilla(self.feedback)

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn at random."""
        return self.sampling.temperature > 0

    @property
    def embeddings(self) -> Embeddings:
        return Embeddings(self.model.embedding, self.model.embedding[self.model.mask_id])

    def finished(self, step: Step) -> Bool[Tensor, "B"]:
        """Rows in which nothing is open before the first EOS: what comes after never reaches the text."""
        if not self.early_finish:
            return torch.zeros_like(step.block_closed)
        done = eos_reached(step.canvas, self.ends)
        return done & step.block_closed if self.early_finish == "block" else done

    @property
    def key(self) -> tuple[Any, ...]:
        """What two decodes must share to use the same captured passes."""
        policy: CachePolicy | None = self.caching.policy
        return self.commit, self.feedback, self.blocks, policy, self.sampling, self.early_finish


def eos_reached(canvas: Canvas, eos_ids: Int[Tensor, "_"]) -> Bool[Tensor, "B"]:
    """Rows whose answer holds an EOS with no open position before it."""
    ends = torch.isin(canvas.ids, eos_ids) & canvas.free & ~canvas.open
    before = torch.arange(canvas.ids.shape[1], device=canvas.ids.device) < first(ends)
    return ends.any(1) & ~(canvas.open & before).any(1)


def check_start(model: Denoiser, first: int) -> None:
    """`first` is the first position that is to be predicted: the length of the prompt."""
    if first < model.first_open:
        raise PromptError("an empty prompt: this model predicts a token from the one before it; begin with BOS")


def check_length(model: Denoiser, length: int) -> None:
    if model.max_length is not None and length > model.max_length:
        raise PromptError(f"prompt and answer take {length} tokens, the model's context is {model.max_length}")
