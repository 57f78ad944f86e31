"""A decoder layer for few rows in five kernels. A cached pass spends its time on reading weights, keys and values.

`project` computes queries, keys and values, rotates them, and stores keys and values in the KV memory. Attention is
split_kv_attention.py. `add` multiplies and adds the residual. `gate` multiplies by the gate and up weights and
activates. A norm is split in two: the kernel that writes rows also writes them multiplied by the norm's gain, with sums
of their squares; the kernel that multiplies those rows divides its products by the root mean square. The unfused layer
takes about fifteen kernels, most so short that launching them dominates. Results do not depend on the order in which
programs run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.kernels.tiles import LEAST, Tiles, after, jit, overlap

PROJECT, GATE, ADD = Tiles(inputs=64, stages=5), Tiles(), Tiles(stages=8)
"""Tile sizes for LLaDA-8B on an H200, measured by benchmarks/layers.py."""
MOST = 64
"""Most rows: with more, products are no longer bound by reading the weights."""


@dataclass(frozen=True)
class ScaledRows:
    """The rows of a layer, prepared for the norm that follows."""

    x: Float[Tensor, "M D"]
    scaled: Float[Tensor, "M D"]
    """`x` times the gain of the norm."""
    squares: Float[Tensor, "parts M"]
    """Partial sums of squares: summed over `parts` they give each row's sum of squares."""
    epsilon: float

    @staticmethod
    def like(x: Float[Tensor, "M D"], norm: Norm, outputs: int) -> ScaledRows:
        parts = x.shape[1] // outputs
        squares = x.new_empty(parts, len(x), dtype=torch.float32)
        return ScaledRows(torch.empty_like(x), torch.empty_like(x), squares, norm.epsilon)


class Norm(NamedTuple):
    gain: Float[Tensor, "D"]
    epsilon: float


def prepare(x: Float[Tensor, "M D"], norm: Norm) -> ScaledRows:
    """Scale rows that no kernel of this module has written."""
    launch = Tiles().launch(x, len(x), x.shape[1], LEAST)
    made = ScaledRows.like(x, norm, launch["OUTPUTS"])
    _prepare[(len(made.squares),)](
        x, norm.gain, made.scaled, made.squares, len(x), x.shape[1], OUTPUTS=launch["OUTPUTS"], ROWS=launch["ROWS"],
        **overlap(x),
    )  # fmt: skip
    return replace(made, x=x)


