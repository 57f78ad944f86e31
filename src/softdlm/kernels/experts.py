"""A mixture of experts in four Triton kernels per layer, without sorting or copying tokens.

A *choice* is a pair (token, chosen expert). `_arrange` groups the choices by expert. `_gate_up` multiplies each token,
read in place, by the gate and up weights of its experts. `_down` writes the weighted result of each choice, and
`_total` adds those of each token. An expert with no more tokens than a tile has its weights read once, so the time is
that of reading the chosen experts. transformers sorts, gathers, activates, weighs and scatters in separate kernels,
and its grouped product is for bfloat16 only.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor, library

from softdlm.kernels.tiles import LEAST, Tiles, jit, padded, side

TILES = Tiles(outputs=128, inputs=64)
"""The fastest tile sizes measured (benchmarks/layers.py; others in dev/LOG.md)."""
MOST = 64
"""Most choices per tile."""
CHUNK = 1024
"""Choices that a program of `_arrange` reads at once."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def fits(dtype: torch.dtype, *sides: int) -> bool:
    """Whether weights of this dtype and these sizes divide into tiles."""
    return dtype in DTYPES and all(side(LEAST, each) == LEAST for each in sides)


@library.custom_op(
    "softdlm::mix",
    mutates_args=(),
    schema="(Tensor hidden, Tensor ids, Tensor weights, Tensor gate_up, Tensor down) -> Tensor",
)
def mix(
    hidden: Float[Tensor, "N D"], ids: Int[Tensor, "N k"], weights: Float[Tensor, "N k"],
    gate_up: Float[Tensor, "E M2 D"], down: Float[Tensor, "E D M"],
) -> Float[Tensor, "N D"]:  # fmt: skip
    """For each token, the weighted sum of the outputs of its chosen experts."""
    return mix_with(TILES, tile_rows(ids.numel(), len(down)), hidden, ids, weights, gate_up, down)


