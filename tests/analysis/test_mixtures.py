"""Table 1's references and divergences against closed forms and naive loops, to 1e-6."""

import itertools
import math
from collections.abc import Sequence

import pytest
import torch

import softdlm
from softdlm.analysis import mixtures
from softdlm.errors import UsageError
from softdlm.feedback import FeedbackRule
from tests.analysis import exact
from tests.analysis.exact import Distribution, Predict
from tests.conftest import FAMILIES, tiny

K, LAM = 3, 0.3
RULES: dict[str, FeedbackRule] = {"euclidean": softdlm.Euclidean(K, LAM), "slerp": softdlm.Slerp(K, LAM)}
Weights = list[list[tuple[int | None, float]]]


def states(predict: Predict, masks: int, k: int, lam: float, mask_id: int) -> Weights:
    """Section 3: [MASK] with 1 - lam, candidate i with lam p_i, p renormalised over the candidates."""
    found: Weights = []
    for position in range(masks):
        best = exact.top(predict(position, [None] * masks), k, [mask_id])
        total = sum(share for _, share in best)
        found.append([(None, 1 - lam), *((token, lam * share / total) for token, share in best)])
    return found


def naive_references(predict: Predict, weights: Weights, position: int) -> tuple[Distribution, Distribution]:
    add: Distribution = {}
    logs: Distribution = {}
    for realisation in itertools.product(*weights):
        weight = math.prod(share for _, share in realisation)
        for token, share in predict(position, [token for token, _ in realisation]).items():
            add[token] = add.get(token, 0.0) + weight * share
            logs[token] = logs.get(token, 0.0) + weight * math.log(share)
    return add, exact.normalise({token: math.exp(value) for token, value in logs.items()})


def slerp_weights(weights: Weights) -> Weights:
    """Where embeddings are orthonormal: cos on [MASK], sin on the unit aggregate, made to sum to 1."""
    found: Weights = []
    for (_, keep), *candidates in weights:
        lam = 1 - keep
        shares = [(token, share / lam) for token, share in candidates]
        length = math.sqrt(sum(share**2 for _, share in shares))
        angle = lam * math.pi / 2
        raw = [(None, math.cos(angle)), *((token, math.sin(angle) * share / length) for token, share in shares)]
        total = sum(share for _, share in raw)
        found.append([(token, share / total) for token, share in raw])
    return found


@pytest.mark.usefixtures("double")
def test_closed_form_on_a_joint_that_is_known() -> None:
    """The toy reads a soft token as a multiplicative mixture, so both rules' predictions are known too."""
    model, table, case = exact.toy(), exact.Table(), exact.toy_case()
    weights = states(table, 3, K, LAM, model.mask_id)
    row = mixtures.measure_mixtures(model, case, RULES, k=K, lam=LAM)
    assert row.realisations == (K + 1) ** 3
    for position in range(3):
        add, mult = naive_references(table, weights, position)
        soft = naive_references(table, slerp_weights(weights), position)[1]
        assert row.multiplicative["euclidean"][position] == pytest.approx(0, abs=1e-9)
        assert row.additive["euclidean"][position] == pytest.approx(exact.js(mult, add), abs=1e-6)
        assert row.additive["slerp"][position] == pytest.approx(exact.js(soft, add), abs=1e-6)
        assert row.multiplicative["slerp"][position] == pytest.approx(exact.js(soft, mult), abs=1e-6)
    assert min(row.additive["slerp"]) > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_naive_loops_over_a_network(family: str) -> None:
    """A network sees its own position, so this also fails if the queried position is not among the realisations."""
    model, case, k, lam = tiny(family, torch.float64), exact.network_case(family, 2), 2, 0.4
    rules: dict[str, FeedbackRule] = {"euclidean": softdlm.Euclidean(k, lam), "slerp": softdlm.Slerp(k, lam)}
    row = mixtures.measure_mixtures(model, case, rules, k=k, lam=lam, batch_size=4)
    predict = exact.network(family, case.span)
    weights = states(predict, 2, k, lam, model.mask_id)
    vectors = {name: [soft_vector(model, each, lam, name) for each in weights] for name in rules}
    for position in range(2):
        add, mult = naive_references(predict, weights, position)
        for name in rules:
            soft = exact.soft_network(family, case.span, vectors[name])[position]
            assert row.additive[name][position] == pytest.approx(exact.js(soft, add), abs=1e-6)
            assert row.multiplicative[name][position] == pytest.approx(exact.js(soft, mult), abs=1e-6)
            assert abs(row.additive[name][position] - row.multiplicative[name][position]) > 1e-5
            own: Weights = [[(None, 1.0)] if place == position else each for place, each in enumerate(weights)]
            masked = exact.js(soft, naive_references(predict, own, position)[0])
            assert abs(row.additive[name][position] - masked) > 1e-5, "the queried position makes no difference here"


def soft_vector(
    model: softdlm.Denoiser, state: Sequence[tuple[int | None, float]], lam: float, name: str
) -> torch.Tensor:
    """Sections 2.3 and 4.2 as printed, quotient of sines included."""
    mask = model.embedding[model.mask_id]
    mean = torch.stack([share / lam * model.embedding[token] for token, share in state if token is not None]).sum(0)
    if name == "euclidean":
        return (1 - lam) * mask + lam * mean
    start, end = mask / mask.norm(), mean / mean.norm()
    theta = math.acos(float(start @ end))
    return mask.norm() * (
        math.sin((1 - lam) * theta) / math.sin(theta) * start + math.sin(lam * theta) / math.sin(theta) * end
    )


@pytest.mark.usefixtures("double")
def test_every_rule_is_held_against_the_same_references() -> None:
    """Additive and NormMix have strengths of their own; without feedback only the reference's distance is left."""
    model, case = exact.toy(), exact.toy_case()
    rules = {"additive": softdlm.Additive(), "norm-mix": softdlm.NormMix(), "vanilla": softdlm.Mask(), **RULES}
    row = mixtures.measure_mixtures(model, case, rules, k=K, lam=LAM)
    assert row.additive["slerp"] == mixtures.measure_mixtures(model, case, RULES, k=K, lam=LAM).additive["slerp"]
    still = mixtures.measure_mixtures(model, case, {"vanilla": softdlm.Mask()}, k=K, lam=0.0)
    assert still.realisations == 1
    assert still.additive["vanilla"] == pytest.approx([0, 0, 0], abs=1e-12)
    assert still.multiplicative["vanilla"] == pytest.approx([0, 0, 0], abs=1e-12)


def test_positions_are_averaged_before_prompts() -> None:
    rows = [
        mixtures.MixtureRow("p", 2, 16, {"slerp": [1.0, 3.0]}, {"slerp": [0.0, 1.0]}),
        mixtures.MixtureRow("q", 4, 256, {"slerp": [10.0, 10.0, 10.0, 10.0]}, {"slerp": [1.0, 1.0, 1.0, 3.0]}),
    ]
    assert mixtures.summarise(rows) == [mixtures.MixtureSummary("slerp", 6.0, 1.0, 2)]


def test_too_many_realisations_are_refused() -> None:
    with pytest.raises(UsageError, match="k=9 over 8 masks makes 100000000 realisations"):
        mixtures.check_size(9, 0.3, 8)
    with pytest.raises(UsageError, match=r"not k=3 lam=1\.5"):
        mixtures.check_size(3, 1.5, 2)
