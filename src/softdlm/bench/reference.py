"""The plain loop, the baseline of every bench: LLaDA's sampler as published.

In every pass the whole sequence goes through the stock network and every position through the LM head. A softmax over
the full vocabulary gives the probability of each position's best token, and the most probable of the masked positions
of the current block are revealed. LLaDA's code computes the softmax in the logits' dtype, Fast-dLLM's copy in float64;
`precision` selects one. There is one difference: [MASK] is never revealed, as everywhere in softdlm, so that tokens can
be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softdlm.models.denoiser import NetworkDenoiser


class PlainDecode(NamedTuple):
    ids: list[int]
    """The new tokens, up to the end of the canvas."""
    forwards: int


@torch.no_grad()
def plain_loop(
    model: NetworkDenoiser,
    prompt: Sequence[int],
    new: int,
    rate: int,
    block: int | None = None,
    precision: torch.dtype | None = None,
) -> PlainDecode:
    """Decode one prompt; with precision None the softmax is computed in the logits' dtype."""
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
    return PlainDecode(ids[0, len(prompt) :].tolist(), forwards)


def _everywhere(
    model: NetworkDenoiser, ids: Int[Tensor, "1 L"], precision: torch.dtype | None
) -> tuple[Int[Tensor, "1 L"], Float[Tensor, "1 L"]]:
    """The best token of every position and its probability, from one pass of the stock network."""
    logits = model.align(model.network(input_ids=ids, use_cache=False).logits)
    odds = (logits if precision is None else logits.to(precision)).softmax(-1)
    logits[..., model.mask_id] = -torch.inf
    token = logits.argmax(-1)
    return token, odds.gather(-1, token[..., None]).squeeze(-1)
