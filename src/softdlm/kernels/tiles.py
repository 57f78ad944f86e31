"""What the products among the kernels share: the sides of their tiles, and how one follows on another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

jit: Any = triton.jit  # what a launch takes is more than its type says
LEAST = 16
"""The narrowest side of a tile that a product takes."""
SPARE = 27 * 1024
"""Bytes of a multiprocessor's own memory that tiles leave free: of an H200's 227 KiB they take 200 at most."""
OVERLAP = True
"""Whether a kernel may be launched while the one before it ends; benchmarks/layers.py measures both."""


def padded(rows: int) -> int:
    """A side that holds so many rows."""
    return max(1 << (rows - 1).bit_length(), LEAST)


def side(most: int, size: int) -> int:
    """The widest side of which `size` is a whole number."""
    return min(most, size & -size)


@dataclass(frozen=True)
class Tiles:
    """How a product is laid out on a GPU: outputs and inputs of a tile of weights, and the tiles under way at once."""

    outputs: int = 64
    inputs: int = 128
    stages: int = 4
    warps: int = 4

    def launch(self, x: Tensor, rows: int, outputs: int, inputs: int, matrices: int = 1) -> dict[str, Any]:
        """Options for so many rows of x and matrices of outputs x inputs: these tiles, or as much as finds room."""
        outputs, inputs, rows = side(self.outputs, outputs), side(self.inputs, inputs), padded(rows)
        column, free = (outputs * matrices + rows) * x.element_size(), room(x.device)
        while 2 * column * inputs > free and inputs > LEAST:
            inputs //= 2
        tile = {"OUTPUTS": outputs, "INPUTS": inputs, "ROWS": rows}
        return tile | {"num_stages": max(min(self.stages, free // (column * inputs)), 2), "num_warps": self.warps}


@cache
def room(device: torch.device) -> int:
    """Bytes that tiles may take; the interpreter's are an H200's."""
    if device.type != "cuda":
        return 200 * 1024
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin - SPARE


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