def project(
    rows: ScaledRows,
    weight: Float[Tensor, "N D"],
    bias: Float[Tensor, "N"] | None,
    turn: tuple[Float[Tensor, "B Q d"], Float[Tensor, "B Q d"]],
    keys: Float[Tensor, "B kv L d"],
    values: Float[Tensor, "B kv L d"],
    columns: Int[Tensor, "B Q"],
    written: Bool[Tensor, "B Q"],
    tiles: Tiles = PROJECT,
) -> Float[Tensor, "M heads d"]:
    """Returns the queries and stores keys and values of the `written` rows at their columns. A tile is half a head."""
    kv, length, head = keys.shape[1:]
    heads, x = len(weight) // head - 2 * kv, rows.scaled
    queries = x.new_empty(len(x), heads, head)
    cos, sin = (each.contiguous() for each in turn)
    _project[(heads + 2 * kv,)](
        x, rows.squares, rows.epsilon, weight, weight if bias is None else bias, cos, sin, queries, keys, values,
        columns.contiguous(), written.contiguous(), len(x), columns.shape[1], length, BIAS=bias is not None,
        PARTS=len(rows.squares), WIDTH=x.shape[1], HEADS=heads, KV=kv,
        **replace(tiles, outputs=head // 2).launch(x, len(x), head // 2, x.shape[1], 2),
        **overlap(x),
    )  # fmt: skip
    return queries


def add(
    x: Float[Tensor, "M D"], weight: Float[Tensor, "H D"], to: ScaledRows, norm: Norm, tiles: Tiles = ADD
) -> ScaledRows:
    """`to` plus x times the weights, prepared for `norm`."""
    launch = tiles.launch(x, len(x), len(weight), x.shape[1])
    made = ScaledRows.like(to.x, norm, launch["OUTPUTS"])
    _add[(len(made.squares),)](
        x, weight, to.x, norm.gain, made.x, made.scaled, made.squares, len(x), len(weight), WIDTH=x.shape[1], **launch,
        **overlap(x),
    )  # fmt: skip
    return made


def gate(rows: ScaledRows, weight: Float[Tensor, "N D"], tiles: Tiles = GATE) -> Float[Tensor, "M H"]:
    """silu(x G) * (x U) for the normed rows x; G and U are the two halves of the weights."""
    x, width = rows.scaled, len(weight) // 2
    made = x.new_empty(len(x), width)
    launch = tiles.launch(x, len(x), width, x.shape[1], 2)
    _gate[(width // launch["OUTPUTS"],)](
        x, rows.squares, rows.epsilon, weight, made, len(x), width, PARTS=len(rows.squares), WIDTH=x.shape[1], **launch,
        **overlap(x),
    )  # fmt: skip
    return made


@jit
@no_type_check
def _prepare(x, gain, scaled, squares, rows, width, OUTPUTS: tl.constexpr, ROWS: tl.constexpr, OVERLAP: tl.constexpr):
    after(OVERLAP)
    row = tl.arange(0, ROWS)
    real = row < rows
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    value = tl.load(x + row[None, :] * width + output[:, None], mask=real[None, :], other=0.0)
    _ready(value, gain, scaled, squares, row, real, output, rows, width)


@jit
@no_type_check
def _ready(value, gain, scaled, squares, row, real, output, rows, width):
    """Store the rows times the next norm's gain, and this tile's part of their sums of squares."""
    wide = value.to(tl.float32)
    times = wide * tl.load(gain + output).to(tl.float32)[:, None]
    place = row[None, :] * width + output[:, None]
    tl.store(scaled + place, times.to(scaled.dtype.element_ty), mask=real[None, :])
    tl.store(squares + tl.program_id(0) * rows + row, tl.sum(wide * wide, 0), mask=real)


@jit
@no_type_check
def _pair(
    x, squares, epsilon, weight, row, rows, output, gap, PARTS: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr
):
    """Normed rows times two tiles of weights that lie `gap` outputs apart; each result is [OUTPUTS, ROWS]."""
    real = row < rows
    column = tl.arange(0, INPUTS)
    x = x + row[None, :] * WIDTH + column[:, None]
    first = weight + output.to(tl.int64)[:, None] * WIDTH + column[None, :]
    second = first + gap.to(tl.int64) * WIDTH
    one = tl.zeros([output.shape[0], row.shape[0]], tl.float32)
    other = tl.zeros([output.shape[0], row.shape[0]], tl.float32)
    for start in range(0, WIDTH, INPUTS):
        part = tl.load(x + start, mask=real[None, :], other=0.0)
        one = tl.dot(tl.load(first + start), part, one, input_precision="ieee")
        other = tl.dot(tl.load(second + start), part, other, input_precision="ieee")
    every = tl.arange(0, triton.next_power_of_2(PARTS))[:, None]
    each = tl.load(squares + every * rows + row[None, :], mask=(every < PARTS) & real[None, :], other=0.0)
    factor = tl.rsqrt(tl.sum(each, 0) / WIDTH + epsilon)[None, :]
    return one * factor, other * factor


@jit
@no_type_check
def _project(
    x, squares, epsilon, weight, bias, cos, sin, queries, keys, values, columns, written, rows, each, length,
    BIAS: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, KV: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, ROWS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    after(OVERLAP)
    head = tl.program_id(0)
    row = tl.arange(0, ROWS)
    real = row < rows
    part = tl.arange(0, OUTPUTS)
    output = head * 2 * OUTPUTS + part
    gap = tl.full([], OUTPUTS, tl.int32)
    low, high = _pair(x, squares, epsilon, weight, row, rows, output, gap, PARTS, WIDTH, INPUTS)
    if BIAS:
        low += tl.load(bias + output).to(tl.float32)[:, None]
        high += tl.load(bias + output + OUTPUTS).to(tl.float32)[:, None]
    if head < HEADS + KV:
        turn = row[None, :] * 2 * OUTPUTS + part[:, None]
        c = tl.load(cos + turn, mask=real[None, :], other=0.0).to(tl.float32)
        s = tl.load(sin + turn, mask=real[None, :], other=0.0).to(tl.float32)
        low, high = low * c - high * s, high * c + low * s
    if head < HEADS:
        to = queries + (row * HEADS + head) * 2 * OUTPUTS
        stored = real
    else:
        kept = keys if head < HEADS + KV else values
        column = tl.load(columns + row, mask=real, other=0)
        to = kept + (((row // each) * KV + (head - HEADS) % KV).to(tl.int64) * length + column) * 2 * OUTPUTS
        stored = real & (tl.load(written + row, mask=real, other=0) != 0)
    place = to[None, :] + part[:, None]
    tl.store(place, low.to(queries.dtype.element_ty), mask=stored[None, :])
    tl.store(place + OUTPUTS, high.to(queries.dtype.element_ty), mask=stored[None, :])


@jit
@no_type_check
def _add(
    x, weight, to, gain, made, scaled, squares, rows, width, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr, ROWS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    after(OVERLAP)
    row = tl.arange(0, ROWS)
    real = row < rows
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    column = tl.arange(0, INPUTS)
    x = x + row[None, :] * WIDTH + column[:, None]
    weight = weight + output.to(tl.int64)[:, None] * WIDTH + column[None, :]
    total = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for start in range(0, WIDTH, INPUTS):
        part = tl.load(x + start, mask=real[None, :], other=0.0)
        total = tl.dot(tl.load(weight + start), part, total, input_precision="ieee")
    place = row[None, :] * width + output[:, None]
    total += tl.load(to + place, mask=real[None, :], other=0.0).to(tl.float32)
    value = total.to(made.dtype.element_ty)
    tl.store(made + place, value, mask=real[None, :])
    _ready(value, gain, scaled, squares, row, real, output, rows, width)


@jit
@no_type_check
def _gate(
    x, squares, epsilon, weight, made, rows, width, PARTS: tl.constexpr, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr, ROWS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    after(OVERLAP)
    row = tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    gated, upped = _pair(x, squares, epsilon, weight, row, rows, output, width, PARTS, WIDTH, INPUTS)
    product = gated * tl.sigmoid(gated) * upped
    place = row[None, :] * width + output[:, None]
    tl.store(made + place, product.to(made.dtype.element_ty), mask=(row < rows)[None, :])
