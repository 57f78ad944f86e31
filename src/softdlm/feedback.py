"""Feedback rules: what an open position shows the model in the next pass.

Every rule is a frozen value, called as `rule(prediction, embeddings, context) -> embeddings` on the flat open
positions. `k` is the number of candidates it needs, `needs_mean` asks for the full-vocabulary mean embedding.
Arithmetic is float32 (float64 for a float64 table); the result is cast back to the table's type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.types import Context, Embeddings, Prediction

_DEGENERATE = 1e-4
"""Below this sine of the angle (and for an aggregate this much shorter than [MASK]) the arc has no direction."""


@runtime_checkable
class FeedbackRule(Protocol):
    @property
    def k(self) -> int: ...

    @property
    def needs_mean(self) -> bool: ...

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context, /) -> Float[Tensor, "N D"]: ...


@dataclass(frozen=True)
class Mask:
    """Vanilla parallel decoding: an open position stays [MASK]."""

    k = 0
    needs_mean = False

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        return embeddings.mask.expand(len(prediction.token), -1)


@dataclass(frozen=True)
class Euclidean:
    """(1 - lam) e_MASK + lam m (section 2.3); norm="mask" rescales it to the [MASK] norm (appendix B.2)."""

    k: int = 3
    lam: float = 0.3
    norm: Literal["mask"] | None = None
    needs_mean = False

    def __post_init__(self) -> None:
        _check(self.k, self.lam, self.norm, (None, "mask"))

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        mask, mean = _endpoints(prediction, embeddings, self.k)
        soft = torch.lerp(mask.expand_as(mean), mean, self.lam)
        if self.norm == "mask":
            length = _norm(soft)
            soft = torch.where(length > _DEGENERATE * _norm(mask), soft * (_norm(mask) / length), mask)
        return soft.to(embeddings.table.dtype)


@dataclass(frozen=True)
class Slerp:
    """The point at lam x theta on the arc from [MASK] towards m, at the [MASK] norm (section 4.2).

    norm="candidate" takes the norm of m instead (appendix B.2).
    """

    k: int = 3
    lam: float = 0.3
    norm: Literal["mask", "candidate"] = "mask"
    needs_mean = False

    def __post_init__(self) -> None:
        _check(self.k, self.lam, self.norm, ("mask", "candidate"))

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        mask, mean = _endpoints(prediction, embeddings, self.k)
        soft = slerp(mask, mean, self.lam)
        if self.norm == "candidate":
            soft = soft * (_norm(mean) / _norm(mask))
        return soft.to(embeddings.table.dtype)


@dataclass(frozen=True)
class Additive:
    """e_MASK + w x (full-vocabulary mean), w growing with the passes: dInfer's smoothing."""

    start: float = 0.15
    grow: float = 0.02
    stop: float = 0.30
    k = 1
    needs_mean = True

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop or self.grow < 0:
            raise UsageError(
                f"need 0 <= start <= stop and grow >= 0, not start={self.start} grow={self.grow} stop={self.stop}"
            )

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        if prediction.mean is None:
            raise UsageError("Additive needs a prediction made with needs_mean=True")
        weight = (self.start + self.grow * context.passes).clamp(max=self.stop).unsqueeze(-1)
        soft = embeddings.mask.to(prediction.mean.dtype) + weight * prediction.mean
        return soft.to(embeddings.table.dtype)


@dataclass(frozen=True)
class NormMix:
    """sum p_i e_i + (1 - sum p_i) e_MASK at the same mixture of the norms: DMax's rule, at open positions.

    The probabilities are those of the full vocabulary, so the model's own confidence sets the strength.
    """

    k: int = 1
    needs_mean = False

    def __post_init__(self) -> None:
        _check(self.k, 0.0, None, (None,))

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        mask = _working(embeddings.mask)
        candidates = _working(embeddings.table[prediction.topk_ids[:, : self.k]])
        weights = prediction.topk_probs[:, : self.k, None].to(mask.dtype)
        rest = 1 - weights.sum(1)
        mix = (weights * candidates).sum(1) + rest * mask
        target = (weights * _norm(candidates)).sum(1) + rest * _norm(mask)
        length = _norm(mix)
        soft = torch.where(length > _DEGENERATE * target, mix * (target / length), mask)
        return soft.to(embeddings.table.dtype)


def slerp(
    mask: Float[Tensor, "D"], mean: Float[Tensor, "N D"], lam: float | Float[Tensor, "N 1"]
) -> Float[Tensor, "N D"]:
    """cos(lam theta) e_MASK + sin(lam theta) |e_MASK| w, w the unit tangent at [MASK] towards the mean.

    The same point as the quotient-of-sines form, but nothing is divided by sin theta: the norm is exact at every
    angle and lam = 0 is [MASK] to the bit. Parallel ends have no tangent: linear; an opposite or vanishing mean
    gives no direction to go: [MASK].
    """
    length, mean_length = _norm(mask), _norm(mean)
    toward, start = mean / mean_length, mask / length
    cosine = (toward * start).sum(-1, keepdim=True)
    tangent = toward - cosine * start
    sine = _norm(tangent)
    theta = _angle(sine, cosine)
    arc = torch.cos(lam * theta) * mask + torch.sin(lam * theta) * length * (tangent / sine)
    line = start + lam * (toward - start)
    line = line * (length / _norm(line))
    soft = torch.where(sine > _DEGENERATE, arc, torch.where(cosine > 0, line, mask))
    return torch.where(mean_length > _DEGENERATE * length, soft, mask)


def aggregate(prediction: Prediction, embeddings: Embeddings, k: int) -> Float[Tensor, "*S D"]:
    """m = sum p_i e_i over the k best candidates, p renormalised over them (section 4.2)."""
    weights = prediction.topk_probs[..., :k]
    weights = weights / weights.sum(-1, keepdim=True)
    candidates = _working(embeddings.table[prediction.topk_ids[..., :k]])
    return (weights.to(candidates.dtype).unsqueeze(-1) * candidates).sum(-2)


def _angle(sine: Float[Tensor, "N 1"], cosine: Float[Tensor, "N 1"]) -> Float[Tensor, "N 1"]:
    """atan2 by the half angle: torch.atan2 rounds differently with the number of rows, and batches must agree."""
    half = torch.atan(sine / (1 + cosine.abs()))
    return torch.where(cosine >= 0, 2 * half, torch.pi - 2 * half)


def _endpoints(
    prediction: Prediction, embeddings: Embeddings, k: int
) -> tuple[Float[Tensor, "D"], Float[Tensor, "N D"]]:
    return _working(embeddings.mask), aggregate(prediction, embeddings, k)


def _working(value: Tensor) -> Tensor:
    return value.to(torch.promote_types(value.dtype, torch.float32))


def _norm(value: Tensor) -> Tensor:
    return value.norm(dim=-1, keepdim=True)


def _check(k: int, lam: float, norm: str | None, norms: tuple[str | None, ...]) -> None:
    if k < 1:
        raise UsageError(f"candidates k must be at least 1, not {k}")
    if not 0 <= lam <= 1:
        raise UsageError(f"interpolation strength lam must lie in [0, 1], not {lam}")
    if norm not in norms:
        raise UsageError(f"norm must be one of {', '.join(map(repr, norms))}, not {norm!r}")
