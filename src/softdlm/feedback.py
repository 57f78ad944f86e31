"""Feedback rules: what an open position shows the model in the next pass.

Every rule is a frozen value, called as `rule(prediction, embeddings, context) -> embeddings` on the flat open
positions. `k` is the number of candidates it needs. `needs = "mean"` asks for the full-vocabulary mean embedding,
`needs = "probs"` for the full distribution. `init` and `update` give it a memory: see `softdlm.types.Stateful`.
Arithmetic is float32 (float64 for a float64 table); the result is cast back to the table's type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm import kernels
from softdlm.arc import DEGENERATE, Ends, arc_weights, line_weights, norm_of
from softdlm.errors import UsageError
from softdlm.registry import named
from softdlm.types import Context, Embeddings, Prediction


@runtime_checkable
class FeedbackRule(Protocol):
    @property
    def k(self) -> int: ...

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context, /) -> Float[Tensor, "N D"]: ...


@runtime_checkable
class TurnRule(FeedbackRule, Protocol):
    """A rule that feeds the soft tokens of another one at some positions, and [MASK] at the others."""

    @property
    def feedback(self) -> FeedbackRule: ...

    def turn(self, context: Context, /) -> Bool[Tensor, "*S"]: ...


@runtime_checkable
class ArcRule(FeedbackRule, Protocol):
    """A rule whose soft tokens lie in the plane of [MASK] and the mean: x e_MASK + y tangent.

    `weights` gives (x, y) from numbers alone (see arc.py), so one formula serves torch and the kernel of a GPU.
    """

    @property
    def lam(self) -> float: ...

    @property
    def norm(self) -> str | None: ...

    @property
    def weights(self) -> Callable[..., tuple[Any, Any]]: ...


@named("feedback", "vanilla")
@dataclass(frozen=True)
class Mask:
    """Vanilla parallel decoding: an open position stays [MASK]."""

    k = 0

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        return embeddings.mask.expand(len(prediction.token), -1)


@named("feedback", "euclidean", euclidean_mask_norm={"norm": "mask"})
@dataclass(frozen=True)
class Euclidean:
    """(1 - lam) e_MASK + lam m (section 2.3); norm="mask" rescales it to the [MASK] norm (appendix B.2)."""

    k: int = 3
    lam: float = 0.3
    norm: Literal["mask"] | None = None
    weights = staticmethod(line_weights)

    def __post_init__(self) -> None:
        _check(self.k, self.lam, self.norm, (None, "mask"))

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        return _on_arc(self, prediction, embeddings)


@named("feedback", "slerp", slerp_candidate_norm={"norm": "candidate"})
@dataclass(frozen=True)
class Slerp:
    """The point at lam x theta on the arc from [MASK] towards m, at the [MASK] norm (section 4.2).

    norm="candidate" takes the norm of m instead (appendix B.2).
    """

    k: int = 3
    lam: float = 0.3
    norm: Literal["mask", "candidate"] = "mask"
    weights = staticmethod(arc_weights)

    def __post_init__(self) -> None:
        _check(self.k, self.lam, self.norm, ("mask", "candidate"))

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        return _on_arc(self, prediction, embeddings)


@named("feedback", "additive")
@dataclass(frozen=True)
class Additive:
    """e_MASK + w x (full-vocabulary mean), w growing with the passes: dInfer's smoothing."""

    start: float = 0.15
    grow: float = 0.02
    stop: float = 0.30
    k = 1
    needs = "mean"

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop or self.grow < 0:
            raise UsageError(
                f"need 0 <= start <= stop and grow >= 0, not start={self.start} grow={self.grow} stop={self.stop}"
            )

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        if prediction.mean is None:
            raise UsageError('Additive needs a prediction made with needs="mean"')
        weight = (self.start + self.grow * context.passes).clamp(max=self.stop).unsqueeze(-1)
        soft = embeddings.mask.to(prediction.mean.dtype) + weight * prediction.mean
        return soft.to(embeddings.table.dtype)


@named("feedback", "norm-mix")
@dataclass(frozen=True)
class NormMix:
    """sum p_i e_i + (1 - sum p_i) e_MASK at the same mixture of the norms: DMax's rule, at open positions.

    The probabilities are those of the full vocabulary, so the model's own confidence sets the strength.
    """

    k: int = 1

    def __post_init__(self) -> None:
        _check(self.k, 0.0, None, (None,))

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        mask = working(embeddings.mask)
        candidates = working(embeddings.table[prediction.topk_ids[:, : self.k]])
        weights = prediction.topk_probs[:, : self.k, None].to(mask.dtype)
        rest = 1 - weights.sum(1)
        mix = (weights * candidates).sum(1) + rest * mask
        target = (weights * norm_of(candidates)).sum(1) + rest * norm_of(mask)
        length = norm_of(mix)
        soft = torch.where(length > DEGENERATE * target, mix * (target / length), mask)
        return soft.to(embeddings.table.dtype)


