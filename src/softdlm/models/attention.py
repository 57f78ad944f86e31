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
    """transformers' scaled dot-product attention; of few queries by kernels that can share the keys out.

    cuDNN's, which torch prefers on recent GPUs, took 23 us a layer for a block of 32 over 1,536 keys on an H200, four
    times what reading the keys and values takes. Whether these are quicker is not measured yet.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    few = query.is_cuda and query.shape[2] < key.shape[2]
    with sdpa_kernel(SHARING) if few else nullcontext():
        return sdpa_attention_forward(module, query, key, *rest, **named)
