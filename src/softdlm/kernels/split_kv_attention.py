"""Attention of few rows over many keys. The keys of a head are split among programs; the last one combines them."""

from __future__ import annotations

import math
from typing import no_type_check

import torch
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor, library

from softdlm.kernels.tiles import after, jit, overlap, padded

PROGRAMS = 128
"""Programs to aim for, about one per multiprocessor (132 on an H200)."""
KEYS = 128
"""Keys per tile."""


def attend(
    queries: Float[Tensor, "M heads d"],
    keys: Float[Tensor, "B kv L d"],
    values: Float[Tensor, "B kv L d"],
    scale: float,
    count: Int[Tensor, "N"],
    tops: Float[Tensor, "heads M"] | None = None,
) -> Float[Tensor, "M D"]:
    """Full attention: every row sees every key. `count` has a counter per head and row, zero before and after.

    `tops` is filled with the largest magnitude of each head's part of a row.
    """
    batch, kv, length, head = keys.shape
    rows, heads, _ = queries.shape
    each = rows // batch
    tiles = -(-length // KEYS)
    run = -(-tiles // max(PROGRAMS // (batch * heads), 1))
    parts = -(-tiles // run)
    made = torch.empty_like(queries)
    taken = padded(each)
    partial = queries.new_empty(batch * heads, parts, taken, head, dtype=torch.float32)
    sums = queries.new_empty(batch * heads, parts, 2, taken, dtype=torch.float32)
    _attend[(batch * heads, parts)](
        queries, keys, values, made, partial, sums, count, sums if tops is None else tops, scale * math.log2(math.e),
        each, length, run, TOPS=tops is not None, HEADS=heads, GROUP=heads // kv, HEAD=head, ROWS=taken, KEYS=KEYS,
        PARTS=parts, WHOLE=length % KEYS == 0, num_warps=4, num_stages=3, **overlap(queries),
    )  # fmt: skip
    return made.flatten(1)


@library.custom_op(
    "softdlm::attend", mutates_args=(), schema="(Tensor queries, Tensor keys, Tensor values, float scale) -> Tensor"
)
def attend_apart(
    queries: Float[Tensor, "B Q heads d"],
    keys: Float[Tensor, "B kv L d"],
    values: Float[Tensor, "B kv L d"],
    scale: float,
) -> Float[Tensor, "B Q heads d"]:
    """The same for compiled layers, with a counter of its own."""
    count = torch.zeros(queries.shape[0] * queries.shape[2], dtype=torch.int32, device=queries.device)
    return attend(queries.flatten(0, 1), keys, values, scale, count).view(queries.shape)


@attend_apart.register_fake
def _(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    return queries.new_empty(queries.shape)


@jit
@no_type_check
def _attend(
    queries, keys, values, made, partial, sums, count, tops, scale, each, length, run, TOPS: tl.constexpr,
    HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    PARTS: tl.constexpr, WHOLE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    after(OVERLAP)
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
        key = tl.load(keys + place) if WHOLE else tl.load(keys + place, mask=seen[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        if not WHOLE:
            score = tl.where(seen[None, :], score, -float("inf"))
        now = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - now[:, None])
        fade = tl.exp2(top - now)
        total = total * fade + tl.sum(weight, 1)
        value = tl.load(values + place) if WHOLE else tl.load(values + place, mask=seen[:, None], other=0.0)
        mean = tl.dot(weight.to(value.dtype), value, mean * fade[:, None], input_precision="ieee")
        top = now

    mine = (which * PARTS + part) * ROWS
    grid = row[:, None] * HEAD + lane[None, :]
    tl.store(partial + mine.to(tl.int64) * HEAD + grid, mean)
    tl.store(sums + mine * 2 + row, top)
    tl.store(sums + mine * 2 + ROWS + row, total)
    tl.debug_barrier()  # the stores above must be visible before the count
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
        mean = mean / total[:, None]
        tl.store(made + at, mean.to(made.dtype.element_ty), mask=real[:, None])
        if TOPS:
            all = tl.num_programs(0) // HEADS * each
            tl.store(tops + head * all + first + row, tl.max(tl.abs(mean), 1), mask=real)
