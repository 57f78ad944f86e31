"""From hidden states to a Prediction, for the requested positions only.

Two distributions matter and are kept apart. *Feedback* reads the model's own: no temperature, no filter, the full
vocabulary as normaliser, [MASK] and forbidden ids never candidates. *Ranking* reads the one the token was chosen
from: after temperature, top-p and top-k, or the model's own where `confidence` is "untempered"; without forbidden ids
and, once the token is chosen, without the ids that are to come last (LLaDA's EOS rule: such tokens keep their place in
the queue, but do not dilute the others).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softdlm import kernels
from softdlm.blocks import first
from softdlm.cache import Part
from softdlm.errors import UsageError
from softdlm.kernels.vocabulary import MAX_CANDIDATES, Special
from softdlm.models.denoiser import Denoiser
from softdlm.models.kv_memory import KVMemory
from softdlm.threads import map_parts, rows_apart
from softdlm.types import Canvas, Prediction, ids_on

Confidence = Literal["tempered", "untempered"]
CHUNK_ELEMENTS = 2**26
"""Logits handled at once, so that memory does not grow with the batch (256 MiB in float32)."""
LEAST_TEMPERATURE = 1e-6
"""Logits are divided by the temperature; by a much smaller one they would overflow. This one draws the likeliest."""


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen at a position, and which tokens are held back.

    Temperature, top-p and top-k are Dream's: they act on the drawn token and on its rank.
    """

    mask_id: int
    forbid: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    confidence: Confidence = "tempered"
    """What the ranking reads: the distribution the token was chosen from, or the model's own."""
    last_candidates: bool = True
    """Whether the ids that come last may be candidates of feedback."""
    k: int = 1
    """Candidates to keep for feedback and for the record."""
    needs: frozenset[str] = frozenset()
    """What the rules declare: "mean" (the full-vocabulary mean embedding), "probs" (the full distribution)."""

    def __post_init__(self) -> None:
        if self.temperature != 0 and not LEAST_TEMPERATURE <= self.temperature < math.inf:
            raise UsageError(f"temperature must be 0 or at least {LEAST_TEMPERATURE:g}, not {self.temperature}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must lie in (0, 1], not {self.top_p}")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top_k must be at least 1, not {self.top_k}")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise UsageError(f"min_p must lie in [0, 1], not {self.min_p}")
        if self.confidence not in get_args(Confidence):
            raise UsageError(f"confidence must be tempered or untempered, not {self.confidence!r}")
        both = set(self.forbid) & set(self.last)
        if both:
            raise UsageError(f"token ids {sorted(both)} are both forbidden and wanted last: choose one")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0 and self.top_p in (None, 1) and self.top_k is None and not self.min_p

    @property
    def held_back(self) -> tuple[int, ...]:
        """Ids that are never candidates of feedback, besides the forbidden ones."""
        return (self.mask_id,) if self.last_candidates else (self.mask_id, *self.last)

    def special(self, device: torch.device) -> Special:
        return Special.of(self.mask_id, self.forbid, self.last, device)


def predict(
    model: Denoiser,
    embeds: Float[Tensor, "B L D"],
    canvas: Canvas,
    parts: Sequence[Part],
    sampling: Sampling,
    draws: Float[Tensor, "B L"] | None,
    attention: int | None,
    memory: KVMemory | None,
) -> tuple[Prediction, Int[Tensor, "N"]]:
    """One forward pass, part by part; only the positions that a part names see the LM head.

    Returns what it says of them, flat, and where on the canvas they stand, by number.
    """

    def run(part: Part) -> Prediction:
        hidden = states(model, part, embeds, canvas, attention, memory).flatten(0, 1)[part.order]
        return reduce_hidden(model, hidden, sampling, None if draws is None else draws.flatten()[part.places])

    made = map_parts(run, parts) if rows_apart(embeds.device) else [run(part) for part in parts]
    return Prediction.join(made), torch.cat([part.places for part in parts])


def states(
    model: Denoiser,
    part: Part,
    embeds: Float[Tensor, "B L D"],
    canvas: Canvas,
    attention: int | None,
    memory: KVMemory | None,
) -> Float[Tensor, "G Q H"]:
    """The network on one window of the canvas."""
    window = part.window
    real = window.seen(canvas.real)
    masked = not bool(real.all()) if part.masked is None else part.masked
    sight: dict[str, Any] = {
        "attention_mask": real if masked else None,
        "position_ids": window.seen(canvas.positions),
        "block_length": attention,
    }
    if attention is not None and not model.blocks_from_zero:
        sight["block_start"] = canvas.positions.gather(1, first(canvas.free))[window.rows]
    if memory is None:
        return model.hidden(window.take(embeds), **sight)
    return model.hidden_in(window, memory, window.take(embeds), **sight)


