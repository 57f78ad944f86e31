"""`vocabulary` as two Triton kernels: scan the ordinary columns, then combine the parts of each row.

The scan reads logits once, in their own dtype. Several programs may share a row, each with a run of tiles, because one
prompt has fewer open positions than a GPU has multiprocessors. A program keeps the best columns in a small unordered
list. A tile changes the list only if its maximum exceeds the list's minimum, which is rare after the first few tiles,
so most tiles cost one maximum and one exponential per logit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from softdlm.kernels import vocabulary
from softdlm.kernels.tiles import jit
from softdlm.kernels.vocabulary import Scan, Special
from softdlm.types import Prediction

_HIGHEST = tl.constexpr(vocabulary.HIGHEST)
_NOTHING = tl.constexpr(vocabulary.NOTHING)
_LOWEST = tl.constexpr(torch.finfo(torch.float32).min)
_LOG2_E = tl.constexpr(math.log2(math.e))
"""exp(x) = exp2(x log2 e): exp2 is one GPU instruction, exp takes four."""
_RUN = tl.constexpr(8)
"""Adjacent columns per thread: 16 bytes in bfloat16."""
_NO_ID = tl.constexpr(2**30)


@dataclass(frozen=True)
class Tuning:
    """Layout of the scan on a GPU; benchmarks/kernels.py measures alternatives."""

    tile: int = 1024
    warps: int = 2
    programs: int = 528
    """Fewest programs to aim for: four per multiprocessor, of which an H100 or H200 has 132."""

    def parts(self, rows: int, columns: int) -> tuple[int, int]:
        """Number of parts that a row is split into, and tiles per part."""
        tiles = math.ceil(columns / self.tile)
        each = math.ceil(tiles / min(tiles, math.ceil(self.programs / max(rows, 1))))
        return math.ceil(tiles / each), each


def reduce_triton(logits: Float[Tensor, "N V"], special: Special, k: int, tuning: Tuning = Tuning()) -> Prediction:
    """The greedy case of `predict.reduce_logits` on a GPU: never synchronises, shapes depend on input shapes only."""
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    return finish(scan(logits, special, k, tuning), logits, special, k)


def scan(logits: Float[Tensor, "N V"], special: Special, k: int, tuning: Tuning = Tuning()) -> Scan:
    rows, columns = logits.shape
    keep = max(k, 2)
    parts, tiles = tuning.parts(rows, columns)
    found = Scan(
        logits.new_empty(rows, parts, keep, dtype=torch.float32),
        logits.new_empty(rows, parts, keep, dtype=torch.long),
        *(logits.new_empty(rows, parts, dtype=torch.float32) for _ in range(3)),
    )
    if rows:
        _scan[(rows, parts)](
            logits, logits.stride(0), columns, special.ids, len(special.ids), *found, tiles,
            KEEP=keep, SLOTS=triton.next_power_of_2(keep), TILE=tuning.tile, num_warps=tuning.warps,
        )  # fmt: skip
    return found


def finish(scan: Scan, logits: Float[Tensor, "N V"], special: Special, k: int) -> Prediction:
    rows, parts, keep = scan.values.shape
    k = min(k, logits.shape[1])
    token = logits.new_empty(rows, dtype=torch.long)
    topk_ids = logits.new_empty(rows, k, dtype=torch.long)
    topk_probs = logits.new_empty(rows, k, dtype=torch.float32)
    log_confidence, entropy, one_minus_margin = (logits.new_empty(rows, dtype=torch.float32) for _ in range(3))
    if rows:
        _finish[(rows,)](
            logits, logits.stride(0), special.ids, special.ranked, special.candidate, len(special.ids),
            *scan, parts, token, log_confidence, entropy, one_minus_margin, topk_ids, topk_probs,
            K=k, KEEP=keep, PARTS=triton.next_power_of_2(parts),
            ENTRIES=triton.next_power_of_2(parts * keep + len(special.ids)), num_warps=4,
        )  # fmt: skip
    return Prediction(token, log_confidence, entropy, one_minus_margin, topk_ids, topk_probs)


@jit(do_not_specialize=["specials", "tiles"])
@no_type_check
def _scan(
    logits, stride, columns, special, specials, values, ids, reference_out, rest_out, slope_out, tiles,
    KEEP: tl.constexpr, SLOTS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    place = row * tl.num_programs(1) + part
    line = logits + row * stride
    run = tl.arange(0, TILE // _RUN) * _RUN
    step = tl.arange(0, _RUN)
    lane = run[:, None] + step[None, :]
    slot = tl.arange(0, SLOTS)
    first = part * tiles * TILE
    last = tl.minimum(first + tiles * TILE, columns)

    kept = tl.where(slot < KEEP, -float("inf"), float("inf"))
    kept_ids = _NO_ID + slot
    floor = tl.full([], -float("inf"), tl.float32)
    reference = tl.full([], _LOWEST, tl.float32)
    rest = tl.zeros([TILE // _RUN], tl.float32)
    slope = tl.zeros([TILE // _RUN], tl.float32)
    dropped, dropped_slope = tl.zeros([], tl.float32), tl.zeros([], tl.float32)
    cursor = tl.zeros([], tl.int32)
    hole = _special(special, specials, cursor)
    while hole < first:  # not required, but faster than searching the first tile for these
        cursor += 1
        hole = _special(special, specials, cursor)

    raw = tl.load(line + first + lane, mask=first + lane < last, other=-float("inf"))
    for start in range(first, last, TILE):
        x = raw.to(tl.float32)
        following = start + TILE + lane
        raw = tl.load(line + following, mask=following < last, other=-float("inf"))  # prefetched for the next round
        while hole < start + TILE:
            x = _remove(x, hole - start, run, step)
            cursor += 1
            hole = _special(special, specials, cursor)

        top = tl.max(tl.max(x, 1), 0)
        if top > reference:
            scale, shift = _relative(reference, top)
            slope = scale * (slope + shift * rest)
            rest = scale * rest
            dropped_slope = scale * (dropped_slope + shift * dropped)
            dropped = scale * dropped
            reference = top
        while top > floor:  # the tile's best column moves into the list, the list's worst into the rest
            found = tl.min(tl.where(x == top, step[None, :], _RUN), 1)
            best = tl.min(tl.where(found < _RUN, run + found, TILE), 0)
            x = _remove(x, best, run, step)
            weight, relative = _relative(floor, reference)
            dropped += weight
            dropped_slope += weight * relative
            worst = tl.max(tl.where(kept == floor, kept_ids, -1), 0)
            leaves = (kept == floor) & (kept_ids == worst)
            kept = tl.where(leaves, top, kept)
            kept_ids = tl.where(leaves, start + best, kept_ids)
            floor = tl.min(kept, 0)
            top = tl.max(tl.max(x, 1), 0)
        weights, relatives = _relative(x, reference)
        rest += tl.sum(weights, 1)
        slope += tl.sum(weights * relatives, 1)

    tl.store(values + place * KEEP + slot, kept, mask=slot < KEEP)
    tl.store(ids + place * KEEP + slot, kept_ids.to(tl.int64), mask=slot < KEEP)
    tl.store(reference_out + place, reference)
    tl.store(rest_out + place, tl.sum(rest, 0) + dropped)
    tl.store(slope_out + place, tl.sum(slope, 0) + dropped_slope)


@jit(do_not_specialize=["specials", "parts"])
@no_type_check
def _finish(
    logits, stride, special, ranked, candidate, specials, values, ids, references, rests, slopes, parts,
    token_out, log_confidence_out, entropy_out, one_minus_margin_out, topk_ids, topk_probs,
    K: tl.constexpr, KEEP: tl.constexpr, PARTS: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    entry = tl.arange(0, ENTRIES)
    ordinary = entry < parts * KEEP
    number = entry - parts * KEEP
    is_special = (number >= 0) & (number < specials)
    listed = tl.load(values + row * parts * KEEP + entry, mask=ordinary, other=-float("inf"))
    listed_id = tl.load(ids + row * parts * KEEP + entry, mask=ordinary, other=_NO_ID)
    special_id = tl.load(special + number, mask=is_special, other=0)
    looked_up = tl.load(logits + row * stride + special_id, mask=is_special, other=-float("inf")).to(tl.float32)
    x = tl.where(is_special, looked_up, listed)
    id = tl.where(is_special, special_id, listed_id)
    is_ranked = ordinary | (tl.load(ranked + number, mask=is_special, other=0) != 0)
    is_candidate = tl.load(candidate + number, mask=is_special, other=0) != 0

    part = tl.arange(0, PARTS)
    here = part < parts
    reference = tl.load(references + row * parts + part, mask=here, other=_LOWEST)
    rest = tl.load(rests + row * parts + part, mask=here, other=0.0)
    slope = tl.load(slopes + row * parts + part, mask=here, other=0.0)

    top = tl.max(x, 0)
    weights, _ = _relative(x, top)
    scale, _ = _relative(reference, top)
    normaliser = top + tl.log(tl.sum(weights, 0) + tl.sum(scale * rest, 0))

    best, best_id = _first(x, id, ordinary)
    is_best = ordinary & (x == best) & (id == best_id)
    second = tl.max(tl.where(ordinary & (is_best == 0), x, -float("inf")), 0)
    weights, relatives = _relative(tl.where(is_ranked & (is_best == 0), x, -float("inf")), best, CAP=True)
    scale, shift = _relative(reference, best)
    others = tl.sum(weights, 0) + tl.sum(scale * rest, 0)
    surprise = -tl.sum(weights * relatives, 0) - tl.sum(scale * (slope + shift * rest), 0)
    log_total = _log1p(others)
    entropy = tl.maximum(log_total + surprise / (1 + others), 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(entropy_out + row, entropy)
    tl.store(one_minus_margin_out + row, (others + tl.exp(second - best)) / (1 + others))

    left = ordinary | is_candidate
    top, token = _first(x, id, left)
    token = tl.where((top == -float("inf")) | (token >= _NO_ID), 0, token)  # an id also where all logits are NaN
    deferred = tl.max(tl.where(is_candidate & (id == token), 1, 0), 0)
    tl.store(token_out + row, token)
    tl.store(log_confidence_out + row, tl.where(deferred != 0, -float("inf"), -log_total))
    for place in range(K):
        top, found = _first(x, id, left)
        left = left & ((id != found) | (x != top))
        tl.store(topk_ids + row * K + place, tl.where((top == -float("inf")) | (found >= _NO_ID), token, found))
        tl.store(topk_probs + row * K + place, tl.exp(top - normaliser))


@jit
@no_type_check
def _special(special, specials, cursor):
    """The special id at the cursor; after the last one, an id that no column has."""
    return tl.load(special + cursor, mask=cursor < specials, other=_NO_ID).to(tl.int32)


@jit
@no_type_check
def _remove(x, place, run, step):
    """The tile with the column at `place` set to -inf."""
    at_run = run == place // _RUN * _RUN
    at_step = step == place % _RUN
    return tl.where(at_run[:, None] & at_step[None, :], -float("inf"), x)


@jit
@no_type_check
def _first(x, id, wanted):
    """The value and id of the best wanted column; ties go to the lowest id."""
    top = tl.max(tl.where(wanted, x, -float("inf")), 0)
    return top, tl.min(tl.where(wanted & (x == top), id, _NO_ID), 0)


@jit
@no_type_check
def _relative(x, reference, CAP: tl.constexpr = False):
    """e^(x-r) and x-r, with x-r clamped so that their product stays finite; only [MASK] may exceed r (CAP)."""
    relative = tl.maximum(x - reference, _NOTHING, propagate_nan=tl.PropagateNan.ALL)
    if CAP:
        relative = tl.minimum(relative, _HIGHEST, propagate_nan=tl.PropagateNan.ALL)
    return tl.exp2(relative * _LOG2_E), relative


@jit
@no_type_check
def _log1p(x):
    """log(1 + x), below 1 by the series of 2 artanh(x / (2 + x)): the GPU's fast logarithm is inaccurate near 1."""
    s = x / (2 + x)
    t = s * s
    series = 1 + t * (1 / 3 + t * (1 / 5 + t * (1 / 7 + t * (1 / 9 + t * (1 / 11 + t * (1 / 13 + t / 15))))))
    return tl.where(x < 1, 2 * s * series, tl.log(1 + x))
