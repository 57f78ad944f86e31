"""Figure 1 on the prompt's own toy, in closed form."""

import pytest
import torch

import softdlm
from softdlm.analysis import joint
from softdlm.analysis.consistency import recombinations
from softdlm.analysis.prompts import Case
from softdlm.analysis.spans import Span
from softdlm.errors import UsageError
from softdlm.models.toy import JointDenoiser, harry_potter
from tests.analysis import exact
from tests.conftest import tiny


def case_of(model: JointDenoiser) -> Case:
    a, b = (tuple(model.words.index(word) for word in text.split()) for text in ("Harry Potter", "Star Wars"))
    return Case("Answer is either Harry Potter or Star Wars:", Span.after(model.prompt_ids, 2, model.mask_id), a, b)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("order", ["average", "confidence"])
def test_sequential_is_the_joint_and_parallel_the_product_of_marginals(order: joint.Order) -> None:
    model = harry_potter((0.6, 0.4))
    rules = {"vanilla": softdlm.Mask(), "slerp": softdlm.Slerp()}
    row = joint.measure_joint(model, case_of(model), rules, order=order)
    harry, potter, star, wars = (model.choices.index(model.words.index(w)) for w in ("Harry", "Potter", "Star", "Wars"))
    pairs = [(harry, potter), (harry, wars), (star, potter), (star, wars)]
    assert row.probability["sequential"] == pytest.approx([float(model.joint[pair]) for pair in pairs], abs=1e-6)
    first, second = model.joint.sum(1), model.joint.sum(0)
    parallel = [float(first[i] * second[j]) for i, j in pairs]
    assert row.probability["vanilla"] == pytest.approx(parallel, abs=1e-6)
    assert row.probability["slerp"][0] > row.probability["vanilla"][0]
    assert row.probability["slerp"][1] + row.probability["slerp"][2] < parallel[1] + parallel[2]


@pytest.mark.parametrize("order", ["average", "confidence"])
def test_the_order_matters_to_a_network(order: joint.Order) -> None:
    model, case = tiny("llada", torch.float64), exact.network_case("llada")
    row = joint.measure_joint(model, case, {"vanilla": softdlm.Mask()}, order=order)
    predict, answers = exact.network("llada", case.span), recombinations(case.a, case.b)
    average = [exact.order_averaged(predict, answer) for answer in answers]
    confident = [exact.confidence_ordered(predict, answer, model.mask_id) for answer in answers]
    expected = {"average": average, "confidence": confident}[order]
    assert row.probability["sequential"] == pytest.approx(expected, rel=1e-6)
    assert average != pytest.approx(confident, rel=1e-2)


def test_orders_and_prompts_that_do_not_fit_are_refused() -> None:
    model = harry_potter()
    case = case_of(model)
    with pytest.raises(UsageError, match="order must be one of average, confidence, not 'random'"):
        joint.check([case], "random")
    with pytest.raises(UsageError, match="take 2 and 3 tokens for 2 masks here"):
        joint.check([Case(case.prompt, case.span, case.a, (*case.b, 1))], "average")