@mix.register_fake
def _(hidden: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    return hidden.new_empty(hidden.shape)


def tile_rows(choices: int, experts: int) -> int:
    """Choices per tile: an expert's share if all experts are chosen equally often, rounded up to a power of two."""
    return min(padded(-(-choices // experts)), MOST)


def mix_with(
    tiles: Tiles, rows: int, hidden: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor
) -> Float[Tensor, "N D"]:
    experts, width, middle = down.shape
    choices, k = ids.numel(), ids.shape[1]
    mixed = hidden.new_empty(hidden.shape)
    if choices == 0:
        return mixed
    order, offsets = arrange(ids, experts)
    inner, made = hidden.new_empty(choices, middle), hidden.new_empty(choices, width)
    most = min(-(-choices // rows) + experts, choices)
    sizes = {"EXPERTS": experts, "EVERY": triton.next_power_of_2(experts), "WIDTH": width, "MIDDLE": middle}
    launch = tiles.launch(hidden, rows, middle, width, matrices=2)
    _gate_up[(middle // launch["OUTPUTS"], most)](
        hidden.contiguous(), gate_up, inner, order, offsets, k, **sizes, **launch
    )
    launch = tiles.launch(hidden, rows, width, middle)
    _down[(width // launch["OUTPUTS"], most)](
        inner, down, made, order, offsets, weights.contiguous(), **sizes, **launch
    )
    _total[(len(ids),)](made, mixed, K=k, WIDTH=width, ALL=triton.next_power_of_2(width), num_warps=4)
    return mixed


def arrange(ids: Int[Tensor, "N k"], experts: int) -> tuple[Int[Tensor, "S"], Int[Tensor, "E1"]]:
    """Indices of the choices, grouped by expert and in order within each, and the start of each group."""
    order = ids.new_empty(ids.numel(), dtype=torch.int32)
    offsets = ids.new_empty(experts + 1, dtype=torch.int32)
    _arrange[(experts,)](ids.contiguous(), ids.numel(), order, offsets, CHUNK=CHUNK, num_warps=4)
    return order, offsets


@jit
@no_type_check
def _arrange(ids, choices, order, offsets, CHUNK: tl.constexpr):
    """Counting sort with one program per expert: it counts the choices of lower experts and puts its own after them."""
    expert = tl.program_id(0)
    lane = tl.arange(0, CHUNK)
    lower = tl.zeros([CHUNK], tl.int32)
    for start in range(0, choices, CHUNK):
        id = tl.load(ids + start + lane, mask=start + lane < choices, other=expert)
        lower += (id < expert).to(tl.int32)
    begin = tl.sum(lower, 0)
    tl.store(offsets + expert, begin)
    for start in range(0, choices, CHUNK):
        id = tl.load(ids + start + lane, mask=start + lane < choices, other=-1)
        own = (id == expert).to(tl.int32)
        tl.store(order + begin + tl.cumsum(own, 0) - 1, start + lane, mask=own != 0)
        begin += tl.sum(own, 0)
    if expert == tl.num_programs(0) - 1:
        tl.store(offsets + expert + 1, begin)


@jit
@no_type_check
def _find(offsets, EXPERTS: tl.constexpr, EVERY: tl.constexpr, ROWS: tl.constexpr):
    """The expert of this program's tile, its first choice and the end of the expert's choices; empty after the last."""
    tile = tl.program_id(1)
    number = tl.arange(0, EVERY)
    here = number < EXPERTS
    begin = tl.load(offsets + number, mask=here, other=0)
    end = tl.load(offsets + number + 1, mask=here, other=0)
    tiles = (end - begin + ROWS - 1) // ROWS
    through = tl.cumsum(tiles, 0)
    expert = tl.minimum(tl.sum((through <= tile).to(tl.int32), 0), EXPERTS - 1)
    before = tl.sum(tl.where(number < expert, tiles, 0), 0)
    first = tl.load(offsets + expert) + (tile - before) * ROWS
    return expert.to(tl.int64), first, tl.load(offsets + expert + 1)


@jit
@no_type_check
def _gate_up(
    hidden, weight, inner, order, offsets, k, WIDTH: tl.constexpr, MIDDLE: tl.constexpr, EXPERTS: tl.constexpr,
    EVERY: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    expert, first, end = _find(offsets, EXPERTS, EVERY, ROWS)
    if first < end:
        place = first + tl.arange(0, ROWS)
        real = place < end
        token = (tl.load(order + place, mask=real, other=0) // k).to(tl.int64)
        output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
        column = tl.arange(0, INPUTS)
        x = hidden + token[:, None] * WIDTH + column[None, :]
        gate = weight + (expert * 2 * MIDDLE + output)[None, :] * WIDTH + column[:, None]
        up = gate + MIDDLE * WIDTH
        gated = tl.zeros([ROWS, OUTPUTS], tl.float32)
        upped = tl.zeros([ROWS, OUTPUTS], tl.float32)
        for start in range(0, WIDTH, INPUTS):
            part = tl.load(x + start, mask=real[:, None], other=0.0)
            gated = tl.dot(part, tl.load(gate + start), gated, input_precision="ieee")
            upped = tl.dot(part, tl.load(up + start), upped, input_precision="ieee")
        made = gated * tl.sigmoid(gated) * upped
        to = inner + place.to(tl.int64)[:, None] * MIDDLE + output[None, :]
        tl.store(to, made.to(inner.dtype.element_ty), mask=real[:, None])


@jit
@no_type_check
def _down(
    inner, weight, made, order, offsets, weights, WIDTH: tl.constexpr, MIDDLE: tl.constexpr, EXPERTS: tl.constexpr,
    EVERY: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    expert, first, end = _find(offsets, EXPERTS, EVERY, ROWS)
    if first < end:
        place = first + tl.arange(0, ROWS)
        real = place < end
        choice = tl.load(order + place, mask=real, other=0).to(tl.int64)
        output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
        column = tl.arange(0, INPUTS)
        x = inner + place.to(tl.int64)[:, None] * MIDDLE + column[None, :]
        rows = weight + (expert * WIDTH + output)[None, :] * MIDDLE + column[:, None]
        total = tl.zeros([ROWS, OUTPUTS], tl.float32)
        for start in range(0, MIDDLE, INPUTS):
            part = tl.load(x + start, mask=real[:, None], other=0.0)
            total = tl.dot(part, tl.load(rows + start), total, input_precision="ieee")
        total = total * tl.load(weights + choice, mask=real, other=0.0)[:, None]
        to = made + choice[:, None] * WIDTH + output[None, :]
        tl.store(to, total.to(made.dtype.element_ty), mask=real[:, None])


@jit
@no_type_check
def _total(made, mixed, K: tl.constexpr, WIDTH: tl.constexpr, ALL: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, ALL)
    inside = column < WIDTH
    total = tl.zeros([ALL], tl.float32)
    for choice in tl.static_range(K):
        total += tl.load(made + (token * K + choice) * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(mixed + token * WIDTH + column, total.to(mixed.dtype.element_ty), mask=inside)
