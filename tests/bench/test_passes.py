"""Passes timed one by one are the passes of the decode."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from softdlm.bench import passes, suites
from softdlm.bench.context import Bench
from softdlm.bench.measure import TimeBudget
from softdlm.bench.passes import STEP, WHOLE, pass_times
from softdlm.bench.shapes import SHAPES
from softdlm.bench.workload import Decode
from softdlm.cache import Dual
from softdlm.feedback import Slerp
from tests.conftest import tiny

DUAL = Decode(8, 16, 4, block=8, cache=Dual(), batch=2)


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A clock on which a pass with soft tokens takes 3 per cent longer, whatever the kind."""
    seen: list[str] = []

    def seconds(work: Any, device: Any) -> float:
        plan = work.func.__self__.plan
        work()
        seen.append("vanilla" if plan.vanilla else "slerp")
        return 1.0 if plan.vanilla else 1.03

    monkeypatch.setattr(passes, "seconds", seconds)
    return seen


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_every_pass_of_the_decode_is_timed_in_turn(family: str, spent: list[str]) -> None:
    model = tiny(family)
    found = pass_times(model, {"a": DUAL, "b": replace(DUAL, feedback=Slerp())}, "static", 3, TimeBudget(60))
    assert {name: set(kinds) for name, kinds in found.items()} == {name: {WHOLE, STEP} for name in "ab"}
    assert all(len(each.seconds) == 3 for kinds in found.values() for each in kinds.values())
    count = len(DUAL.passes())
    turns = ["vanilla", "slerp", "slerp", "vanilla"] * (passes.WARM + 3)
    assert spent[::count] == turns[: 2 * (passes.WARM + 3)], "forwards and backwards"
    assert len(spent) == 2 * count * (passes.WARM + 3)


def test_kinds_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llada")
    widths = []

    def seconds(work: Any, device: Any) -> float:
        shape, *_ = work.args
        widths.append(shape.width)
        work()
        return 5.0 if shape.width is None else 2.0

    monkeypatch.setattr(passes, "seconds", seconds)
    found = pass_times(model, {"": DUAL}, "static", 1, TimeBudget(60))[""]
    assert (found[WHOLE].median, found[STEP].median) == (5.0, 2.0)
    whole = [work.queries == DUAL.length for work in DUAL.passes()]
    assert [width is None for width in widths] == whole * (passes.WARM + 1)


def test_the_cost_of_soft_tokens_is_that_of_a_pass(spent: list[str]) -> None:
    shape = SHAPES["tiny-llada"]
    found = suites._by_passes(Bench(shape, tiny("llada"), "static", TimeBudget(60)))
    assert [round(check.value, 6) for check in found.checks] == [3.0, 3.0]
    caches = ("no cache", WHOLE), *itertools.product(("dual cache", "prefix cache"), (WHOLE, STEP))
    expected = set(itertools.starmap(lambda method, kind: (method, *kind), itertools.product(suites.METHODS, caches)))
    few = {each for each in expected if each[0] == "recommended" and each[2] == STEP}  # fewer nats: blocks in one pass
    assert {(row["method"], row["cache"], row["pass"]) for row in found.rows} == expected - few
    assert {round(row["more, %"], 6) for row in found.rows if row["method"] != "vanilla"} == {3.0}
