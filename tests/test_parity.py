"""Whole decodes against the reference samplers (tests/data, made by others): same tokens, order and passes."""

from typing import Any

import pytest

from tests.conftest import FAMILIES, tiny
from tests.parity_cases import agrees, cases

CASES = [case for family in FAMILIES for case in cases(family)]
NAMED = [pytest.param(family, case, id=f"{family}-{case['name']}") for family in FAMILIES for case in cases(family)]


def test_enough_cases_are_compared() -> None:
    assert [len(cases(family)) for family in FAMILIES] == [47, 35, 19]
    assert sum("cache-prefix" in case["name"] or "cache-dual" in case["name"] for case in CASES) == 18


@pytest.mark.parametrize(("family", "case"), NAMED)
def test_decode_matches_the_reference(family: str, case: dict[str, Any]) -> None:
    assert agrees(tiny(family), family, case)


@pytest.mark.parametrize("family", FAMILIES)
def test_agreement_is_not_given_away(family: str) -> None:
    """A reference with one token, one position or one pass changed is not agreed with."""
    case = cases(family)[0]
    step = case["trace"][-1]
    assert step["positions"]
    for change in ({"tokens": [token + 1 for token in step["tokens"]]}, {"positions": [0]}):
        spoiled = {**case, "trace": [*case["trace"][:-1], {**step, **change}]}
        assert not agrees(tiny(family), family, spoiled)
    assert not agrees(tiny(family), family, {**case, "n_forwards": case["n_forwards"] + 1})
