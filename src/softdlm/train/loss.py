"""The masked-diffusion loss of LLaDA's supervised fine-tuning. Inputs are tokens and [MASK], never soft tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from softdlm.models.attention import attention_pattern
from softdlm.train.batches import Batch

LEAST = 1e-3
"""Smallest masking probability p; it bounds the weight 1 / p."""


@dataclass(frozen=True)
class Noised:
    """A batch with part of its answers masked; A is the length of the longest answer region."""

    ids: Int[Tensor, "B L"]
    targets: Int[Tensor, "B A"]
    weight: Float[Tensor, "B A"]
    """1 / p / answer length / rows where masked, 0 elsewhere: the loss is the weighted sum of cross-entropies."""


def noise(batch: Batch, mask_id: int, generator: torch.Generator) -> Noised:
    """Mask each position of an answer region with its row's probability p = (1 - LEAST) t + LEAST.

    t is uniform and stratified: row i of B draws it from the i-th of B equal intervals, so batches differ less.
    """
    rows, device = len(batch.ids), batch.ids.device
    uniform = torch.rand(rows, 1 + batch.places.shape[1], generator=generator, device=device)
    t = (torch.arange(rows, device=device) + uniform[:, 0]) / rows
    p = (1 - LEAST) * t + LEAST
    masked: Bool[Tensor, "B A"] = (uniform[:, 1:] < p[:, None]) & batch.open
    targets = batch.ids.gather(1, batch.places)
    ids = batch.ids.scatter(1, batch.places, targets.masked_fill(masked, mask_id))
    return Noised(ids, targets, masked / (p * batch.answer * rows)[:, None])


def arguments(batch: Batch, noised: Noised) -> tuple[Tensor, ...]:
    """The arguments of `network_loss` after the network."""
    pattern = attention_pattern(batch.real, batch.positions, None)
    assert pattern is not None
    return noised.ids, pattern, batch.positions[:1], batch.places, noised.targets, noised.weight


def network_loss(
    network: Any,
    ids: Int[Tensor, "B L"],
    pattern: Bool[Tensor, "B 1 L L"],
    positions: Int[Tensor, "1 L"],
    places: Int[Tensor, "B A"],
    targets: Int[Tensor, "B A"],
    weight: Float[Tensor, "B A"],
) -> Float[Tensor, ""]:
    """The weighted sum of cross-entropies.

    Inputs are tensors of fixed shapes, so it compiles once. Only answer positions go through the LM head.
    """
    states = network.model(input_ids=ids, attention_mask=pattern, position_ids=positions, use_cache=False)
    hidden = states.last_hidden_state
    answers = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))
    logits = network.lm_head(answers).float()
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * weight.flatten()).sum()
