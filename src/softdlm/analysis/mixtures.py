"""Table 1: does a soft token act as an additive or a multiplicative mixture? (sections 3 and 5.1, appendix D.2)"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor

from softdlm.analysis.divergence import jensen_shannon
from softdlm.analysis.prompts import Case
from softdlm.analysis.spans import BATCH, Filling, Rules, Span, hard, parallel
from softdlm.errors import UsageError
from softdlm.models.denoiser import Denoiser
from softdlm.types import Prediction

REALISATIONS = 2**16
"""Most realisations, each a row of a forward pass, per prompt."""


@dataclass(frozen=True)
class MixtureRow:
    """One prompt: for each rule, the divergence at each masked position."""

    prompt: str
    masks: int
    realisations: int
    additive: dict[str, list[float]]
    multiplicative: dict[str, list[float]]


@dataclass(frozen=True)
class MixtureSummary:
    """One rule: mean over positions, then over prompts, in nats."""

    rule: str
    additive: float
    multiplicative: float
    prompts: int


def measure_mixtures(
    model: Denoiser, case: Case, rules: Rules, *, k: int = 3, lam: float = 0.3, batch_size: int = BATCH
) -> MixtureRow:
    """JS divergence between each rule's prediction and both references.

    The references depend on k and lam only and are the same for all rules. For a rule with other parameters (Additive,
    NormMix) the result is therefore its distance from the mixtures at this k and lam.
    """
    check_size(k, lam, len(case.span.places))
    prediction, found = parallel(model, case.span, rules, k)
    realisations = weighted_realisations(prediction, k, lam)
    additive, multiplicative = references(model, case.span, realisations, batch_size)
    return MixtureRow(
        case.prompt,
        len(case.span.places),
        len(realisations),
        {name: jensen_shannon(log_probs, additive).tolist() for name, log_probs in found.items()},
        {name: jensen_shannon(log_probs, multiplicative).tolist() for name, log_probs in found.items()},
    )


def weighted_realisations(prediction: Prediction, k: int, lam: float) -> list[tuple[Filling, float]]:
    """Every assignment of tokens or [MASK] to the soft tokens, with its weight w(z); without those of weight 0.

    A position is [MASK] with weight 1 - lam and candidate i with weight lam p_i, where p is renormalised over the k
    candidates. Positions are independent, and the queried position is one of them.
    """
    shares = prediction.topk_probs[:, :k].double()
    shares = lam * shares / shares.sum(-1, keepdim=True)
    states = [
        [(None, 1 - lam), *zip(tokens, weights, strict=True)]
        for tokens, weights in zip(prediction.topk_ids[:, :k].tolist(), shares.tolist(), strict=True)
    ]
    joint = [(tuple(token for token, _ in z), math.prod(weight for _, weight in z)) for z in product(*states)]
    return [(filling, weight) for filling, weight in joint if weight > 0]


def references(
    model: Denoiser, span: Span, realisations: Sequence[tuple[Filling, float]], batch_size: int = BATCH
) -> tuple[Float[Tensor, "M V"], Float[Tensor, "M V"]]:
    """log p_add and log p_mult: weighted arithmetic and normalised weighted geometric mean of the predictions."""
    fillings = [filling for filling, _ in realisations]
    shape = (len(span.places), len(model.embedding))
    multiplicative = torch.zeros(shape, dtype=torch.float64, device=model.device)
    additive = torch.full_like(multiplicative, -math.inf)
    for (_, weight), log_probs in zip(realisations, hard(model, span, fillings, batch_size), strict=True):
        additive = torch.logaddexp(additive, math.log(weight) + log_probs)
        multiplicative = multiplicative + weight * log_probs
    return additive, multiplicative.log_softmax(-1)


def summarise(rows: Sequence[MixtureRow]) -> list[MixtureSummary]:
    rules = rows[0].additive if rows else {}
    return [
        MixtureSummary(
            rule,
            fmean([fmean(row.additive[rule]) for row in rows]),
            fmean([fmean(row.multiplicative[rule]) for row in rows]),
            len(rows),
        )
        for rule in rules
    ]


def check_size(k: int, lam: float, masks: int) -> None:
    if k < 1 or not 0 <= lam <= 1:
        raise UsageError(f"mixtures need k >= 1 and 0 <= lam <= 1, not k={k} lam={lam}")
    if (k + 1) ** masks > REALISATIONS:
        raise UsageError(
            f"k={k} over {masks} masks makes {(k + 1) ** masks} realisations, more than {REALISATIONS}: lower k"
        )