@named("feedback", "soft-token", soft_token_5={"k": 5})
@dataclass(frozen=True)
class SoftToken:
    """Mean of the k best candidates, weighted by p_i, and [MASK], weighted by 1 - p_1 + extra: SoftTokenForMaskedDLM.

    The weights are divided by their sum; the probabilities are those of the full vocabulary. The published code
    (Les1a/SoftTokenForMaskedDLM) takes k = 5 and extra = 0.5.
    """

    k: int = 5
    extra: float = 0.5

    def __post_init__(self) -> None:
        _check(self.k, 0.0, None, (None,))
        if not self.extra >= 0:
            raise UsageError(f"extra weight of [MASK] must be at least 0, not {self.extra}")

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        mask = working(embeddings.mask)
        candidates = working(embeddings.table[prediction.topk_ids[:, : self.k]])
        weights = prediction.topk_probs[:, : self.k, None].to(mask.dtype)
        own = 1 - weights[:, 0] + self.extra
        soft = ((weights * candidates).sum(1) + own * mask) / (weights.sum(1) + own)
        return soft.to(embeddings.table.dtype)


def is_vanilla(rule: FeedbackRule) -> bool:
    """Whether an open position always stays [MASK]: `vanilla`, also inside other rules."""
    return is_vanilla(rule.feedback) if isinstance(rule, TurnRule) else isinstance(rule, Mask)


def mixture_of(rule: FeedbackRule) -> dict[str, Any]:
    """What a soft token of this rule is made of, as a trace keeps it for its readers.

    `arc` and `line`: the mean of k candidates, renormalised, at lam of the way from [MASK]. `shares`: k candidates and
    [MASK], by their probabilities. `mask`: there are no soft tokens. `other`: nothing that candidates could tell.
    """
    if isinstance(rule, TurnRule):
        return mixture_of(rule.feedback)
    if isinstance(rule, ArcRule) and rule.weights in (arc_weights, line_weights):
        return {"kind": "arc" if rule.weights is arc_weights else "line", "k": rule.k, "lam": rule.lam}
    if isinstance(rule, NormMix):
        return {"kind": "shares", "k": rule.k}
    return {"kind": "mask" if isinstance(rule, Mask) else "other"}


def feed_back(
    rule: FeedbackRule,
    prediction: Prediction,
    embeddings: Embeddings,
    context: Context,
    chosen: Bool[Tensor, "B L"],
    embeds: Float[Tensor, "B L D"],
    flat: Prediction,
    places: Int[Tensor, "N"],
) -> None:
    """Writes the rule's soft tokens into the next pass's input at the chosen positions, without synchronising.

    `flat` is the prediction at `places`, flat positions that hold the chosen ones and none twice.
    """
    while isinstance(rule, TurnRule):  # what is not chosen is [MASK] already
        chosen, rule = chosen & rule.turn(context), rule.feedback
    if fused(rule, embeddings):
        from softdlm.kernels.soft import write_soft

        write_soft(rule, prediction, embeddings, chosen, embeds)
        return
    rows = embeds.view(-1, embeds.shape[-1])
    soft = rule(flat, embeddings, context.at(places))
    rows.index_copy_(0, places, soft.where(chosen.flatten()[places, None], rows[places]))


def fused(rule: FeedbackRule, embeddings: Embeddings) -> bool:
    """Whether the kernel makes this rule's soft tokens: those of a plane, on a GPU with Triton."""
    return (
        isinstance(rule, ArcRule)
        and kernels.wanted(embeddings.table.device)
        and kernels.has_triton()
        and embeddings.table.dtype in (torch.bfloat16, torch.float16, torch.float32)
    )


def slerp(
    mask: Float[Tensor, "D"], mean: Float[Tensor, "N D"], lam: float | Float[Tensor, "N 1"]
) -> Float[Tensor, "N D"]:
    """The point at lam x theta on the arc from [MASK] towards the mean, at the [MASK] norm."""
    ends = Ends.of(mask, mean)
    return ends.point(*arc_weights(lam, "mask", *ends.numbers))


def _on_arc(rule: ArcRule, prediction: Prediction, embeddings: Embeddings) -> Float[Tensor, "N D"]:
    ends = Ends.of(working(embeddings.mask), aggregate(prediction, embeddings, rule.k))
    soft = ends.point(*rule.weights(rule.lam, rule.norm, *ends.numbers))
    return soft.to(embeddings.table.dtype)


def aggregate(prediction: Prediction, embeddings: Embeddings, k: int) -> Float[Tensor, "*S D"]:
    """m = sum p_i e_i over the k best candidates, p renormalised over them (section 4.2)."""
    weights = prediction.topk_probs[..., :k]
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    candidates = working(embeddings.table[prediction.topk_ids[..., :k]])
    return (weights.to(candidates.dtype).unsqueeze(-1) * candidates).sum(-2)


def working(value: Tensor) -> Tensor:
    """In the type that soft tokens are computed in: float32, or float64 for a float64 table."""
    return value.to(torch.promote_types(value.dtype, torch.float32))


def _check(k: int, lam: float, norm: str | None, norms: tuple[str | None, ...]) -> None:
    if k < 1:
        raise UsageError(f"candidates k must be at least 1, not {k}")
    if not 0 <= lam <= 1:
        raise UsageError(f"interpolation strength lam must lie in [0, 1], not {lam}")
    if norm not in norms:
        raise UsageError(f"norm must be one of {', '.join(map(repr, norms))}, not {norm!r}")
