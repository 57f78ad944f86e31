"""Attention of stock transformers networks under our own masks instead of the causal one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from softdlm import kernels

Attention = Literal["auto", "full", "block-causal"]
"""What positions of one canvas see of each other; `auto` is what the family was trained with."""
ATTENTION = "softdlm"
"""Name under which transformers finds our attention: scaled dot-product, with the masks that we pass and no others."""
SPLIT_KV_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Backends that split the keys among multiprocessors: all but cuDNN's."""
SPLIT = kernels.wanted(torch.device("cuda")) and kernels.has_triton()
"""Whether few queries without a mask go to our own kernel."""
TILE, PROCESSORS = 64, 128
"""Queries in a kernel's tile, and about the number of multiprocessors of a GPU (132 on an H200)."""


def bidirectional() -> dict[str, Any]:
    """Configuration that removes the causal mask of a stock network, and any other mask it would build.

    transformers builds no mask for an attention name that it does not know: the network gets our mask or none. Under
    its own names, 5.17 builds a mask of ones while a CUDA graph is captured; a whole pass of LLaDA-8B's shape then took
    107 ms on an H200 instead of 46.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, attend)
    return {"is_causal": False, "attn_implementation": ATTENTION}


def attend(
    module: Any,
    query: Float[Tensor, "B heads Q d"],
    key: Float[Tensor, "B kv K d"],
    value: Float[Tensor, "B kv K d"],
    mask: Tensor | None,
    **named: Any,
) -> Any:
    """transformers' scaled dot-product attention; with few queries, only kernels that split the keys are allowed.

    torch prefers cuDNN's kernel on recent GPUs, which presumably gives each head and tile of queries to one
    multiprocessor. On an H200 (bfloat16, 32 heads, 1,536 keys) it took 24 us for a block of 32 where flash attention
    took 19, but 55 against 80 for eight rows and 66 against 127 for a whole canvas (one run, without a result file).
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    batch, heads, queries, width = query.shape
    few = query.is_cuda and batch * heads * -(-queries // TILE) < PROCESSORS
    if few and SPLIT and queries <= TILE < key.shape[2] and mask is None and width in (32, 64, 128):
        from softdlm.kernels.split_kv_attention import attend_apart

        apart = query.transpose(1, 2).contiguous()
        return attend_apart(apart, key.contiguous(), value.contiguous(), named["scaling"]), None
    with sdpa_kernel(SPLIT_KV_BACKENDS) if few else nullcontext():
        return sdpa_attention_forward(module, query, key, value, mask, **named)


def attention_pattern(
    real: Bool[Tensor, "B L"] | None,
    positions: Int[Tensor, "B L"],
    block_length: int | None,
    queries: Int[Tensor, "B Q"] | None = None,
    block_start: Int[Tensor, "B 1"] | None = None,
) -> Bool[Tensor, "B 1 Q L"] | None:
    """Attention mask: [b, 0, i, j] is True where query i sees key j. None means full attention.

    `queries` are indices into the keys; None means that every key is a query. Blocks are counted from position 0, or in
    both directions from `block_start`. Each position sees itself even where all else is hidden, so that padding never
    leaves a query without keys, which would give NaN.
    """
    if real is None and block_length is None:
        return None
    keys = torch.arange(positions.shape[1], device=positions.device)
    places = keys.expand_as(positions) if queries is None else queries
    seen = torch.ones(*places.shape, len(keys), dtype=torch.bool, device=positions.device)
    if real is not None:
        seen &= real[:, None, :]
    if block_length is not None:
        block = (positions if block_start is None else positions - block_start) // block_length
        seen &= block[:, None, :] <= block.gather(1, places)[:, :, None]
    seen |= keys == places[:, :, None]
    return seen[:, None]


def aligned(raw: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
    """Row j from the state at j - 1, which predicts it in Dream and other networks that keep their parent's shift."""
    return torch.cat([raw[:, :1], raw[:, :-1]], dim=1)
