"""GPU kernels: the vocabulary reduction, soft tokens, and parts of the networks.

Each must equal torch code elsewhere: `vocabulary` equals `predict.reduce_logits`, `soft` the rules of `feedback`;
`router` and `experts` (used by models/moe.py), `few_rows` and `split_kv_attention` (used by models/narrow_layers.py)
equal layers of transformers. The callers decide when a kernel applies; this module says whether kernels are switched
on and which are installed. Triton is imported when the first kernel runs on a GPU, not before.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch
from jaxtyping import Float
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.kernels.vocabulary import Special, reduce_tiled
from softdlm.types import Prediction

SWITCH = "SOFTDLM_KERNELS"
"""Environment variable: "auto" (the default), or "off" to run plain torch instead of the kernels."""


def wanted(device: torch.device) -> bool:
    """Whether to use kernels: on CUDA unless switched off. On a CPU plain torch gives equal bits in every batch."""
    value = os.environ.get(SWITCH, "auto")
    if value not in ("auto", "off"):
        raise UsageError(f"{SWITCH} must be auto or off, not {value!r}")
    return value == "auto" and device.type == "cuda"


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def reduce_greedy(logits: Float[Tensor, "N V"], special: Special, k: int) -> Prediction:
    """The greedy vocabulary reduction on a GPU: with Triton if it is installed, else tile by tile in torch."""
    if not has_triton():
        return reduce_tiled(logits, special, k)
    from softdlm.kernels.vocabulary_triton import reduce_triton

    return reduce_triton(logits, special, k)
