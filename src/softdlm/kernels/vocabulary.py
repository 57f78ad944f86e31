"""The greedy vocabulary reduction, tile by tile: logits are read once and never copied to float32 as a whole.

There are two kinds of columns. *Special* ones ([MASK], forbidden ids, ids that come last) are few and do not count for
both feedback and ranking (see predict): the scan skips them, and they are looked up by id at the end. *Ordinary* ones,
all others, count for both, so one scan serves both.

For each tile the scan keeps its k best columns and, over the remaining logits x, two sums relative to a reference r
that is at least as large as any x:  rest = sum e^(x-r)  and  slope = sum e^(x-r) (x-r).  The best column is therefore
never part of a sum, so its log-probability is -log1p(others), without cancellation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.types import Prediction

MAX_CANDIDATES = 16
TILE = 8192
HIGHEST = 80.0
"""Most by which a [MASK] logit may exceed the best token's, as in predict: e^80 is finite in float32."""
NOTHING = -120.0
"""Takes the place of -inf where -inf times 0 would give NaN: e^-120 is 0 in float32."""


@dataclass(frozen=True)
class Special:
    """The special columns, by ascending id and without repeats."""

    ids: Int[Tensor, "S"]
    ranked: Bool[Tensor, "S"]
    """Whether the id counts in the normaliser of the ranking: [MASK], unless it is forbidden or comes last."""
    candidate: Bool[Tensor, "S"]
    """Whether the id may be predicted and fed back although it is not ranked: the ids that come last."""

    @staticmethod
    @cache
    def of(mask_id: int, forbid: tuple[int, ...], last: tuple[int, ...], device: torch.device) -> Special:
        """The special columns of a token policy, made once per device: a copy to a GPU would break a captured graph."""
        ids = sorted({mask_id, *forbid, *last})
        ranked = [token == mask_id and token not in (*forbid, *last) for token in ids]
        candidate = [token in last and token not in (mask_id, *forbid) for token in ids]
        return Special(
            torch.tensor(ids, device=device),
            torch.tensor(ranked, device=device),
            torch.tensor(candidate, device=device),
        )


class Scan(NamedTuple):
    """Result of the scan over ordinary columns, per row and part of the vocabulary: P parts, C columns kept in each."""

    values: Float[Tensor, "N P C"]
    ids: Int[Tensor, "N P C"]
    reference: Float[Tensor, "N P"]
    rest: Float[Tensor, "N P"]
    slope: Float[Tensor, "N P"]


def reduce_tiled(logits: Float[Tensor, "N V"], special: Special, k: int, tile: int = TILE) -> Prediction:
    """The greedy case of `predict.reduce_logits` in torch; extra memory is that of one tile."""
    return finish(scan(logits, special, k, tile), logits, special, k)


def scan(logits: Float[Tensor, "N V"], special: Special, k: int, tile: int = TILE) -> Scan:
    starts = range(0, logits.shape[1], tile)
    parts = [_scan_tile(logits[:, start : start + tile], start, special, max(k, 2)) for start in starts]
    return Scan(*(torch.stack(values, 1) for values in zip(*parts, strict=True)))


def _scan_tile(
    logits: Float[Tensor, "N T"], start: int, special: Special, keep: int
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], Float[Tensor, "N"], Float[Tensor, "N"], Float[Tensor, "N"]]:
    columns = torch.arange(start, start + logits.shape[1], device=logits.device)
    left = logits.float().masked_fill(torch.isin(columns, special.ids), float("-inf"))
    best = []
    for _ in range(keep):  # argmax gives the first of equals, topk any
        index = left.argmax(1, keepdim=True)
        best.append((left.gather(1, index), index + start))
        left = left.scatter(1, index, float("-inf"))
    values, ids = (torch.cat(parts, 1) for parts in zip(*best, strict=True))
    reference = values[:, 0].clamp(min=torch.finfo(torch.float32).min)
    weights, relative = _relative(left, reference)
    return values, ids, reference, weights.sum(1), (weights * relative).sum(1)


