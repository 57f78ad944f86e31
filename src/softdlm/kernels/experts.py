"""A mixture of experts in four Triton kernels per layer, without sorting or copying tokens.

A *choice* is a pair (token, chosen expert). `_arrange` groups the choices by expert. `_gate_up` multiplies each token,
read in place, by the gate and up weights of its experts. `_down` writes the weighted result of each choice, and
`_total` adds those of each token. An expert with no more tokens than a tile has its weights read once, so the time is
that of reading the chosen experts. transformers sorts, gathers, activates, weighs and scatters in separate kernels,
and its grouped product is for bfloat16 only.

Weights in eight bits become float16 in registers, for which they must be the left operand: there a tile of results is
[outputs, choices]. What they are multiplied with is float16 too (tiles.SHIFT).
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor, library

from softdlm.kernels.tiles import LEAST, SHIFT, Tiles, jit, padded, shifted, side

TILES = Tiles(outputs=128, inputs=64)
"""The fastest tile sizes measured (benchmarks/layers.py; others in dev/LOG.md)."""
TILES_8 = Tiles(outputs=128, inputs=128, warps=8)
"""The same for weights in eight bits."""
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
    schema="(Tensor hidden, Tensor ids, Tensor weights, Tensor gate_up, Tensor down, Tensor? gate_up_scale=None, "
    "Tensor? down_scale=None) -> Tensor",
)
def mix(
    hidden: Float[Tensor, "N D"], ids: Int[Tensor, "N k"], weights: Float[Tensor, "N k"],
    gate_up: Float[Tensor, "E M2 D"], down: Float[Tensor, "E D M"],
    gate_up_scale: Float[Tensor, "E M2"] | None = None, down_scale: Float[Tensor, "E D"] | None = None,
) -> Float[Tensor, "N D"]:  # fmt: skip
    """For each token, the weighted sum of the outputs of its chosen experts. Weights in eight bits have scales."""
    rows = tile_rows(ids.numel(), len(down))
    if gate_up_scale is None or down_scale is None:
        return mix_with(TILES, rows, hidden, ids, weights, gate_up, down)
    return mix_with(TILES_8, rows, hidden, ids, weights, gate_up, down, (gate_up_scale, down_scale))


@mix.register_fake
def _(hidden: Tensor, *_: Tensor | None) -> Tensor:
    return hidden.new_empty(hidden.shape)


def tile_rows(choices: int, experts: int) -> int:
    """Choices per tile: an expert's share if all experts are chosen equally often, rounded up to a power of two."""
    return min(padded(-(-choices // experts)), MOST)


def mix_with(
    tiles: Tiles, rows: int, hidden: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor,
    scales: tuple[Tensor, Tensor] | None = None,
) -> Float[Tensor, "N D"]:  # fmt: skip
    experts, width, middle = down.shape
    choices, k, eight = ids.numel(), ids.shape[1], scales is not None
    mixed, fed = hidden.new_empty(hidden.shape), hidden.contiguous()
    if eight:
        fed = (hidden.float() * SHIFT).clamp(-65504, 65504).half()
    up_scale, down_scale = scales or (weights, weights)
    if choices == 0:
        return mixed
    order, offsets = arrange(ids, experts)
    inner, made = fed.new_empty(choices, middle), hidden.new_empty(choices, width)
    most = min(-(-choices // rows) + experts, choices)
    sizes = {"EXPERTS": experts, "EVERY": triton.next_power_of_2(experts), "WIDTH": width, "MIDDLE": middle}
    launch = tiles.launch(fed, rows, middle, width, matrices=2, weight=gate_up)
    _gate_up[(middle // launch["OUTPUTS"], most)](
        fed, gate_up, inner, order, offsets, k, up_scale, EIGHT=eight, SHIFT=SHIFT, **sizes, **launch
    )
    launch = tiles.launch(fed, rows, width, middle, weight=down)
    _down[(width // launch["OUTPUTS"], most)](
        inner, down, made, order, offsets, weights.contiguous(), down_scale, EIGHT=eight, SHIFT=SHIFT, **sizes, **launch
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
    hidden, weight, inner, order, offsets, k, scale, EIGHT: tl.constexpr, SHIFT: tl.constexpr, WIDTH: tl.constexpr,
    MIDDLE: tl.constexpr, EXPERTS: tl.constexpr, EVERY: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):  # fmt: skip
    expert, first, end = _find(offsets, EXPERTS, EVERY, ROWS)
    if first < end:
        place = first + tl.arange(0, ROWS)
        real = place < end
        token = (tl.load(order + place, mask=real, other=0) // k).to(tl.int64)
        output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
        own = expert * 2 * MIDDLE + output
        rows = hidden + token * WIDTH
        if EIGHT:
            column = tl.arange(0, INPUTS)
            x = rows[None, :] + column[:, None]
            gate = weight + own[:, None] * WIDTH + column[None, :]
            up = gate + MIDDLE * WIDTH
            gated = tl.zeros([OUTPUTS, ROWS], tl.float32)
            upped = tl.zeros([OUTPUTS, ROWS], tl.float32)
            for start in range(0, WIDTH, INPUTS):
                part = tl.load(x + start, mask=real[None, :], other=0.0)
                gated = tl.dot(tl.load(gate + start).to(tl.float16), part, gated, input_precision="ieee")
                upped = tl.dot(tl.load(up + start).to(tl.float16), part, upped, input_precision="ieee")
            gated *= tl.load(scale + own)[:, None] / SHIFT
            upped *= tl.load(scale + own + MIDDLE)[:, None] / SHIFT
            made = shifted(gated * tl.sigmoid(gated) * upped, SHIFT)
            to = inner + place.to(tl.int64)[None, :] * MIDDLE + output[:, None]
            tl.store(to, made.to(inner.dtype.element_ty), mask=real[None, :])
        else:
            column = tl.arange(0, INPUTS)
            x = rows[:, None] + column[None, :]
            gate = weight + own[None, :] * WIDTH + column[:, None]
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
    inner, weight, made, order, offsets, weights, scale, EIGHT: tl.constexpr, SHIFT: tl.constexpr, WIDTH: tl.constexpr,
    MIDDLE: tl.constexpr, EXPERTS: tl.constexpr, EVERY: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):  # fmt: skip
    expert, first, end = _find(offsets, EXPERTS, EVERY, ROWS)
    if first < end:
        place = first + tl.arange(0, ROWS)
        real = place < end
        choice = tl.load(order + place, mask=real, other=0).to(tl.int64)
        output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
        share = tl.load(weights + choice, mask=real, other=0.0)
        row = inner + place.to(tl.int64) * MIDDLE
        if EIGHT:
            column = tl.arange(0, INPUTS)
            x = row[None, :] + column[:, None]
            rows = weight + (expert * WIDTH + output)[:, None] * MIDDLE + column[None, :]
            total = tl.zeros([OUTPUTS, ROWS], tl.float32)
            for start in range(0, MIDDLE, INPUTS):
                part = tl.load(x + start, mask=real[None, :], other=0.0)
                total = tl.dot(tl.load(rows + start).to(tl.float16), part, total, input_precision="ieee")
            total *= tl.load(scale + expert * WIDTH + output)[:, None] / SHIFT
            to = made + choice[None, :] * WIDTH + output[:, None]
            tl.store(to, (total * share[None, :]).to(made.dtype.element_ty), mask=real[None, :])
        else:
            column = tl.arange(0, INPUTS)
            x = row[:, None] + column[None, :]
            rows = weight + (expert * WIDTH + output)[None, :] * MIDDLE + column[:, None]
            total = tl.zeros([ROWS, OUTPUTS], tl.float32)
            for start in range(0, MIDDLE, INPUTS):
                part = tl.load(x + start, mask=real[:, None], other=0.0)
                total = tl.dot(part, tl.load(rows + start), total, input_precision="ieee")
            to = made + choice[:, None] * WIDTH + output[None, :]
            tl.store(to, (total * share[:, None]).to(made.dtype.element_ty), mask=real[:, None])


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
