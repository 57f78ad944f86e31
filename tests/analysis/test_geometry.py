"""Table 3 and appendix B.1: closed forms where embeddings are orthonormal, naive loops where they are not."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import softdlm
from softdlm.analysis import geometry
from softdlm.analysis.plans import geometry_plan
from softdlm.analysis.questions import Question
from softdlm.errors import UsageError
from softdlm.feedback import FeedbackRule
from softdlm.types import Embeddings
from tests.analysis import exact
from tests.conftest import FAMILIES, tiny

RULES: dict[str, FeedbackRule] = {
    "euclidean": softdlm.Euclidean(4, 0.5),
    "slerp": softdlm.Slerp(4, 0.5),
    "additive": softdlm.Additive(),
    "norm-mix": softdlm.NormMix(),
}


def dot(u: list[float], v: list[float]) -> float:
    return sum(a * b for a, b in zip(u, v, strict=True))


def cosine(u: list[float], v: list[float]) -> float:
    return dot(u, v) / math.sqrt(dot(u, u) * dot(v, v))


def mixed(candidates: list[tuple[list[float], float]]) -> list[float]:
    total = sum(share for _, share in candidates)
    return [sum(share / total * vector[i] for vector, share in candidates) for i in range(len(candidates[0][0]))]


@pytest.mark.parametrize("family", FAMILIES)
def test_naive_loops_over_every_open_position(family: str) -> None:
    model: Any = tiny(family, torch.float64)
    prompts = [[5, 8, 13, 21, 34], [7, 9]]
    questions = [Question("t", str(index), prompt, 8) for index, prompt in enumerate(prompts)]
    options: dict[str, Any] = {"commit": softdlm.TopN(3), "feedback": softdlm.Slerp(3, 0.3)}
    rows = geometry.measure(model, questions, RULES, softdlm.Decoding(**options), k=3, line_k=4)
    mask = model.embedding[model.mask_id].tolist()
    long = math.sqrt(dot(mask, mask))
    for row, prompt in zip(rows, prompts, strict=True):
        values: list[list[float]] = []
        canvas = softdlm.Canvas.pack([prompt], [len(prompt) + 8], model.mask_id, 0)
        for step in softdlm.denoise(model, canvas, early_finish=True, candidates=4, **options):
            for place in (step.requested & step.canvas.open)[0].nonzero().flatten().tolist():
                ids, shares = (
                    value[0, place].tolist() for value in (step.prediction.topk_ids, step.prediction.topk_probs)
                )
                vectors = [(model.embedding[token].tolist(), share) for token, share in zip(ids, shares, strict=True)]
                pairs = [(0, 1), (0, 2), (1, 2)]
                mean = mixed(vectors)
                angle = math.acos(cosine(mean, mask))
                line = [(a + b) / 2 for a, b in zip(mask, mean, strict=True)]
                size, other = math.sqrt(dot(line, line)), math.sqrt(dot(mean, mean))
                values.append([
                    sum(cosine(vectors[i][0], vectors[j][0]) for i, j in pairs) / 3,
                    abs(cosine(mixed(vectors[:3]), mask)),
                    math.degrees(angle),
                    other / long,
                    math.acos(cosine(line, mask)) / angle,
                    size / long,
                    float(size < long and size < other),
                ])  # fmt: skip
        found = row.shape
        assert found.positions == len(values)
        expected = [sum(column) / len(values) for column in zip(*values, strict=True)]
        plain = [found.candidate_cosine, found.aggregate_cosine, found.angle, found.norm]
        linear = [found.angle_share["euclidean"], found.norm_ratio["euclidean"], found.below_both["euclidean"]]
        assert plain + linear == pytest.approx(expected, abs=1e-6)
        assert 0 < found.aggregate_cosine < 1


@pytest.mark.usefixtures("double")
def test_closed_form_where_embeddings_are_orthonormal() -> None:
    model = exact.toy()
    question, decoding = Question("toy", "0", model.prompt_ids, 3), softdlm.Decoding(softdlm.TopN(1), softdlm.Slerp())
    (row,) = geometry.measure(model, [question], RULES, decoding)
    found = row.shape
    assert found.positions == 2 + 1
    assert (found.candidate_cosine, found.aggregate_cosine) == pytest.approx((0, 0), abs=1e-6)
    assert found.angle == pytest.approx(90, abs=1e-6)
    assert (found.angle_share["slerp"], found.norm_ratio["slerp"]) == pytest.approx((0.5, 1), abs=1e-6)
    assert found.below_both["slerp"] == 0
    assert found.norm_ratio["additive"] > 1
    assert 0.5 * math.sqrt(1 + 1 / 4) <= found.norm_ratio["euclidean"] < math.sqrt(0.5)


def test_slerp_is_not_called_shorter_for_its_rounding() -> None:
    """In float32 its norm is that of [MASK] only to rounding; that is no shrinking."""
    model = tiny("llada")
    questions = [Question("t", "0", [5, 8, 13], 12)]
    rules = {"slerp": softdlm.Slerp(4, 0.5)}
    decoding = softdlm.Decoding(softdlm.TopN(1), softdlm.Slerp(), early_finish=False)
    (row,) = geometry.measure(model, questions, rules, decoding)
    assert row.shape.positions == 11 * 12 / 2
    assert row.shape.below_both["slerp"] == 0
    assert row.shape.norm_ratio["slerp"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_narrow_type_does_not_hide_that_soft_tokens_are_shorter(dtype: torch.dtype) -> None:
    """So close to [MASK] soft tokens are 0.3 % shorter than it, which four roundings of these types would hide.

    The expected shares come from the model's own predictions and embeddings, in float64.
    """
    model, question, lam = tiny("llada", dtype), Question("t", "0", [5, 8, 13], 8), 0.003
    decoding = softdlm.Decoding(softdlm.TopN(2), softdlm.Slerp(4, 0.5), early_finish=False)
    rules: dict[str, FeedbackRule] = {"euclidean": softdlm.Euclidean(4, lam), "slerp": softdlm.Slerp(4, 0.5)}
    (row,) = geometry.measure(model, [question], rules, decoding, line_k=4)
    table = model.embedding.double()
    mask, values = table[model.mask_id], []
    canvas = softdlm.Canvas.pack([[5, 8, 13]], [11], model.mask_id, 0)
    for step in softdlm.denoise(model, canvas, decoding=decoding):
        prediction = step.prediction.at(step.requested & step.canvas.open)
        shares = prediction.topk_probs[:, :4].double()
        mean = ((shares / shares.sum(1, keepdim=True))[..., None] * table[prediction.topk_ids[:, :4]]).sum(1)
        soft = (1 - lam) * mask + lam * mean
        below = (soft.norm(dim=-1) < torch.minimum(mean.norm(dim=-1), mask.norm())).double()
        values.append(torch.stack([below, soft.norm(dim=-1) / mask.norm()]))
    below, ratio = torch.cat(values, 1).mean(1).tolist()
    assert below > 0.5
    assert row.shape.below_both == {"euclidean": below, "slerp": 0}
    assert row.shape.norm_ratio["euclidean"] == pytest.approx(ratio, abs=1e-5)
    assert row.shape.norm_ratio["slerp"] == pytest.approx(1, abs=1e-5)
    assert row.shape.angle_share["slerp"] == pytest.approx(0.5, abs=1e-5)


def test_the_type_of_the_table_hardly_matters_to_appendix_b1() -> None:
    """The same predictions, measured with the embeddings of a float32 and of a bfloat16 checkpoint."""
    model, wide = tiny("llada"), []
    narrow = []
    canvas = softdlm.Canvas.pack([[5, 8, 13 + row] for row in range(24)], [43] * 24, model.mask_id, 0)
    rules: dict[str, FeedbackRule] = {"euclidean": softdlm.Euclidean(4, 0.5)}
    tables = {torch.float32: wide, torch.bfloat16: narrow}
    assert not torch.equal(model.embedding.to(torch.bfloat16).float(), model.embedding)
    for step in softdlm.denoise(model, canvas, commit=softdlm.TopN(2), feedback=softdlm.Slerp(4, 0.5), candidates=4):
        still = step.requested & step.canvas.open
        prediction, context = step.prediction.at(still), step.context.at(still)
        for dtype, found in tables.items():
            embeddings = geometry.working_embeddings(model.embedding.to(dtype), model.mask_id)
            found.append(geometry.look_at(prediction, embeddings, context, rules, 3, 4))
    first, second = (torch.cat(found, 1) for found in (wide, narrow))
    assert first.shape[1] > 5000
    degrees = torch.tensor([1, 1, 180, 1, 1, 1, 1], dtype=first.dtype)[:, None]
    assert ((first - second) / degrees).mean(1).abs().max() < 0.002


def test_rows_that_a_narrow_type_rounded_are_not_continued() -> None:
    """Earlier versions measured in the model's type; in float32 that made no difference."""
    models = {dtype: tiny("llada", dtype) for dtype in (torch.bfloat16, torch.float32)}
    settings = {dtype: geometry_plan(model, [], RULES, softdlm.Decoding()).settings for dtype, model in models.items()}
    assert settings[torch.bfloat16]["measured_in"] == "float32"
    assert "measured_in" not in settings[torch.float32]


