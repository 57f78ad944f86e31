"""Table 8's spans, support, reference and divergence against closed forms and naive loops, to 1e-6."""

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
import torch

import softdlm
from softdlm.analysis import completions
from softdlm.analysis.completions import Completion
from softdlm.analysis.questions import Question, complete
from softdlm.analysis.spans import Filling, Span
from softdlm.feedback import FeedbackRule
from tests.analysis import exact
from tests.analysis.exact import Predict
from tests.conftest import FAMILIES, tiny
from tests.tokenizers import checkpoint

RULES: dict[str, FeedbackRule] = {
    "vanilla": softdlm.Mask(),
    "euclidean": softdlm.Euclidean(4, 0.3),
    "slerp": softdlm.Slerp(4, 0.3),
}
Answer = tuple[int, ...]


def naive_beam(predict: Predict, masks: int, special: Collection[int], r: int, mask_id: int) -> set[Answer]:
    beam: list[tuple[list[int | None], float]] = [([None] * masks, 1.0)]
    for _ in range(masks):
        grown = []
        for filling, score in beam:
            position = exact.surest(predict, filling, mask_id)
            for token, share in exact.top(predict(position, filling), r, list(special)):
                grown.append(([*filling[:position], token, *filling[position + 1 :]], score * share))
        beam = sorted(grown, key=lambda each: -each[1])[: r**2]
    return {tuple(token for token in filling if token is not None) for filling, _ in beam}


@pytest.mark.usefixtures("double")
def test_closed_form_on_a_joint_that_is_known() -> None:
    """Any order multiplies to the joint; the support is what the tables of probabilities say."""
    model, table = exact.toy(), exact.Table()
    completion = Completion("toy", "0", model.prompt_ids, exact.toy_case().a)
    row = completions.measure_completion(model, completion, RULES, support=("vanilla",), top=2)
    assert row.lengths[-1] == 3
    marginals = [table(position, [None] * 3) for position in range(3)]
    products = set(itertools.product(*([token for token, _ in exact.top(each, 2)] for each in marginals)))
    support = products | naive_beam(table, 3, [model.mask_id], 2, model.mask_id)
    assert row.support[-1] == len(support) < len(products) + 4
    q = exact.product(marginals, sorted(support))
    expected = exact.reverse_kl(q, {answer: table.joint[answer] for answer in support})
    assert row.reverse_kl["vanilla"][-1] == pytest.approx(expected, abs=1e-6)
    assert expected > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_naive_loops_over_a_network(family: str) -> None:
    model = tiny(family, torch.float64)
    case = exact.network_case(family)
    predict, mask_id = exact.network(family, case.span), model.mask_id
    first = [predict(position, [None] * 3) for position in range(3)]
    favourites = {exact.top(each, 1)[0][0] for each in first}
    special = {mask_id, *model.eos_ids, *favourites}
    flags = torch.zeros(len(model.embedding), dtype=torch.bool)
    flags[list(special)] = True

    beam = completions.confident_beam(model, case.span, flags, 2, batch_size=3)
    assert set(beam) == naive_beam(predict, 3, special, 2, mask_id)
    assert len(beam) == len(set(beam)) == 4

    second = [{token: share**0.1 for token, share in each.items()} for each in reversed(first)]
    logs = [torch.tensor([[each[token] for token in range(len(flags))] for each in method]).log().double()
            for method in (first, second)]  # fmt: skip
    answers = completions.shared_support(logs, beam, flags, 2)
    products = [itertools.product(*([token for token, _ in exact.top(each, 2, list(special))] for each in method))
                for method in (first, second)]  # fmt: skip
    assert set(answers) == {*products[0], *products[1], *beam}
    assert len(answers) == len(set(answers))
    assert not special & set(itertools.chain(*answers))

    reference = completions.confidence_ordered(model, case.span, answers, batch_size=3).exp().tolist()
    assert reference == pytest.approx([exact.confidence_ordered(predict, each, mask_id) for each in answers], rel=1e-6)


def test_equal_beginnings_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llada")
    looked: list[Filling] = []
    hard = completions.hard

    def counted(
        model: softdlm.Denoiser, span: Span, fillings: list[completions.Filling], size: int
    ) -> Iterator[torch.Tensor]:
        looked.extend(fillings)
        return hard(model, span, fillings, size)

    monkeypatch.setattr(completions, "hard", counted)
    answers = list(itertools.product((1, 2), (3, 4), (5, 6)))
    completions.confidence_ordered(model, exact.network_case("llada").span, answers)
    assert len(looked) == len(set(looked)) == 1 + 2 + 4


def test_spans_stand_at_two_even_places_and_see_both_sides() -> None:
    completion = Completion("t", "0", [1, 2], range(10, 20), [7])
    spans = list(completions.spans_of(completion, 99))
    assert [(len(span.places), span.places[0] - 2) for span in spans] == [
        (2, 3),
        (2, 6),
        (3, 2),
        (3, 5),
        (4, 2),
        (4, 4),
    ]
    assert spans[0].ids == (1, 2, 10, 11, 12, 99, 99, 15, 16, 17, 18, 19, 7)


@pytest.mark.parametrize(("length", "lengths"), [(0, []), (1, []), (2, [2]), (3, [2, 2, 3]), (4, [2, 2, 3, 3, 4])])
def test_answers_too_short_for_a_span_go_without(length: int, lengths: list[int]) -> None:
    spans = completions.spans_of(Completion("t", "0", [1], range(10, 10 + length)), 99)
    assert [len(span.places) for span in spans] == lengths


def test_spans_are_averaged_before_completions() -> None:
    def row(task: str, *values: float) -> completions.CompletionRow:
        count = len(values)
        return completions.CompletionRow(task, "0", [2] * count, [0] * count, [16] * count, {"slerp": list(values)})

    rows = [row("m", 1.0, 3.0), row("m", 10.0), row("m"), row("c")]
    assert completions.summarise(rows) == [
        completions.CompletionSummary("m", "slerp", 6.0, 2, 3, 1),
        completions.CompletionSummary("c", "slerp", None, 0, 0, 1),
    ]


def test_special_tokens_are_the_masks_ends_template_and_what_has_no_word(tmp_path: Path) -> None:
    model = softdlm.load(checkpoint(tmp_path / "llada", "llada"), device="cpu")
    special = set(completions.special_ids(model).nonzero().flatten().tolist())
    assert {180, 181, 187, 188, 189, 190} <= special
    assert special == {180, 181, 187, 188, 189, 190, *range(len(model.tokenizer), len(model.embedding))}


def test_completions_are_the_models_own_and_keep_their_end() -> None:
    model = tiny("llada")
    question = Question("t", "7", [5, 6, 7], 10)
    (found,) = complete(model, [question], softdlm.Decoding(commit=softdlm.TopN(2)))
    made = softdlm.generate(model, [5, 6, 7], max_new_tokens=10, commit=softdlm.TopN(2))
    assert list(found.answer) == made.ids
    assert list(found.prompt) == [5, 6, 7]
    assert list(found.tail) == ([] if made.finish_reason == "length" else [made.canvas_ids[len(made.ids)]])
