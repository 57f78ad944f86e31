"""Attention of stock networks: who sees whom is ours to say."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

ATTENTION = "softdlm"
"""transformers' name for scaled dot-product attention with our patterns and no others."""
SHARING = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""All but cuDNN's."""
TILE, PROCESSORS = 64, 128
"""Queries that a kernel takes at once, and about the number of a GPU's multiprocessors (132 on an H200)."""


def both_ways() -> dict[str, Any]:
    """The configuration that takes the causal mask off a stock network, and every other that it would make.

    Attention of a name for which transformers knows no masks gets the pattern that it is given, or none. Left to itself
    it may make one of ones under the capture of a CUDA graph (5.17 does), with which a whole pass of LLaDA-8B's shape
    took 107 ms on an H200 instead of 46.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, attend)
    return {"is_causal": False, "attn_implementation": ATTENTION}


def attend(
    module: Any, query: Float[Tensor, "B heads Q d"], key: Float[Tensor, "B kv K d"], *rest: Any, **named: Any
) -> Any:
    """transformers' scaled dot-product attention; of few queries by kernels that share the keys out.

    cuDNN's, which torch prefers on recent GPUs, presumably gives each head and tile of queries to one multiprocessor:
    for a block of 32 over 1,536 keys, bfloat16, 32 heads of an H200, it took 24 us where flash attention took 19, but
    55 against 80 for eight rows and 66 against 127 for a whole canvas (one run, without a result file).
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    batch, heads, queries, _ = query.shape
    few = query.is_cuda and batch * heads * -(-queries // TILE) < PROCESSORS
    with sdpa_kernel(SHARING) if few else nullcontext():
        return sdpa_attention_forward(module, query, key, *rest, **named)
