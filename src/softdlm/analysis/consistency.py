"""Table 4: is the factorised prediction closer to a sequential one with feedback? (section 5.2, appendix D.3)"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor

from softdlm.analysis.divergence import conditional, conditional_reverse_kl
from softdlm.analysis.prompts import Case
from softdlm.analysis.spans import BATCH, Answer, Filling, Rules, Span, factorised, hard, parallel, put, words
from softdlm.models.denoiser import Denoiser


@dataclass(frozen=True)
class ConsistencyRow:
    """One prompt. `shares` are normalised over the support; `mass` is the probability of the support before that."""

    prompt: str
    masks: int
    support: list[str]
    reference: list[float]
    reference_mass: float
    shares: dict[str, list[float]]
    mass: dict[str, float]
    reverse_kl: dict[str, float]


@dataclass(frozen=True)
class ConsistencySummary:
    """One rule: means over prompts, in nats. `coherent` is the share of the two alternatives within the support."""

    rule: str
    reverse_kl: float
    coherent: float
    mass: float
    prompts: int


def measure_consistency(model: Denoiser, case: Case, rules: Rules, *, batch_size: int = BATCH) -> ConsistencyRow:
    """Conditional reverse KL of every rule to the order-averaged reference, on the prompt's recombinations."""
    answers = recombinations(case.a, case.b)
    reference = order_averaged(model, case.span, case.a, case.b, batch_size)
    _, found = parallel(model, case.span, rules)
    joint = {name: factorised(log_probs, answers).cpu() for name, log_probs in found.items()}
    return ConsistencyRow(
        case.prompt,
        len(case.span.places),
        [words(model, answer) for answer in answers],
        conditional(reference).exp().tolist(),
        float(reference.exp().sum()),
        {name: conditional(log_q).exp().tolist() for name, log_q in joint.items()},
        {name: float(log_q.exp().sum()) for name, log_q in joint.items()},
        {name: conditional_reverse_kl(log_q, reference) for name, log_q in joint.items()},
    )


def recombinations(a: Answer, b: Answer) -> list[Answer]:
    """The support S: every distinct positionwise combination of the two alternatives; the first is a, the last is b."""
    return list(product(*(dict.fromkeys(pair) for pair in zip(a, b, strict=True))))


def order_averaged(model: Denoiser, span: Span, a: Answer, b: Answer, batch_size: int = BATCH) -> Float[Tensor, "C"]:
    """log p_ref of every recombination: the mean over all m! orders of its teacher-forced probability.

    Orders that have filled the same positions with the same tokens share all later passes. So their sum is computed
    over the lattice of partial answers: at most 3^m - 2^m contexts instead of m! 2^m sequences.
    """
    choices = [tuple(dict.fromkeys(pair)) for pair in zip(a, b, strict=True)]
    contexts = sorted(product(*((None, *tokens) for tokens in choices)), key=lambda context: -context.count(None))
    unfinished = [context for context in contexts if None in context]
    both = torch.tensor([a, b], device=model.device).T
    total: dict[Filling, float] = dict.fromkeys(contexts, -math.inf) | {span.open: 0.0}
    for context, log_probs in zip(unfinished, hard(model, span, unfinished, batch_size), strict=True):
        scores = log_probs.gather(1, both).tolist()
        for index, token in enumerate(context):
            if token is None:
                for choice, score in dict(zip((a[index], b[index]), scores[index], strict=True)).items():
                    grown = put(context, index, choice)
                    total[grown] = _log_add(total[grown], total[context] + score)
    orders = math.lgamma(len(a) + 1)
    return torch.tensor([total[answer] - orders for answer in recombinations(a, b)], dtype=torch.float64)


def summarise(rows: Sequence[ConsistencyRow]) -> list[ConsistencySummary]:
    rules = rows[0].reverse_kl if rows else {}
    return [
        ConsistencySummary(
            rule,
            fmean([row.reverse_kl[rule] for row in rows]),
            fmean([row.shares[rule][0] + row.shares[rule][-1] for row in rows]),
            fmean([row.mass[rule] for row in rows]),
            len(rows),
        )
        for rule in rules
    ]


def _log_add(x: float, y: float) -> float:
    low, high = sorted((x, y))
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
