"""What the products among the kernels share: the sides of their tiles, and how one follows on another."""

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

jit: Any = triton.jit  # what a launch takes is more than its type says
LEAST = 16
"""The narrowest side of a tile that a product takes."""
OVERLAP = True
"""Whether a kernel may be launched while the one before it ends; benchmarks/layers.py measures both."""


def padded(rows: int) -> int:
    """A side that holds so many rows."""
    return max(1 << (rows - 1).bit_length(), LEAST)


def side(most: int, size: int) -> int:
    """The widest side of which `size` is a whole number."""
    return min(most, size & -size)


def overlap(x: Tensor) -> dict[str, Any]:
    """Options of a launch that begins with `after`: programmatic dependent launch, where the GPU can."""
    able = OVERLAP and x.is_cuda and torch.cuda.get_device_capability(x.device) >= (9, 0)
    return {"OVERLAP": True, "launch_pdl": True} if able else {"OVERLAP": False}


@jit
@no_type_check
def after(OVERLAP: tl.constexpr):
    """Wait for the kernel before this one, and let the next one be launched."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
