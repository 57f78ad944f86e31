"""A layer of few rows in five kernels: what a cached step spends its time on is reading weights, keys and values.

`project` norms the rows, multiplies, rotates, and writes keys and values to where they are kept; `attend` shares the
keys of a head out among programs, the last of which puts their parts together; `add` multiplies and adds to the rows;
`gate` norms, multiplies by gate and up, and activates. The same work takes some fifteen kernels one by one, most of
them so short that the launches count. Nothing depends on the order in which programs run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

jit: Any = triton.jit  # what a launch takes is more than its type says
MOST = 64
"""Rows at most: with more of them products are no longer a matter of reading."""
LEAST = 16
"""The narrowest side of a tile that a product takes."""
SHARED = 200 * 1024
"""Bytes of a multiprocessor's own memory that a program may fill."""
PROGRAMS = 128
"""Programs of an attention, about one for each multiprocessor (132 on an H200)."""
KEYS = 128
"""Keys of a tile."""


@dataclass(frozen=True)
class Tiles:
    """How a product is laid out on a GPU: outputs and inputs of a tile of weights."""

    outputs: int = 64
    inputs: int = 128
    stages: int = 6
    warps: int = 4
    swap: bool = True

    def launch(self, rows: int, outputs: int, inputs: int, size: int, matrices: int) -> dict[str, Any]:
        """For matrices of outputs x inputs, of which a whole number of tiles must be."""
        outputs, inputs = min(self.outputs, outputs & -outputs), min(self.inputs, inputs & -inputs)
        bytes = (outputs * matrices + rows) * inputs * size
        stages = max(min(self.stages, SHARED // bytes), 2)
        tile = {"OUTPUTS": outputs, "INPUTS": inputs, "ROWS": rows, "SWAP": self.swap}
        return tile | {"num_stages": stages, "num_warps": self.warps}


@dataclass(frozen=True)
class Tuning:
    """Of each product (benchmarks/thin.py measures the choices)."""

    project: Tiles = Tiles()
    add: Tiles = Tiles()
    gate: Tiles = Tiles()


def rows_of(x: Float[Tensor, "M D"]) -> int:
    return max(triton.next_power_of_2(len(x)), LEAST)


def project(
    x: Float[Tensor, "M D"],
    gain: Float[Tensor, "D"],
    epsilon: float,
    weight: Float[Tensor, "(heads+2*kv)*d D"],
    bias: Float[Tensor, "(heads+2*kv)*d"] | None,
    turn: tuple[Float[Tensor, "B Q d"], Float[Tensor, "B Q d"]],
    keys: Float[Tensor, "B kv L d"],
    values: Float[Tensor, "B kv L d"],
    columns: Int[Tensor, "B Q"],
    written: Bool[Tensor, "B Q"],
    tiles: Tiles = Tuning.project,
) -> Float[Tensor, "M heads d"]:
    """The queries; keys and values of the written rows go to their columns."""
    kv, length, head = keys.shape[1:]
    heads = len(weight) // head - 2 * kv
    queries = x.new_empty(len(x), heads, head)
    cos, sin = (each.contiguous() for each in turn)
    half = min(tiles.outputs, head // 2)
    assert half == head // 2, "a tile holds half a head"
    _project[(heads + 2 * kv,)](
        x, gain, epsilon, weight, weight if bias is None else bias, cos, sin, queries, keys, values,
        columns.contiguous(), written.contiguous(), len(x), columns.shape[1], length,
        WIDTH=x.shape[1], HEADS=heads, KV=kv, BIAS=bias is not None,
        **tiles.launch(rows_of(x), half, x.shape[1], x.element_size(), 2),
    )  # fmt: skip
    return queries


def attend(
    queries: Float[Tensor, "M heads d"],
    keys: Float[Tensor, "B kv L d"],
    values: Float[Tensor, "B kv L d"],
    scale: float,
    count: Int[Tensor, "B*heads"],
) -> Float[Tensor, "M heads*d"]:
    """Every row sees every key. `count` is zero before and after."""
    batch, kv, length, head = keys.shape
    rows, heads, _ = queries.shape
    each = rows // batch
    tiles = triton.cdiv(length, KEYS)
    run = triton.cdiv(tiles, max(PROGRAMS // (batch * heads), 1))
    parts = triton.cdiv(tiles, run)
    made = torch.empty_like(queries)
    taken = max(triton.next_power_of_2(each), LEAST)
    partial = queries.new_empty(batch * heads, parts, taken, head, dtype=torch.float32)
    sums = queries.new_empty(batch * heads, parts, 2, taken, dtype=torch.float32)
    _attend[(batch * heads, parts)](
        queries, keys, values, made, partial, sums, count, scale * 1.4426950408889634, each, length, run,
        HEADS=heads, GROUP=heads // kv, HEAD=head, ROWS=taken, KEYS=KEYS, PARTS=parts, num_warps=4, num_stages=3,
    )  # fmt: skip
    return made.flatten(1)


def add(
    x: Float[Tensor, "M D"], weight: Float[Tensor, "H D"], to: Float[Tensor, "M H"], tiles: Tiles = Tuning.add
) -> Float[Tensor, "M H"]:
    """x times the weights, added to `to`."""
    made = torch.empty_like(to)
    launch = tiles.launch(rows_of(x), *weight.shape, x.element_size(), 1)
    _add[(len(weight) // launch["OUTPUTS"],)](x, weight, to, made, len(x), len(weight), WIDTH=x.shape[1], **launch)
    return made


def gate(
    x: Float[Tensor, "M D"],
    gain: Float[Tensor, "D"],
    epsilon: float,
    weight: Float[Tensor, "2*H D"],
    tiles: Tiles = Tuning.gate,
) -> Float[Tensor, "M H"]:
    """silu of the normed rows times the first half of the weights, times them times the second."""
    width = len(weight) // 2
    made = x.new_empty(len(x), width)
    launch = tiles.launch(rows_of(x), width, x.shape[1], x.element_size(), 2)
    _gate[(width // launch["OUTPUTS"],)](
        x, gain, epsilon, weight, made, len(x), width, WIDTH=x.shape[1], **launch
    )  # fmt: skip
    return made


@jit
@no_type_check
def _product(x, weight, row, real, output, WIDTH: tl.constexpr, INPUTS: tl.constexpr, SWAP: tl.constexpr):
    """Rows times one tile of outputs, [OUTPUTS, ROWS]."""
    column = tl.arange(0, INPUTS)
    x = x + row[None, :] * WIDTH + column[:, None]
    weight = weight + output.to(tl.int64)[:, None] * WIDTH + column[None, :]
    total = tl.zeros([output.shape[0], row.shape[0]] if SWAP else [row.shape[0], output.shape[0]], tl.float32)
    for start in range(0, WIDTH, INPUTS):
        part = tl.load(x + start, mask=real[None, :], other=0.0)
        total = _times(tl.load(weight + start), part, total, SWAP)
    return total if SWAP else tl.trans(total)


@jit
@no_type_check
def _normed_pair(
    x, gain, epsilon, weight, row, real, output, gap, WIDTH: tl.constexpr, INPUTS: tl.constexpr, SWAP: tl.constexpr
):  # fmt: skip
    """Normed rows times two tiles of outputs a gap apart: the norm's factor is the same for all, and comes last."""
    column = tl.arange(0, INPUTS)
    x = x + row[None, :] * WIDTH + column[:, None]
    first = weight + output.to(tl.int64)[:, None] * WIDTH + column[None, :]
    second = first + gap * WIDTH
    one = tl.zeros([output.shape[0], row.shape[0]] if SWAP else [row.shape[0], output.shape[0]], tl.float32)
    other = tl.zeros_like(one)
    square = tl.zeros([row.shape[0]], tl.float32)
    for start in range(0, WIDTH, INPUTS):
        part = tl.load(x + start, mask=real[None, :], other=0.0)
        wide = part.to(tl.float32)
        square += tl.sum(wide * wide, 0)
        scaled = (wide * tl.load(gain + start + column).to(tl.float32)[:, None]).to(part.dtype)
        one = _times(tl.load(first + start), scaled, one, SWAP)
        other = _times(tl.load(second + start), scaled, other, SWAP)
    factor = tl.rsqrt(square / WIDTH + epsilon)[None, :]
    if not SWAP:
        one, other = tl.trans(one), tl.trans(other)
    return one * factor, other * factor


@jit
@no_type_check
def _times(weight, x, total, SWAP: tl.constexpr):
    if SWAP:
        return tl.dot(weight, x, total, input_precision="ieee")
    else:
        return tl.dot(tl.trans(x), tl.trans(weight), total, input_precision="ieee")


@jit
@no_type_check
def _project(
    x, gain, epsilon, weight, bias, cos, sin, queries, keys, values, columns, written, rows, each, length,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, KV: tl.constexpr, BIAS: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr, ROWS: tl.constexpr, SWAP: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    row = tl.arange(0, ROWS)
    real = row < rows
    part = tl.arange(0, OUTPUTS)
    output = head * 2 * OUTPUTS + part
    low, high = _normed_pair(x, gain, epsilon, weight, row, real, output, OUTPUTS, WIDTH, INPUTS, SWAP)
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
def _attend(
    queries, keys, values, made, partial, sums, count, scale, each, length, run, HEADS: tl.constexpr,
    GROUP: tl.constexpr, HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    which = tl.program_id(0)
    part = tl.program_id(1)
    head = which % HEADS
    first = which // HEADS * each
    row = tl.arange(0, ROWS)
    real = row < each
    lane = tl.arange(0, HEAD)
    at = ((first + row) * HEADS + head)[:, None] * HEAD + lane[None, :]
    query = tl.load(queries + at, mask=real[:, None], other=0.0)
    kept = (which // GROUP).to(tl.int64) * length * HEAD
    top = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mean = tl.zeros([ROWS, HEAD], tl.float32)
    for start in range(part * run * KEYS, tl.minimum((part + 1) * run * KEYS, length), KEYS):
        column = start + tl.arange(0, KEYS)
        seen = column < length
        place = kept + column[:, None] * HEAD + lane[None, :]
        key = tl.load(keys + place, mask=seen[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        score = tl.where(seen[None, :], score, -float("inf"))
        now = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - now[:, None])
        fade = tl.exp2(top - now)
        total = total * fade + tl.sum(weight, 1)
        value = tl.load(values + place, mask=seen[:, None], other=0.0)
        mean = tl.dot(weight.to(value.dtype), value, mean * fade[:, None], input_precision="ieee")
        top = now

    mine = (which * PARTS + part) * ROWS
    grid = row[:, None] * HEAD + lane[None, :]
    tl.store(partial + mine.to(tl.int64) * HEAD + grid, mean)
    tl.store(sums + mine * 2 + row, top)
    tl.store(sums + mine * 2 + ROWS + row, total)
    tl.debug_barrier()  # all that this program wrote comes before its count
    if tl.atomic_add(count + which, 1, sem="acq_rel") == PARTS - 1:
        tl.store(count + which, 0)
        top = tl.full([ROWS], -float("inf"), tl.float32)
        for other in tl.static_range(PARTS):
            top = tl.maximum(top, tl.load(sums + (which * PARTS + other) * ROWS * 2 + row))
        total = tl.zeros([ROWS], tl.float32)
        mean = tl.zeros([ROWS, HEAD], tl.float32)
        for other in tl.static_range(PARTS):
            theirs = (which * PARTS + other) * ROWS
            fade = tl.exp2(tl.load(sums + theirs * 2 + row) - top)
            total += fade * tl.load(sums + theirs * 2 + ROWS + row)
            mean += fade[:, None] * tl.load(partial + theirs.to(tl.int64) * HEAD + grid)
        tl.store(made + at, (mean / total[:, None]).to(made.dtype.element_ty), mask=real[:, None])


@jit
@no_type_check
def _add(
    x, weight, to, made, rows, width, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
    ROWS: tl.constexpr, SWAP: tl.constexpr,
):  # fmt: skip
    row = tl.arange(0, ROWS)
    real = row < rows
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    place = row[None, :] * width + output[:, None]
    before = tl.load(to + place, mask=real[None, :], other=0.0).to(tl.float32)
    total = before + _product(x, weight, row, real, output, WIDTH, INPUTS, SWAP)
    tl.store(made + place, total.to(made.dtype.element_ty), mask=real[None, :])


@jit
@no_type_check
def _gate(
    x, gain, epsilon, weight, made, rows, width, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
    ROWS: tl.constexpr, SWAP: tl.constexpr,
):  # fmt: skip
    row = tl.arange(0, ROWS)
    real = row < rows
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    gated, upped = _normed_pair(x, gain, epsilon, weight, row, real, output, width, WIDTH, INPUTS, SWAP)
    product = gated * tl.sigmoid(gated) * upped
    tl.store(made + row[None, :] * width + output[:, None], product.to(made.dtype.element_ty), mask=real[None, :])
