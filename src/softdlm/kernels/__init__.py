"""Fused steps of a decode for GPUs: the vocabulary reduction, the soft embedding, and parts of networks.

Each stands beside the torch code that it must equal: `vocabulary` beside `predict.reduce_logits`, `soft` beside the
rules of `feedback`, `router` and `experts` (models/mixture.py), `thin` and `attend` (models/thin.py) beside layers of
transformers. Those modules say when a fused step applies, this one whether it is wanted and which there is.
Triton is imported when a GPU first asks for it, not before.
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
"""Environment variable: "auto" (the default) or "off", to compare with or to rule out the kernels."""


def wanted(device: torch.device) -> bool:
    """Fused steps are for CUDA. A CPU keeps to plain torch, whose bits do not depend on the batch."""
    value = os.environ.get(SWITCH, "auto")
    if value not in ("auto", "off"):
        raise UsageError(f"{SWITCH} must be auto or off, not {value!r}")
    return value == "auto" and device.type == "cuda"


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def reduce_greedy(logits: Float[Tensor, "N V"], special: Special, k: int) -> Prediction:
    """The greedy reduction for a GPU: Triton's where it is installed, else tiles in torch."""
    if not has_triton():
        return reduce_tiled(logits, special, k)
    from softdlm.kernels.vocabulary_triton import reduce_triton

    return reduce_triton(logits, special, k)
