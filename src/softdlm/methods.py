"""Methods by name: the words of the command line and of result files, turned into rules."""

from __future__ import annotations

from softdlm.commit import CommitRule, EntropyBound, Factor, Rank, Threshold, TopN
from softdlm.errors import UsageError
from softdlm.feedback import Additive, Euclidean, FeedbackRule, Mask, NormMix, Slerp
from softdlm.models.denoiser import Strength

METHODS = ("vanilla", "euclidean", "slerp", "euclidean-mask-norm", "slerp-candidate-norm", "additive", "norm-mix")


def feedback_rule(
    method: str, k: int | None = None, lam: float | None = None, own: Strength = Strength()
) -> FeedbackRule:
    """A feedback rule, at the model's `own` strength where none is given.

    `additive` and `norm-mix` have their own strengths and take neither k nor lam.
    """
    k, lam = own.k if k is None else k, own.lam if lam is None else lam
    rules = {
        "vanilla": lambda: Mask(),
        "euclidean": lambda: Euclidean(k, lam),
        "slerp": lambda: Slerp(k, lam),
        "euclidean-mask-norm": lambda: Euclidean(k, lam, norm="mask"),
        "slerp-candidate-norm": lambda: Slerp(k, lam, norm="candidate"),
        "additive": lambda: Additive(),
        "norm-mix": lambda: NormMix(),
    }
    if method not in rules:
        raise UsageError(f"unknown method {method!r}; known are {', '.join(METHODS)}")
    return rules[method]()


def commit_rule(
    tokens_per_step: int | None = None,
    threshold: float | None = None,
    entropy_bound: float | None = None,
    factor: float | None = None,
    rank: Rank | None = None,
) -> CommitRule:
    """The commit rule that was asked for, one token a step where none was; `rank` replaces the rule's own order."""
    values = {
        "tokens_per_step": tokens_per_step,
        "threshold": threshold,
        "entropy_bound": entropy_bound,
        "factor": factor,
    }
    given = [name for name, value in values.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: give one of them")
    if tokens_per_step is not None:
        return TopN(tokens_per_step, rank or "confidence")
    if threshold is not None:
        return Threshold(threshold, floor=TopN(1, rank or "confidence"))
    if entropy_bound is not None:
        return EntropyBound(entropy_bound, rank or "entropy")
    if factor is not None and rank not in (None, "confidence"):
        raise UsageError(f"the factor rule ranks by confidence, not by {rank}")
    return TopN(1, rank or "confidence") if factor is None else Factor(factor)
