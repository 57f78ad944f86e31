"""Routing of tokens to experts: the router of Glm4Moe (and DeepSeek-V3) in two Triton kernels."""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor, library

from softdlm.kernels.tiles import Tiles, jit, padded

TILES, MOST = Tiles(inputs=32, stages=6), 64
"""Tile sizes of the router's product, and most rows per tile."""


@library.custom_op(
    "softdlm::route",
    mutates_args=(),
    schema="(Tensor hidden, Tensor weight, Tensor bias, int groups, int chosen, int k, bool normed, float factor)"
    " -> (Tensor, Tensor, Tensor)",
)
def route(
    hidden: Float[Tensor, "N D"], weight: Float[Tensor, "E D"], bias: Float[Tensor, "E"], groups: int, chosen: int,
    k: int, normed: bool, factor: float,
) -> tuple[Float[Tensor, "N E"], Float[Tensor, "N k"], Int[Tensor, "N k"]]:  # fmt: skip
    """Logits, and weights and ids of each token's k best experts by score plus bias, within its best groups."""
    logits, weights, ids = _routed(hidden, weight, k)
    rows, (experts, width) = len(hidden), weight.shape
    if rows:
        launch = TILES.launch(weight, min(padded(rows), MOST), experts, width)
        exact = hidden.dtype != torch.bfloat16
        kind = tl.bfloat16 if hidden.is_cuda else tl.float32  # Triton's interpreter multiplies no bfloat16
        _score[(triton.cdiv(rows, launch["ROWS"]), experts // launch["OUTPUTS"])](
            hidden.contiguous(), weight, logits, rows, WIDTH=width, EXPERTS=experts, EXACT=exact, TYPE=kind, **launch
        )
        _route[(rows,)](
            logits, bias, weights, ids, factor, GROUPS=groups, EACH=experts // groups, CHOSEN=chosen, K=k,
            NORMED=normed, num_warps=1,
        )  # fmt: skip
    return logits, weights, ids


@route.register_fake
def _(
    hidden: Tensor, weight: Tensor, bias: Tensor, groups: int, chosen: int, k: int, normed: bool, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _routed(hidden, weight, k)


def _routed(hidden: Tensor, weight: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = len(hidden)
    chosen = weight.new_empty(rows, k)
    return weight.new_empty(rows, len(weight)), chosen, weight.new_empty(rows, k, dtype=torch.long)


@jit
@no_type_check
def _score(
    hidden, weight, logits, rows, WIDTH: tl.constexpr, EXPERTS: tl.constexpr, ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, EXACT: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """The router's product, with experts first. A float32 weight is the sum of three numbers in bfloat16."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = row < rows
    expert = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    column = tl.arange(0, INPUTS)
    x = hidden + row.to(tl.int64)[None, :] * WIDTH + column[:, None]
    rule = weight + expert[:, None] * WIDTH + column[None, :]
    total = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for start in range(0, WIDTH, INPUTS):
        part = tl.load(x + start, mask=real[None, :], other=0.0)
        each = tl.load(rule + start)
        if EXACT:
            total = tl.dot(each, part.to(tl.float32), total, input_precision="ieee")
        else:
            part = part.to(TYPE)
            high = each.to(tl.bfloat16)
            rest = each - high.to(tl.float32)
            middle = rest.to(tl.bfloat16)
            low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
            total = tl.dot(high.to(TYPE), part, total)
            total = tl.dot(middle.to(TYPE), part, total)
            total = tl.dot(low.to(TYPE), part, total)
    tl.store(logits + row.to(tl.int64)[None, :] * EXPERTS + expert[:, None], total, mask=real[None, :])


@jit
@no_type_check
def _route(
    logits, bias, weights_out, ids_out, factor,
    GROUPS: tl.constexpr, EACH: tl.constexpr, CHOSEN: tl.constexpr, K: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, GROUPS)
    number = group[:, None] * EACH + tl.arange(0, EACH)[None, :]
    score = tl.sigmoid(tl.load(logits + token * GROUPS * EACH + number))
    choice = score + tl.load(bias + number)

    best = tl.max(choice, 1)
    first = tl.min(tl.where(choice == best[:, None], number, GROUPS * EACH), 1)
    second = tl.max(tl.where(number == first[:, None], -float("inf"), choice), 1)
    merit = best + second
    taken = tl.zeros([GROUPS], tl.int1)
    for _ in tl.static_range(CHOSEN):
        top = tl.max(tl.where(taken, -float("inf"), merit), 0)
        taken = taken | (group == tl.min(tl.where((taken == 0) & (merit == top), group, GROUPS), 0))

    left = tl.where(taken[:, None], choice, -float("inf"))
    slot = tl.arange(0, triton.next_power_of_2(K))
    ids = tl.zeros_like(slot)
    weights = tl.zeros([triton.next_power_of_2(K)], tl.float32)
    for place in tl.static_range(K):
        top = tl.max(tl.max(left, 1), 0)
        found = tl.min(tl.min(tl.where(left == top, number, GROUPS * EACH - 1), 1), 0)
        here = number == found
        weight = tl.sum(tl.sum(tl.where(here, score, 0.0), 1), 0)
        ids = tl.where(slot == place, found, ids)
        weights = tl.where(slot == place, weight, weights)
        left = tl.where(here, -float("inf"), left)
    if NORMED:
        weights = weights / (tl.sum(weights, 0) + 1e-20)
    tl.store(ids_out + token * K + slot, ids.to(tl.int64), mask=slot < K)
    tl.store(weights_out + token * K + slot, weights * factor, mask=slot < K)
