"""What the matrix-product kernels share: tile sizes, and overlapping launches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

jit: Any = triton.jit  # typed Any: a launch accepts options that its type does not declare
LEAST = 16
"""Shortest side of a tile that tl.dot accepts."""
LEAST_8 = 32
"""The same for numbers in eight bits."""
SPARE = 27 * 1024
"""Bytes of shared memory that tiles leave free: on an H200 they use at most 200 of 227 KiB."""
OVERLAP = True
"""Whether a kernel may start while the previous one ends; benchmarks/layers.py measures both."""


def padded(rows: int) -> int:
    """The shortest side that holds this many rows: a power of two, at least LEAST."""
    return max(1 << (rows - 1).bit_length(), LEAST)


def side(most: int, size: int) -> int:
    """The longest side, at most `most`, that divides `size`."""
    return min(most, size & -size)


@dataclass(frozen=True)
class Tiles:
    """Layout of a product on a GPU: outputs and inputs per tile of weights, pipeline stages, warps."""

    outputs: int = 64
    inputs: int = 128
    stages: int = 4
    warps: int = 4

    def launch(self, x: Tensor, rows: int, outputs: int, inputs: int, matrices: int = 1) -> dict[str, Any]:
        """Launch options for `rows` rows of x and `matrices` matrices, with smaller tiles if shared memory is short."""
        outputs, inputs, rows = side(self.outputs, outputs), side(self.inputs, inputs), padded(rows)
        column, free = (outputs * matrices + rows) * x.element_size(), room(x.device)
        while 2 * column * inputs > free and inputs > LEAST:
            inputs //= 2
        tile = {"OUTPUTS": outputs, "INPUTS": inputs, "ROWS": rows}
        return tile | {"num_stages": max(min(self.stages, free // (column * inputs)), 2), "num_warps": self.warps}


@cache
def room(device: torch.device) -> int:
    """Bytes of shared memory for tiles; in Triton's interpreter, those of an H200."""
    if device.type != "cuda":
        return 200 * 1024
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin - SPARE


def overlap(x: Tensor) -> dict[str, Any]:
    """Launch options of a kernel that begins with `after`: programmatic dependent launch if the GPU supports it."""
    able = OVERLAP and x.is_cuda and torch.cuda.get_device_capability(x.device) >= (9, 0)
    return {"OVERLAP": True, "launch_pdl": True} if able else {"OVERLAP": False}


@jit
@no_type_check
def after(OVERLAP: tl.constexpr):
    """Wait for the previous kernel, then allow the next one to be launched."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
