"""Soft tokens of an interpolating rule (arc.py), written into the next pass's input without an [N, k, D] tensor.

There is one program per position of the canvas. Positions that are not chosen return at once, so the host counts and
packs nothing.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor

from softdlm import arc
from softdlm.kernels.tiles import jit
from softdlm.types import Embeddings, Prediction

_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
_PI = tl.constexpr(torch.pi)


def write_soft(
    rule: Any,
    prediction: Prediction,
    embeddings: Embeddings,
    chosen: Bool[Tensor, "B L"],
    embeds: Float[Tensor, "B L D"],
) -> None:
    """Apply `rule` (a PlaneRule) at the chosen positions of `embeds`, in place; feedback.py does the same in torch."""
    width = embeds.shape[-1]
    rows = embeds.view(-1, width)
    _soft[(chosen.numel(),)](
        rows, rows.stride(0), chosen.contiguous(), prediction.topk_ids.contiguous(), prediction.topk_probs.contiguous(),
        embeddings.table, embeddings.table.stride(0), embeddings.mask, prediction.topk_ids.shape[-1], width, rule.lam,
        K=min(rule.k, prediction.topk_ids.shape[-1]), NORM=rule.norm, WEIGHTS=compiled(rule.weights),
        WIDTH=triton.next_power_of_2(width), num_warps=4 if width <= 2048 else 8,
    )  # fmt: skip


@cache
def compiled(weights: FunctionType) -> Any:
    """The rule's weight formula from arc.py, compiled with Triton's functions in place of torch's."""
    constant = tl.constexpr(arc.DEGENERATE)
    names = {"tl": tl, "where": _where, "cos": _cos, "sin": _sin, "sqrt": _sqrt, "DEGENERATE": constant}
    copy = FunctionType(weights.__code__, names, weights.__name__)
    copy.__module__ = __name__
    return jit(copy)


@jit(do_not_specialize=["stored"])
@no_type_check
def _soft(
    embeds, embeds_stride, chosen, topk_ids, topk_probs, table, table_stride, mask, stored, width, lam,
    K: tl.constexpr, NORM: tl.constexpr, WEIGHTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    if tl.load(chosen + place) != 0:
        column = tl.arange(0, WIDTH)
        inside = column < width
        total = tl.zeros([], tl.float32)
        for candidate in tl.static_range(K):
            total += tl.load(topk_probs + place * stored + candidate)
        total = tl.maximum(total, _TINY, propagate_nan=tl.PropagateNan.ALL)
        mean = tl.zeros([WIDTH], tl.float32)
        for candidate in tl.static_range(K):
            share = tl.load(topk_probs + place * stored + candidate) / total
            row = tl.load(topk_ids + place * stored + candidate)
            mean += share * tl.load(table + row * table_stride + column, mask=inside, other=0.0).to(tl.float32)

        origin = tl.load(mask + column, mask=inside, other=0.0).to(tl.float32)
        mask_norm = tl.maximum(_norm(origin), _TINY, propagate_nan=tl.PropagateNan.ALL)
        mean_norm = tl.maximum(_norm(mean), _TINY, propagate_nan=tl.PropagateNan.ALL)
        toward = mean / mean_norm
        start = origin / mask_norm
        cosine = tl.sum(toward * start, 0)
        tangent = toward - cosine * start
        sine = _norm(tangent)
        along, across = WEIGHTS(lam, NORM, mask_norm, mean_norm, cosine, sine, _angle(sine, cosine))
        soft = along * origin + across * tangent
        tl.store(embeds + place * embeds_stride + column, soft.to(embeds.dtype.element_ty), mask=inside)


@jit
@no_type_check
def _norm(x):
    return tl.sqrt(tl.sum(x * x, 0))


@jit
@no_type_check
def _angle(sine, cosine):
    """`arc.angle_of`: the series of the arc tangent, after halving the angle twice."""
    half = sine / (1 + tl.abs(cosine))
    x = half / (1 + tl.sqrt(1 + half * half))
    t = x * x
    series = 1 - t * (1 / 3 - t * (1 / 5 - t * (1 / 7 - t * (1 / 9 - t * (1 / 11 - t * (1 / 13 - t / 15))))))
    acute = 4 * x * series
    return tl.where(cosine >= 0, acute, _PI - acute)


@jit
@no_type_check
def _where(condition, one, other):
    return tl.where(condition, one, other)


@jit
@no_type_check
def _cos(x):
    return tl.cos(x)


@jit
@no_type_check
def _sin(x):
    return tl.sin(x)


@jit
@no_type_check
def _sqrt(x):
    return tl.sqrt(x)