def test_looking_at_additive_does_not_change_the_decode() -> None:
    model, question = tiny("dream", torch.float64), Question("t", "0", [5, 8, 13], 8)
    shapes = [
        geometry.measure(model, [question], rules, softdlm.Decoding(softdlm.TopN(2), softdlm.Slerp()))[0].shape
        for rules in ({"slerp": RULES["slerp"]}, RULES)
    ]
    assert shapes[0].positions == shapes[1].positions
    assert shapes[0].angle == pytest.approx(shapes[1].angle, abs=1e-9)


def test_additive_sees_the_pass_it_is_at() -> None:
    """Its strength grows from pass to pass, so it must be shown each step's own context."""
    model, question = tiny("llada", torch.float64), Question("t", "0", [5, 8, 13], 6)
    rule = softdlm.Additive(0.1, 0.1, 0.9)
    decoding = softdlm.Decoding(softdlm.TopN(2), rule, early_finish=False)
    (row,) = geometry.measure(model, [question], {"additive": rule}, decoding, k=3, line_k=4)
    embeddings = Embeddings(model.embedding, model.embedding[model.mask_id])
    canvas = softdlm.Canvas.pack([[5, 8, 13]], [9], model.mask_id, 0)
    ratios = []
    for step in softdlm.denoise(model, canvas, decoding=decoding):
        still = step.requested & step.canvas.open
        mean = step.prediction.at(still).mean
        assert mean is not None
        soft = embeddings.mask + (0.1 + 0.1 * (step.index - 1)) * mean
        ratios += (soft.norm(dim=-1) / embeddings.mask.norm()).tolist()
    assert row.shape.norm_ratio["additive"] == pytest.approx(sum(ratios) / len(ratios), abs=1e-9)


def test_every_position_counts_the_same_in_the_summary() -> None:
    def row(task: str, positions: int, value: float) -> geometry.Row:
        by_rule = {"slerp": value}
        shape = geometry.Shape(positions, value, value, value, value, by_rule, by_rule, by_rule)
        return geometry.Row(task, "0", shape)

    first, second = geometry.summarise([row("m", 1, 4.0), row("m", 3, 8.0), row("c", 0, 0.0)])
    assert (first.task, first.items, first.shape.positions) == ("m", 2, 4)
    assert first.shape == row("m", 4, 7.0).shape
    assert (second.task, second.shape.positions) == ("c", 0)


def test_rules_that_need_what_is_not_kept_are_refused() -> None:
    @dataclass(frozen=True)
    class Whole(softdlm.NormMix):
        needs = "probs"

    with pytest.raises(UsageError, match="no full distribution: leave out mine"):
        geometry.measure(tiny("llada"), [], {"slerp": RULES["slerp"], "mine": Whole()}, softdlm.Decoding())


def test_one_candidate_has_no_pairs() -> None:
    with pytest.raises(UsageError, match="needs k >= 2, not 1"):
        geometry.measure(tiny("llada"), [], {}, softdlm.Decoding(), k=1)
