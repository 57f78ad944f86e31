"""The examples do what they say."""

from functools import cache
from itertools import pairwise
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


def test_the_own_commit_rule_commits_no_neighbours() -> None:
    found = softdlm.generate(model(), PROMPT, feedback="vanilla", commit=f"{RULES}:Apart(n=4)", max_new_tokens=32)
    places = [sorted(each.positions) for each in found.trace.passes]
    assert max(map(len, places)) == 4
    assert all(right - left > 1 for each in places for left, right in pairwise(each))


@pytest.mark.parametrize("eos", ["allow", "last"])
def test_one_at_a_time_it_is_the_surest(eos: str) -> None:
    fields = {"feedback": "vanilla", "max_new_tokens": 32, "eos": eos}
    mine, plain = (
        softdlm.generate(model(), PROMPT, commit=rule, **fields) for rule in (f"{RULES}:Apart(n=1)", "topn(1)")
    )
    assert [each.positions for each in mine.trace.passes] == [each.positions for each in plain.trace.passes]


def test_the_own_rule_is_neither() -> None:
    mine = answer(f"{RULES}:Unsure(bar=0.9, k=1, lam=0.5)")
    assert mine != answer("vanilla")
    assert mine != answer("slerp(k=1, lam=0.5)")
