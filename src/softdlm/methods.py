"""Methods by name: the words of the command line and of result files, turned into rules."""

from __future__ import annotations

from softdlm.commit import CommitRule, EntropyBound, Factor, Threshold, TopN
from softdlm.errors import UsageError
from softdlm.feedback import Additive, Euclidean, FeedbackRule, Mask, NormMix, Slerp

METHODS = ("vanilla", "euclidean", "slerp", "euclidean-mask-norm", "slerp-candidate-norm", "additive", "norm-mix")


def feedback_rule(method: str, k: int = 3, lam: float = 0.3) -> FeedbackRule:
    """A feedback rule; `additive` and `norm-mix` have their own strengths and take neither k nor lam."""
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
) -> CommitRule:
    """The commit rule that was asked for; one token a step where none was."""
    asked = {
        "tokens_per_step": (TopN, tokens_per_step),
        "threshold": (Threshold, threshold),
        "entropy_bound": (EntropyBound, entropy_bound),
        "factor": (Factor, factor),
    }
    given = {name: rule for name, rule in asked.items() if rule[1] is not None}
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: give one of them")
    for rule, value in given.values():
        return rule(value)
    return TopN(1)