def reduce_hidden(
    model: Denoiser, hidden: Float[Tensor, "N H"], sampling: Sampling, uniforms: Float[Tensor, "N"] | None = None
) -> Prediction:
    """LM head and vocabulary reduction, a bounded number of rows at a time."""
    size = max(1, CHUNK_ELEMENTS // len(model.embedding))
    table = model.embedding if "mean" in sampling.needs else None

    def part(start: int) -> Prediction:  # a function, so that a chunk's logits are gone before the next one's come
        logits = model.head(hidden[start : start + size])
        if fused(sampling, logits.device, logits.dtype):
            return kernels.reduce_greedy(logits, sampling.special(logits.device), sampling.k)
        return reduce_logits(logits, sampling, None if uniforms is None else uniforms[start : start + size], table)

    return Prediction.join([part(start) for start in range(0, len(hidden), size)])


def fused(sampling: Sampling, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernels do this reduction: greedy choices on a GPU, for rules that need candidates only."""
    return (
        kernels.wanted(device)
        and sampling.greedy
        and not sampling.needs
        and (sampling.last_candidates or not sampling.last)
        and sampling.k <= MAX_CANDIDATES
        and dtype in (torch.bfloat16, torch.float16, torch.float32)
    )


def reduce_logits(
    logits: Float[Tensor, "N V"],
    sampling: Sampling,
    uniforms: Float[Tensor, "N"] | None = None,
    table: Float[Tensor, "V D"] | None = None,
) -> Prediction:
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    scores = _without(logits, sampling.forbid)
    own = scores
    candidates = _without(own, sampling.held_back)
    topk_ids, topk_probs, mean, probs = _feedback_view(logits, candidates, sampling, table)

    if sampling.temperature > 0:
        scores = scores / sampling.temperature
    scores = _filter(scores, sampling)
    token = _pick(_without(scores, (sampling.mask_id,)), sampling.temperature, uniforms)
    ranked = _without(scores if sampling.confidence == "tempered" else own, sampling.last)
    log_confidence, entropy, one_minus_margin = _ranking_view(ranked, token, sampling.mask_id)
    if sampling.last:
        deferred = torch.isin(token, ids_on(token.device, sampling.last))
        log_confidence = log_confidence.masked_fill(deferred, float("-inf"))
    return Prediction(token, log_confidence, entropy, one_minus_margin, topk_ids, topk_probs, mean, probs)


def uniforms(
    seeds: Int[Tensor, "B 1"], requests: Int[Tensor, "B 1"], passes: Int[Tensor, "B 1"], positions: Int[Tensor, "B L"]
) -> Float[Tensor, "B L"]:
    """One number in [0, 1) per position, a function of (seed, request, pass, position) and nothing else.

    Integer arithmetic gives equal numbers on every device, and inside a captured graph. Each word is mixed into the
    ones before it by the finaliser of SplitMix64 (Steele, Lea and Flood, 2014); 24 bits become the number.
    """
    mixed = seeds
    for word in (requests, passes, positions):
        mixed = _mix(mixed * _GOLDEN + word + _GOLDEN)
    return _shifted(mixed, 40).float() * 2.0**-24


def int64(value: int) -> int:
    """An integer of any size as one that a tensor holds; different ones below 2**64 stay different."""
    low = value & (2**64 - 1)
    return low - 2**64 if low >= 2**63 else low


_GOLDEN = int64(0x9E3779B97F4A7C15)


def _mix(word: Int[Tensor, "*S"]) -> Int[Tensor, "*S"]:
    word = (word ^ _shifted(word, 30)) * int64(0xBF58476D1CE4E5B9)
    word = (word ^ _shifted(word, 27)) * int64(0x94D049BB133111EB)
    return word ^ _shifted(word, 31)


def _shifted(word: Int[Tensor, "*S"], bits: int) -> Int[Tensor, "*S"]:
    """To the right, with zeros from the left: torch has no unsigned shift."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _feedback_view(
    logits: Float[Tensor, "N V"],
    candidates: Float[Tensor, "N V"],
    sampling: Sampling,
    table: Float[Tensor, "V D"] | None,
) -> tuple[Int[Tensor, "N K"], Float[Tensor, "N K"], Float[Tensor, "N D"] | None, Float[Tensor, "N V"] | None]:
    """The best candidates with their probabilities under the full vocabulary; mean and distribution where needed."""
    normaliser = logits.logsumexp(-1, keepdim=True)
    best = candidates.topk(min(sampling.k, candidates.shape[-1]), dim=-1)
    probs = (candidates - normaliser).exp() if sampling.needs else None
    mean = None if table is None or probs is None else probs @ table.to(logits.dtype)
    return best.indices, (best.values - normaliser).exp(), mean, probs if "probs" in sampling.needs else None


def _ranking_view(
    scores: Float[Tensor, "N V"], token: Int[Tensor, "N"], mask_id: int
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"], Float[Tensor, "N"]]:
    """Log-confidence of the token, entropy, 1 - margin; all taken relative to the best score, without cancellation.

    With `others` the sum over all tokens but the best, the best has log-probability -log1p(others), which keeps
    an order among confidences that float32 rounds to 1.
    """
    top = _without(scores, (mask_id,)).topk(2, dim=-1)
    best, second = top.values.unbind(-1)
    relative = (scores - best[:, None]).clamp(max=80)
    weights = relative.exp()
    others = weights.scatter(-1, top.indices[:, :1], 0).sum(-1)
    log_total = others.log1p()
    log_confidence = relative.gather(-1, token[:, None]).squeeze(-1) - log_total
    surprise = torch.where(weights > 0, weights * -relative, 0).sum(-1)
    entropy = log_total + surprise / (1 + others)
    one_minus_margin = (others + (second - best).exp()) / (1 + others)
    return log_confidence, entropy.clamp(min=0), one_minus_margin


def _pick(scores: Float[Tensor, "N V"], temperature: float, uniforms: Float[Tensor, "N"] | None) -> Int[Tensor, "N"]:
    """The best token, or at a positive temperature the one that the position's uniform number falls on."""
    if temperature == 0:
        return scores.argmax(-1)
    if uniforms is None:
        raise UsageError(f"temperature {temperature} needs uniform numbers to draw with")
    cumulative = scores.softmax(-1).cumsum(-1)
    total = cumulative[:, -1:]
    bar = torch.minimum(uniforms[:, None] * total, total.nextafter(torch.zeros_like(total)))
    found = torch.searchsorted(cumulative, bar, right=True).squeeze(-1)
    return found.clamp(max=scores.shape[-1] - 1)  # among NaN, nothing is found: the row is ended by its entropy


def _filter(scores: Float[Tensor, "N V"], sampling: Sampling) -> Float[Tensor, "N V"]:
    """Dream's filters, in its order: the nucleus that first exceeds top_p, then the k best; last min_p.

    [MASK] takes no place among the kept and stays in the normaliser, as without filters.
    """
    top_p, top_k, min_p = sampling.top_p, sampling.top_k, sampling.min_p
    kept = candidates = _without(scores, (sampling.mask_id,))
    if top_p is not None and top_p < 1:
        ranked = candidates.sort(dim=-1, descending=True, stable=True)
        before = ranked.values.softmax(-1).cumsum(-1).roll(1, dims=-1)
        before[:, 0] = 0
        beyond = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, ranked.indices, before > top_p)
        kept = kept.masked_fill(beyond, float("-inf"))
    if top_k is not None:
        floor = kept.topk(min(top_k, kept.shape[-1]), dim=-1).values[:, -1:]
        kept = kept.masked_fill(kept < floor, float("-inf"))
    if min_p:
        least = candidates.amax(-1, keepdim=True) + math.log(min_p)
        kept = kept.masked_fill(kept < least, float("-inf"))
    return scores if kept is candidates else _with_column(kept, sampling.mask_id, scores)


def _without(scores: Float[Tensor, "N V"], ids: tuple[int, ...]) -> Float[Tensor, "N V"]:
    if not ids:
        return scores
    return scores.index_fill(-1, ids_on(scores.device, ids), float("-inf"))


def _with_column(kept: Float[Tensor, "N V"], token: int, scores: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    return kept.index_copy(-1, ids_on(kept.device, (token,)), scores[:, token, None])
