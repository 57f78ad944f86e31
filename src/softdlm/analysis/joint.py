"""Figure 1: the joint distribution over a few masks, in sequence, in parallel and with soft tokens (section 2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor

from softdlm.analysis.completions import confidence_ordered
from softdlm.analysis.consistency import order_averaged, recombinations
from softdlm.analysis.prompts import Case
from softdlm.analysis.spans import BATCH, Rules, factorised, parallel, words
from softdlm.errors import UsageError
from softdlm.models.denoiser import Denoiser

Order = Literal["average", "confidence"]


@dataclass(frozen=True)
class JointRow:
    """One prompt: method -> the probability of each combination. The rest up to 1 is on other answers."""

    prompt: str
    combinations: list[str]
    probability: dict[str, list[float]]


def measure_joint(
    model: Denoiser, case: Case, rules: Rules, *, order: Order = "average", batch_size: int = BATCH
) -> JointRow:
    """Probability of every positionwise combination of the two alternatives, in sequence and under each rule.

    The paper does not say how Figure 1 orders its sequential decoding: `average` is the mean over all orders (as in
    appendix D.3), `confidence` fills the most confident position first.
    """
    check([case], order)
    answers = recombinations(case.a, case.b)
    _, found = parallel(model, case.span, rules)
    joint = {name: factorised(log_probs, answers) for name, log_probs in found.items()}
    probability = {"sequential": _sequential(model, case, order, batch_size)} | joint
    return JointRow(
        case.prompt,
        [words(model, answer) for answer in answers],
        {name: log_p.exp().tolist() for name, log_p in probability.items()},
    )


def check(cases: Sequence[Case], order: str) -> None:
    if order not in get_args(Order):
        raise UsageError(f"order must be one of {', '.join(get_args(Order))}, not {order!r}")
    for case in cases:
        if not case.qualifies:
            sizes = f"{len(case.a)} and {len(case.b)} tokens for {len(case.span.places)} masks"
            raise UsageError(
                f"the alternatives of {case.prompt!r} take {sizes} here: use alternatives that fit the masks"
            )


def _sequential(model: Denoiser, case: Case, order: Order, batch_size: int) -> Float[Tensor, "C"]:
    if order == "average":
        return order_averaged(model, case.span, case.a, case.b, batch_size)
    return confidence_ordered(model, case.span, recombinations(case.a, case.b), batch_size)
