"""A mixture of experts in four Triton kernels per layer, without sorting or copying tokens.

A *choice* is a pair (token, chosen expert). `_arrange` groups the choices by expert. `_gate_up` multiplies each token,
read in place, by the gate and up weights of its experts. `_down` writes the weighted result of each choice, and
`_total` adds those of each token. An expert with no more tokens than a tile has its weights read once, so the time is
that of reading the chosen experts. transformers sorts, gathers, activates, weighs and scatters in separate kernels,
and its grouped product is for bfloat16 only.

Weights in eight bits (e4m3) have a scale per output. So has each token, which `_round` writes in e4m3, and each row of
a tile of what `_gate_up` writes: `_down` adds the products of one such tile after another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor, library

from softdlm.kernels.tiles import LEAST, Tiles, jit, padded, side

TILES = Tiles(outputs=128, inputs=64)
"""The fastest tile sizes measured (benchmarks/layers.py; others in dev/LOG.md)."""
TILES_8 = Tiles(outputs=64, inputs=128)
"""The same for weights in eight bits."""
LARGEST: tl.constexpr = tl.constexpr(448.0)
"""The largest number of e4m3."""
MOST = 64
"""Most choices per tile."""
CHUNK, WARPS = 4096, 8
"""Choices that a program of `_arrange` reads at once, and its warps."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def fits(dtype: torch.dtype, *sides: int, least: int = LEAST) -> bool:
    """Whether weights of this dtype and these sizes divide into tiles."""
    return dtype in DTYPES and all(side(least, each) == least for each in sides)


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
    mixed, hidden = hidden.new_empty(hidden.shape), hidden.contiguous()
    if choices == 0:
        return mixed
    order, offsets = arrange(ids, experts)
    made = hidden.new_empty(choices, width)
    most = min(-(-choices // rows) + experts, choices)
    sizes = {"EXPERTS": experts, "EVERY": triton.next_power_of_2(experts), "WIDTH": width, "MIDDLE": middle}
    fed, fed_scale = round_rows(hidden) if eight else (hidden, weights)
    up_scale, down_scale = scales or (weights, weights)
    launch = tiles.launch(fed, rows, middle, width, matrices=2)
    inner, tile = fed.new_empty(choices, middle), launch["OUTPUTS"]
    inner_scale = weights.new_empty(choices, middle // tile, dtype=torch.float32) if eight else weights
    _gate_up[(middle // tile, most)](
        fed, gate_up, inner, order, offsets, k, fed_scale, up_scale, inner_scale, EIGHT=eight, **sizes, **launch
    )
    launch = (replace(tiles, inputs=tile) if eight else tiles).launch(fed, rows, width, middle)
    _down[(width // launch["OUTPUTS"], most)](
        inner, down, made, order, offsets, weights.contiguous(), inner_scale, down_scale, EIGHT=eight, TILE=tile,
        **sizes, **launch,
    )  # fmt: skip
    _total[(len(ids),)](made, mixed, K=k, WIDTH=width, ALL=triton.next_power_of_2(width), num_warps=4)
    return mixed


def arrange(ids: Int[Tensor, "N k"], experts: int) -> tuple[Int[Tensor, "S"], Int[Tensor, "E1"]]:
    """Indices of the choices, grouped by expert and in order within each, and the start of each group."""
    order = ids.new_empty(ids.numel(), dtype=torch.int32)
    offsets = ids.new_empty(experts + 1, dtype=torch.int32)
    _arrange[(experts,)](ids.contiguous(), ids.numel(), order, offsets, CHUNK=CHUNK, num_warps=WARPS)
    return order, offsets


def round_rows(x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N"]]:
    """Each row in e4m3, and its scale, as models/fp8.py rounds them."""
    codes, scales = torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty(len(x), dtype=torch.float32)
    _round[(len(x),)](x, codes, scales, WIDTH=x.shape[1], ALL=triton.next_power_of_2(x.shape[1]), num_warps=4)
    return codes, scales


@jit
@no_type_check
def _round(x, codes, scales, WIDTH: tl.constexpr, ALL: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, ALL)
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value), 0), 1e-12) / LARGEST
    tl.store(codes + row * WIDTH + column, _coded(value / scale, codes), mask=column < WIDTH)
    tl.store(scales + row, scale)


@jit
@no_type_check
def _coded(value, like):
    """Rounding may reach beyond the largest number, which would be NaN."""
    return tl.minimum(tl.maximum(value, -LARGEST), LARGEST).to(like.dtype.element_ty)


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
    hidden, weight, inner, order, offsets, k, hidden_scale, scale, inner_scale, EIGHT: tl.constexpr,
    WIDTH: tl.constexpr, MIDDLE: tl.constexpr, EXPERTS: tl.constexpr, EVERY: tl.constexpr, ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    expert, first, end = _find(offsets, EXPERTS, EVERY, ROWS)
    if first < end:
        place = first + tl.arange(0, ROWS)
        real = place < end
        token = (tl.load(order + place, mask=real, other=0) // k).to(tl.int64)
        output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
        own = expert * 2 * MIDDLE + output
        column = tl.arange(0, INPUTS)
        x = hidden + token[:, None] * WIDTH + column[None, :]
        gate = weight + own[None, :] * WIDTH + column[:, None]
        up = gate + MIDDLE * WIDTH
        gated = tl.zeros([ROWS, OUTPUTS], tl.float32)
        upped = tl.zeros([ROWS, OUTPUTS], tl.float32)
        for start in range(0, WIDTH, INPUTS):
            part = tl.load(x + start, mask=real[:, None], other=0.0)
            gated = tl.dot(part, tl.load(gate + start), gated, input_precision="ieee")
            upped = tl.dot(part, tl.load(up + start), upped, input_precision="ieee")
        if EIGHT:
            whole = tl.load(hidden_scale + token, mask=real, other=0.0)[:, None]
            gated *= whole * tl.load(scale + own)[None, :]
            upped *= whole * tl.load(scale + own + MIDDLE)[None, :]
        made = gated * tl.sigmoid(gated) * upped
        to = inner + place.to(tl.int64)[:, None] * MIDDLE + output[None, :]
        if EIGHT:
            each = tl.maximum(tl.max(tl.abs(made), 1), 1e-12) / LARGEST
            tl.store(to, _coded(made / each[:, None], inner), mask=real[:, None])
            tl.store(inner_scale + place * (MIDDLE // OUTPUTS) + tl.program_id(0), each, mask=real)
        else:
            tl.store(to, made.to(inner.dtype.element_ty), mask=real[:, None])


@jit
@no_type_check
def _down(
    inner, weight, made, order, offsets, weights, inner_scale, scale, EIGHT: tl.constexpr, WIDTH: tl.constexpr,
    MIDDLE: tl.constexpr, EXPERTS: tl.constexpr, EVERY: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr, TILE: tl.constexpr,
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
            if EIGHT:
                each = tl.load(inner_scale + place * (MIDDLE // TILE) + start // TILE, mask=real, other=0.0)
                total += tl.dot(part, tl.load(rows + start)) * each[:, None]
            else:
                total = tl.dot(part, tl.load(rows + start), total, input_precision="ieee")
        if EIGHT:
            total *= tl.load(scale + expert * WIDTH + output)[None, :]
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
