"""Log-likelihood of a continuation under a masked diffusion model, by Monte Carlo.

LLaDA's estimator (Nie et al. 2025, section 2.4 and appendix): mask l of the L tokens of the continuation, l uniform
in 1..L, which l uniform without replacement; L / l times the sum of the log-probabilities of the masked tokens is an
unbiased draw of a lower bound of log p(continuation | context). The draws of one request share their l's out evenly
(systematic sampling: one random offset), which leaves each uniform and the mean steadier.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.engine.plan import check_length, check_start
from softdlm.errors import UsageError
from softdlm.models.denoiser import Denoiser

_CHUNK_ELEMENTS = 2**26
"""Logits handled at once."""


def log_likelihood(
    model: Denoiser,
    context: Sequence[int],
    target: Sequence[int],
    *,
    samples: int = 128,
    seed: int = 0,
    batch_size: int = 16,
) -> float:
    """The mean over `samples` draws, in nats; a function of the seed, not of the batch."""
    if not target:
        raise UsageError("an empty continuation has no log-likelihood")
    check_start(model, len(context))
    check_length(model, len(context) + len(target))
    masks = draw_masks(len(target), samples, torch.Generator().manual_seed(seed))
    rows = torch.tensor([*context, *target]).expand(samples, -1)
    hidden = torch.cat([torch.zeros(samples, len(context), dtype=torch.bool), masks], 1)
    values = [
        _weighted(model, ids, mask, len(target))
        for ids, mask in zip(rows.split(batch_size), hidden.split(batch_size), strict=True)
    ]
    return float(torch.cat(values).mean())


def draw_masks(length: int, samples: int, generator: torch.Generator) -> Bool[Tensor, "samples length"]:
    """Rows of masks: their sizes cover 1..length evenly, each row's places are a uniform choice."""
    offset = torch.rand(1, generator=generator, dtype=torch.float64)
    spread = (offset + torch.arange(samples, dtype=torch.float64) / samples) % 1
    sizes = 1 + (spread * length).long().clamp(max=length - 1)
    places = torch.rand(samples, length, generator=generator).argsort(1).argsort(1)
    return places < sizes[:, None]


@torch.no_grad()
def _weighted(model: Denoiser, ids: Int[Tensor, "B L"], mask: Bool[Tensor, "B L"], length: int) -> Float[Tensor, "B"]:
    ids, mask = ids.to(model.device), mask.to(model.device)
    hidden = model.hidden(model.embed(ids.masked_fill(mask, model.mask_id)))
    chosen = _token_log_probs(model, hidden[mask], ids[mask])
    total = torch.zeros(len(ids), dtype=chosen.dtype, device=chosen.device)
    total.index_add_(0, mask.nonzero()[:, 0], chosen)
    return (total * length / mask.sum(1)).double().cpu()


def _token_log_probs(model: Denoiser, hidden: Float[Tensor, "N H"], tokens: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Under the full vocabulary, a bounded number of rows at a time."""
    size = max(1, _CHUNK_ELEMENTS // len(model.embedding))
    parts = []
    for rows, wanted in zip(hidden.split(size), tokens.split(size), strict=True):
        logits = model.head(rows)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        parts.append(logits.log_softmax(-1).gather(-1, wanted[:, None]).squeeze(-1))
    return torch.cat(parts)
