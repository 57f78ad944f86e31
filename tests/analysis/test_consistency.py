"""Table 4's support, reference and divergence against closed forms and naive loops, to 1e-6."""

import math
from typing import Any

import pytest
import torch

import softdlm
from softdlm.analysis import consistency
from softdlm.feedback import FeedbackRule
from tests.analysis import exact
from tests.conftest import FAMILIES, tiny

RULES: dict[str, FeedbackRule] = {"vanilla": softdlm.Mask(), "euclidean": softdlm.Euclidean(3, 0.3)}


def test_the_support_is_every_distinct_recombination() -> None:
    assert consistency.recombinations((1, 2), (3, 4)) == [(1, 2), (1, 4), (3, 2), (3, 4)]
    shared = consistency.recombinations((1, 2, 9, 5), (3, 4, 9, 6))
    assert len(shared) == len(set(shared)) == 8
    assert (shared[0], shared[-1]) == ((1, 2, 9, 5), (3, 4, 9, 6))


@pytest.mark.usefixtures("double")
def test_closed_form_on_a_joint_that_is_known() -> None:
    """Every order multiplies to the joint itself; vanilla is the product of its marginals."""
    model, table, case = exact.toy(), exact.Table(), exact.toy_case()
    row = consistency.measure_consistency(model, case, RULES)
    answers = consistency.recombinations(case.a, case.b)
    reference = {answer: table.joint[answer] for answer in answers}
    marginals = [table(position, [None] * 3) for position in range(3)]
    q = exact.product(marginals, answers)
    assert row.reference_mass == pytest.approx(sum(reference.values()), abs=1e-6)
    assert row.reference == pytest.approx(list(exact.normalise(reference).values()), abs=1e-6)
    assert row.mass["vanilla"] == pytest.approx(sum(q.values()), abs=1e-6)
    assert row.shares["vanilla"] == pytest.approx(list(exact.normalise(q).values()), abs=1e-6)
    assert row.reverse_kl["vanilla"] == pytest.approx(exact.reverse_kl(q, reference), abs=1e-6)
    assert row.reverse_kl["euclidean"] < row.reverse_kl["vanilla"]


@pytest.mark.parametrize("family", FAMILIES)
def test_naive_loops_over_a_network(family: str) -> None:
    """A network's orders disagree, so here the average over all of them shows."""
    model, case = tiny(family, torch.float64), exact.network_case(family)
    row = consistency.measure_consistency(model, case, {"vanilla": softdlm.Mask()}, batch_size=5)
    predict = exact.network(family, case.span)
    answers = consistency.recombinations(case.a, case.b)
    reference = {answer: exact.order_averaged(predict, answer) for answer in answers}
    q = exact.product([predict(position, [None] * 3) for position in range(3)], answers)
    assert len(answers) == 4
    assert row.reference == pytest.approx(list(exact.normalise(reference).values()), abs=1e-6)
    assert math.log(row.reference_mass) == pytest.approx(math.log(sum(reference.values())), abs=1e-6)
    assert row.reverse_kl["vanilla"] == pytest.approx(exact.reverse_kl(q, reference), abs=1e-6)
    assert row.reverse_kl["vanilla"] > 1e-4


def test_shared_prefixes_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four masks: 24 orders of 16 answers, yet no more than 3^4 - 2^4 contexts."""
    model = tiny("llada")
    rows: list[Any] = []
    embed = type(model).embed

    def counted(self: Any, ids: torch.Tensor) -> torch.Tensor:
        rows.extend(map(tuple, ids.tolist()))
        return embed(self, ids)

    monkeypatch.setattr(type(model), "embed", counted)
    case = exact.network_case("llada", 4)
    consistency.order_averaged(model, case.span, (1, 2, 3, 4), (5, 6, 7, 8))
    assert len(rows) == len(set(rows)) == 3**4 - 2**4


def test_the_summary_is_a_mean_over_prompts() -> None:
    def row(kl: float, shares: list[float], mass: float) -> consistency.ConsistencyRow:
        return consistency.ConsistencyRow("p", 2, [], [], 1.0, {"slerp": shares}, {"slerp": mass}, {"slerp": kl})

    rows = [row(1.0, [0.5, 0.1, 0.1, 0.3], 0.2), row(3.0, [0.0, 0.5, 0.5, 0.0], 0.4)]
    (found,) = consistency.summarise(rows)
    assert (found.reverse_kl, found.prompts) == (2.0, 2)
    assert (found.coherent, found.mass) == pytest.approx((0.4, 0.3))
    assert consistency.summarise([]) == []
