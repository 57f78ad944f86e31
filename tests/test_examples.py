"""The examples do what they say."""

from functools import cache
from pathlib import Path

import pytest

import softdlm

RULES = Path(__file__).parents[1] / "examples" / "my_rules.py"
PROMPT = "Ava has 3 boxes of 8 apples. She gives away 5. How many does she have now?"


@cache
def model() -> softdlm.Denoiser:
    return softdlm.load("builtin", dtype="float32", device="cpu")


def answer(feedback: str) -> tuple[list[int], list[list[int]]]:
    """The answer's ids, and the tokens of every pass."""
    found = softdlm.generate(model(), PROMPT, feedback=feedback, commit="topn(4)", max_new_tokens=32)
    return found.trace.answer, [each.tokens for each in found.trace.passes]


@pytest.mark.parametrize(
    ("bar", "same"), [(0.0, "vanilla"), (1.1, "slerp(k=1, lam=0.5)")], ids=["all are sure", "none is sure"]
)
def test_the_own_rule_lies_between_vanilla_and_slerp(bar: float, same: str) -> None:
    assert answer(f"{RULES}:Unsure(bar={bar}, k=1, lam=0.5)") == answer(same)


def test_the_own_rule_is_neither() -> None:
    mine = answer(f"{RULES}:Unsure(bar=0.9, k=1, lam=0.5)")
    assert mine != answer("vanilla")
    assert mine != answer("slerp(k=1, lam=0.5)")