def finish(scan: Scan, logits: Float[Tensor, "N V"], special: Special, k: int) -> Prediction:
    """Combine the parts, look up the special columns, and compute the Prediction."""
    values = torch.cat([scan.values.flatten(1), logits[:, special.ids].float()], 1)
    ids = torch.cat([scan.ids.flatten(1), special.ids.expand(len(logits), -1)], 1)
    ordinary = torch.arange(values.shape[1], device=values.device) < values.shape[1] - len(special.ids)
    topk_ids, topk_values = _best(values, ids, _with(ordinary, special.candidate), min(k, logits.shape[1]))
    token = topk_ids[:, 0]
    log_confidence, entropy, one_minus_margin = _ranking(scan, values, ids, ordinary, _with(ordinary, special.ranked))
    deferred = ((token[:, None] == special.ids) & special.candidate).any(1)
    normaliser = _normaliser(scan, values)
    return Prediction(
        token,
        log_confidence.masked_fill(deferred, float("-inf")),
        entropy,
        one_minus_margin,
        topk_ids,
        (topk_values - normaliser[:, None]).exp(),
    )


def _with(ordinary: Bool[Tensor, "M"], special: Bool[Tensor, "S"]) -> Bool[Tensor, "M"]:
    return torch.cat([ordinary[: len(ordinary) - len(special)], special])


def _best(
    values: Float[Tensor, "N M"], ids: Int[Tensor, "N M"], wanted: Bool[Tensor, "M"], k: int
) -> tuple[Int[Tensor, "N K"], Float[Tensor, "N K"]]:
    """The k best wanted columns, ties by id. Columns at -inf are no candidates: the best id stands in for them."""
    by_id = ids.argsort(dim=1, stable=True)
    left = values.masked_fill(~wanted, float("-inf")).gather(1, by_id)
    top = left.sort(dim=1, descending=True, stable=True)
    kept, found = top.values[:, :k], ids.gather(1, by_id).gather(1, top.indices[:, :k])
    return torch.where(kept.isneginf(), found[:, :1], found), kept


def _ranking(
    scan: Scan,
    values: Float[Tensor, "N M"],
    ids: Int[Tensor, "N M"],
    ordinary: Bool[Tensor, "M"],
    ranked: Bool[Tensor, "M"],
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"], Float[Tensor, "N"]]:
    """Log-confidence, entropy and 1 - margin as in predict, from sums without the best column."""
    first = _best(values, ids, ordinary, 1)
    best = first[1][:, 0]
    is_best = ordinary & (values == best[:, None]) & (ids == first[0])
    second = values.masked_fill(is_best | ~ordinary, float("-inf")).amax(1)
    weights, relative = _relative(values.masked_fill(is_best | ~ranked, float("-inf")), best)
    scale, shift = _relative(scan.reference, best)
    others = weights.sum(1) + (scale * scan.rest).sum(1)
    slope = (weights * relative).sum(1) + (scale * (scan.slope + shift * scan.rest)).sum(1)
    log_total = others.log1p()
    entropy = log_total - slope / (1 + others)
    one_minus_margin = (others + (second - best).exp()) / (1 + others)
    return -log_total, entropy.clamp(min=0), one_minus_margin


def _normaliser(scan: Scan, values: Float[Tensor, "N M"]) -> Float[Tensor, "N"]:
    """Log-normaliser over the full vocabulary, special columns included."""
    best = values.amax(1)
    scale, _ = _relative(scan.reference, best)
    return best + (_relative(values, best)[0].sum(1) + (scale * scan.rest).sum(1)).log()


def _relative(
    values: Float[Tensor, "N M"], reference: Float[Tensor, "N"]
) -> tuple[Float[Tensor, "N M"], Float[Tensor, "N M"]]:
    """e^(x-r) and x-r, with x-r clamped so that their product stays finite."""
    relative = (values - reference[:, None]).clamp(NOTHING, HIGHEST)
    return relative.exp(), relative
