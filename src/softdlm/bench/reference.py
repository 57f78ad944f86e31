"""The plain loop, from the published description of LLaDA's sampler: what everything here is measured against.

At every step the whole sequence goes through the stock class, every position through the LM head, and a softmax over
the full vocabulary gives the probability of the best token everywhere; of the masked positions of the current block
the surest are revealed. LLaDA's file takes the softmax in the logits' own type, Fast-dLLM's copy of it in float64:
`precision` says which. One departure: [MASK] itself is never revealed, as nowhere here, so that tokens can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softdlm.models.denoiser import NetworkDenoiser


class Plain(NamedTuple):
    ids: list[int]
    """The new tokens, to the end of the canvas."""
    forwards: int


@torch.no_grad()
def plain_loop(
    model: NetworkDenoiser,
    prompt: Sequence[int],
    new: int,
    rate: int,
    block: int | None = None,
    precision: torch.dtype | None = None,
) -> Plain:
    """Decode one prompt; precision None is the logits' own."""
    ids = torch.tensor([*prompt, *[model.mask_id] * new], device=model.device)[None]
    size, forwards = block or new, 0
    for start in range(len(prompt), ids.shape[1], size):
        inside = slice(start, start + size)
        while left := int((ids[0, inside] == model.mask_id).sum()):
            token, sure = _everywhere(model, ids, precision)
            hidden = (ids != model.mask_id)[0]
            hidden[start + size :] = True
            chosen = sure[0].masked_fill(hidden, -torch.inf).topk(min(rate, left)).indices
            ids[0, chosen] = token[0, chosen]
            forwards += 1
    return Plain(ids[0, len(prompt) :].tolist(), forwards)


def _everywhere(
    model: NetworkDenoiser, ids: Int[Tensor, "1 L"], precision: torch.dtype | None
) -> tuple[Int[Tensor, "1 L"], Float[Tensor, "1 L"]]:
    """The best token of every position and its probability, as one pass of the stock class gives them."""
    logits = model.align(model.network(input_ids=ids, use_cache=False).logits)
    odds = (logits if precision is None else logits.to(precision)).softmax(-1)
    logits[..., model.mask_id] = -torch.inf
    token = logits.argmax(-1)
    return token, odds.gather(-1, token[..., None]).squeeze(-1)
