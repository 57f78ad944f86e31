"""The Triton kernels of few_rows.py. A tile of results is [OUTPUTS, ROWS]: weights come first in every product."""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from softdlm.kernels.tiles import after, jit

LARGEST: tl.constexpr = tl.constexpr(448.0)
"""The largest number of e4m3."""


@jit
@no_type_check
def prepare_kernel(
    x, gain, scaled, squares, tops, rows, width, OUTPUTS: tl.constexpr, ROWS: tl.constexpr, OVERLAP: tl.constexpr
):
    after(OVERLAP)
    row = tl.arange(0, ROWS)
    real = row < rows
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    value = tl.load(x + row[None, :] * width + output[:, None], mask=real[None, :], other=0.0)
    _ready(value, gain, scaled, squares, tops, row, real, output, rows, width)


@jit
@no_type_check
def _ready(value, gain, scaled, squares, tops, row, real, output, rows, width):
    """Store the rows times the next norm's gain, this tile's part of their sums of squares, and its largest."""
    wide = value.to(tl.float32)
    times = wide * tl.load(gain + output).to(tl.float32)[:, None]
    place = row[None, :] * width + output[:, None]
    tl.store(scaled + place, times.to(scaled.dtype.element_ty), mask=real[None, :])
    part = tl.program_id(0) * rows + row
    tl.store(squares + part, tl.sum(wide * wide, 0), mask=real)
    tl.store(tops + part, tl.max(tl.abs(times), 0), mask=real)


@jit
@no_type_check
def _parts(values, row, rows, PARTS: tl.constexpr):
    """What other programs left of each row: one line per part, zeros after the last."""
    every = tl.arange(0, triton.next_power_of_2(PARTS))[:, None]
    return tl.load(values + every * rows + row[None, :], mask=(every < PARTS) & (row < rows)[None, :], other=0.0)


@jit
@no_type_check
def _root(squares, row, rows, epsilon, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """One over the root mean square of each row."""
    return tl.rsqrt(tl.sum(_parts(squares, row, rows, PARTS), 0) / WIDTH + epsilon)


@jit
@no_type_check
def round_kernel(
    x, tops, squares, epsilon, codes, factors, rows, PARTS: tl.constexpr, WIDTH: tl.constexpr, NORM: tl.constexpr,
    OUTPUTS: tl.constexpr, ROWS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Rows as e4m3, and by what their products are to be multiplied: the scale, with NORM over the root mean square."""
    after(OVERLAP)
    row = tl.arange(0, ROWS)
    real = row < rows
    scale = tl.maximum(tl.max(_parts(tops, row, rows, PARTS), 0), 1e-12) / LARGEST
    place = row[None, :] * WIDTH + (tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS))[:, None]
    value = tl.load(x + place, mask=real[None, :], other=0.0).to(tl.float32)
    tl.store(codes + place, (value * (1 / scale)[None, :]).to(codes.dtype.element_ty), mask=real[None, :])
    if tl.program_id(0) == 0:
        if NORM:
            scale *= _root(squares, row, rows, epsilon, PARTS, WIDTH)
        tl.store(factors + row, scale, mask=real)


@jit
@no_type_check
def _pair(x, weight, row, rows, output, gap, WIDTH: tl.constexpr, INPUTS: tl.constexpr):
    """Rows times two tiles of weights that lie `gap` outputs apart."""
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
    return one, other


@jit
@no_type_check
def _factor(squares, epsilon, factors, row, rows, EIGHT: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """By what the products of each row are to be multiplied."""
    if EIGHT:
        factor = tl.load(factors + row, mask=row < rows, other=0.0)
    else:
        factor = _root(squares, row, rows, epsilon, PARTS, WIDTH)
    return factor[None, :]


@jit
@no_type_check
def project_kernel(
    x, squares, epsilon, factors, weight, scale, bias, cos, sin, queries, keys, values, columns, written,
    rows, each, length, EIGHT: tl.constexpr, BIAS: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr,
    HEADS: tl.constexpr, KV: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, ROWS: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    after(OVERLAP)
    head = tl.program_id(0)
    row = tl.arange(0, ROWS)
    part = tl.arange(0, OUTPUTS)
    output = head * 2 * OUTPUTS + part
    gap = tl.full([], OUTPUTS, tl.int32)
    low, high = _pair(x, weight, row, rows, output, gap, WIDTH, INPUTS)
    factor = _factor(squares, epsilon, factors, row, rows, EIGHT, PARTS, WIDTH)
    low, high = low * factor, high * factor
    if EIGHT:
        low *= tl.load(scale + output)[:, None]
        high *= tl.load(scale + output + OUTPUTS)[:, None]
    if BIAS:
        low += tl.load(bias + output).to(tl.float32)[:, None]
        high += tl.load(bias + output + OUTPUTS).to(tl.float32)[:, None]
    real = row < rows
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
def add_kernel(
    x, factors, weight, scale, to, gain, made, scaled, squares, tops, rows, width,
    EIGHT: tl.constexpr, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
    ROWS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    after(OVERLAP)
    row = tl.arange(0, ROWS)
    real = row < rows
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    column = tl.arange(0, INPUTS)
    x = x + row[None, :] * WIDTH + column[:, None]
    tile = weight + output.to(tl.int64)[:, None] * WIDTH + column[None, :]
    total = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for start in range(0, WIDTH, INPUTS):
        part = tl.load(x + start, mask=real[None, :], other=0.0)
        total = tl.dot(tl.load(tile + start), part, total, input_precision="ieee")
    if EIGHT:
        own = tl.load(factors + row, mask=real, other=0.0)
        total *= tl.load(scale + output)[:, None] * own[None, :]
    place = row[None, :] * width + output[:, None]
    total += tl.load(to + place, mask=real[None, :], other=0.0).to(tl.float32)
    value = total.to(made.dtype.element_ty)
    tl.store(made + place, value, mask=real[None, :])
    _ready(value, gain, scaled, squares, tops, row, real, output, rows, width)


@jit
@no_type_check
def gate_kernel(
    x, squares, epsilon, factors, weight, scale, made, made_tops, rows, width, EIGHT: tl.constexpr, PARTS: tl.constexpr,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, ROWS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    after(OVERLAP)
    row = tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    gated, upped = _pair(x, weight, row, rows, output, width, WIDTH, INPUTS)
    factor = _factor(squares, epsilon, factors, row, rows, EIGHT, PARTS, WIDTH)
    gated, upped = gated * factor, upped * factor
    if EIGHT:
        gated *= tl.load(scale + output)[:, None]
        upped *= tl.load(scale + output + width)[:, None]
    product = gated * tl.sigmoid(gated) * upped
    place = row[None, :] * width + output[:, None]
    tl.store(made + place, product.to(made.dtype.element_ty), mask=(row < rows)[None, :])
    tl.store(made_tops + tl.program_id(0) * rows + row, tl.max(tl.abs(product), 0), mask=row < rows)
