"""Predictions from four inputs: closed forms where a position sees only itself or only others, else naive loops."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import softdlm
from softdlm.analysis import reliability, states
from softdlm.analysis.calibration import Seen
from softdlm.analysis.plans import reliability_plan, run
from softdlm.analysis.questions import Question
from softdlm.analysis.reliability import INPUTS, ReliabilityRow
from softdlm.analysis.states import Ending, State
from softdlm.errors import UsageError
from softdlm.feedback import slerp
from softdlm.models.denoiser import Denoiser
from softdlm.tasks import load_task
from tests.conftest import DEVICE, FAMILIES, tiny

RULES = {"soft": softdlm.Slerp(3, 0.5)}
DECODING = softdlm.Decoding(commit=softdlm.TopN(2), feedback=softdlm.Slerp(3, 0.3), eos="forbid")
QUESTIONS = [Question("t", str(index), [5, 8, 13 + index], 9) for index in range(3)]
ALL: dict[str, Any] = {"states": 9, "positions": 99}


def everyone(items: Sequence[str], texts: Sequence[str]) -> list[bool]:
    return [True] * len(items)


def nobody(items: Sequence[str], texts: Sequence[str]) -> list[bool]:
    return [False] * len(items)


def measured(model: Denoiser, rules: Any = RULES, **more: Any) -> list[ReliabilityRow]:
    options = {"score": everyone, **ALL, **more}
    return list(reliability.measure_reliability(model, QUESTIONS, rules, options.pop("decoding", DECODING), **options))


def pooled(rows: Sequence[ReliabilityRow], rule: str = "soft") -> dict[str, list[float]]:
    return {each: [value for row in rows for value in row.seen[rule][each].confidence] for each in INPUTS}


def equal(values: list[float]) -> Any:
    """To the bit on a CPU; a GPU rounds by the size of the batch."""
    return values if DEVICE == "cpu" else pytest.approx(values, rel=1e-5)


class Linear(Denoiser):
    """Logits at a position are linear in the embeddings that it sees, which `sight` says."""

    def __init__(self, sight: Tensor) -> None:
        drawn = torch.Generator().manual_seed(0)
        super().__init__(torch.randn(24, 16, generator=drawn), mask_id=23)
        self.sight, self.bias = sight, torch.randn(len(sight), 24, generator=drawn)
        self.weight = torch.randn(16, 24, generator=drawn)
        self.batches: list[int] = []

    def hidden(self, embeds: Tensor, **sight: Any) -> Tensor:
        self.batches.append(len(embeds))
        return torch.einsum("lk,bkd->bld", self.sight, embeds) @ self.weight + self.bias

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


def test_a_position_that_sees_only_itself() -> None:
    found = pooled(measured(Linear(torch.eye(12))))
    assert found["own"] == found["both"]
    assert found["neighbours"] == found["hard"]
    assert all(own != hard for own, hard in zip(found["own"], found["hard"], strict=True))


def test_a_position_that_sees_only_others() -> None:
    rows = measured(Linear((1 - torch.eye(12)) / 4))
    found = pooled(rows)
    assert found["own"] == found["hard"]
    assert found["neighbours"] == found["both"]
    several = [len(row.places) > 1 for row in rows for _ in row.places]
    differs = [soft != hard for soft, hard in zip(found["neighbours"], found["hard"], strict=True)]
    assert differs == several, "a position that is alone has no soft neighbours"


def test_a_cpu_computes_each_row_by_itself() -> None:
    model = Linear(torch.eye(12))
    measured(model)
    assert set(model.batches) == {1}, "in a batch equal rows may get other bits"


@pytest.mark.parametrize("family", FAMILIES)
def test_without_strength_the_four_inputs_are_one(family: str) -> None:
    found = pooled(measured(tiny(family), {"soft": softdlm.Slerp(3, 0.0)}))
    for each in ("own", "neighbours", "both"):
        assert found[each] == equal(found["hard"])
    assert len(found["hard"]) > 20


def distribution(model: Any, embeds: Tensor, place: int) -> Tensor:
    logits = model.logits(embeds=embeds[None], block_length=model.attention_block(None))[0, place].clone()
    logits[list(model.eos_ids)] = -torch.inf
    return logits.softmax(-1)


def alone(model: Any, ids: Tensor) -> Tensor:
    """One-at-a-time decoding, a naive loop."""
    ids = ids.clone()
    while len(open := (ids == model.mask_id).nonzero().flatten().tolist()):
        chances = torch.stack([distribution(model, model.embedding[ids], place) for place in open])
        chances[:, model.mask_id] = 0
        place = int(chances.amax(1).argmax())
        ids[open[place]] = chances[place].argmax()
    return ids


def soft_token(model: Any, ids: Tensor, place: int) -> Tensor:
    chances = distribution(model, model.embedding[ids], place)
    chances[model.mask_id] = 0
    best = chances.topk(3)
    mean = (best.values / best.values.sum()) @ model.embedding[best.indices]
    return slerp(model.embedding[model.mask_id], mean[None], 0.5)[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_naive_loops_over_every_state_and_open_position(family: str) -> None:
    model: Any = tiny(family, torch.float64)
    question = QUESTIONS[1]
    rows = list(reliability.measure_reliability(model, [question], RULES, DECODING, everyone, **ALL))
    canvas = softdlm.Canvas.pack([list(question.prompt)], [12], model.mask_id, 0)  # type: ignore[arg-type]
    steps = list(softdlm.denoise(model, canvas, decoding=DECODING))
    assert [row.passes for row in rows] == [1, 2, 3, 4, None, None, None, None, None]
    rights = []
    for row, step in zip(rows, steps[:-1], strict=False):
        ids = step.canvas.ids[0]
        truth, open = alone(model, ids), (ids == model.mask_id).nonzero().flatten().tolist()
        assert row.places == [place - 3 for place in open]
        soft = {place: soft_token(model, ids, place) for place in open}
        for index, place in enumerate(open):
            fed = {"hard": [], "own": [place], "neighbours": [p for p in open if p != place], "both": open}
            for each, places in fed.items():
                embeds = model.embedding[ids].clone()
                for other in places:
                    embeds[other] = soft[other]
                chances = distribution(model, embeds, place)
                chances[model.mask_id] = 0
                assert row.seen["soft"][each].confidence[index] == pytest.approx(float(chances.max()), rel=1e-9)
                assert row.seen["soft"][each].right[index] == (int(chances.argmax()) == int(truth[place]))
                rights.append(row.seen["soft"][each].right[index])
    assert 0 < sum(rights) < len(rights)


def test_states_lie_between_the_first_pass_and_the_last() -> None:
    trace = softdlm.generate(tiny("llada"), [5, 8, 13], decoding=replace(DECODING, max_new_tokens=9)).trace
    frames = list(trace.frames())
    assert len(frames) == 6
    every = states.states_of(trace, 9, Random(0))
    assert [(state.ids, state.prompt, state.passes) for state in every] == [(frames[n], 3, n) for n in range(1, 5)]
    two = [[state.passes for state in states.states_of(trace, 2, Random(seed))] for seed in range(20)]
    assert all(first < second for first, second in two)
    assert len(set(map(tuple, two))) > 3


def test_nothing_after_the_end_of_the_answer_counts() -> None:
    model: Any = tiny("llada")
    mask, end = model.mask_id, model.eos_ids[0]
    state = State([5, 8, mask, 20, mask, mask, mask, mask], 2, 1)
    assert states.open_places(model, Ending(state, [5, 8, 21, 20, 22, end, mask, end], True)) == [2, 4, 5]
    assert states.open_places(model, Ending(state, [5, 8, 21, 20, 22, 23, 24, 25], True)) == [2, 4, 5, 6, 7]


def test_a_completion_keeps_what_is_committed_and_is_scored_by_its_text() -> None:
    model = softdlm.load("builtin", device="cpu")
    task = load_task("mini-math", size=2, split="validation")
    asked = [Question("mini-math", item.id, item.prompt, 64) for item in task]
    prompts, answers = ([model.tokenizer(text)["input_ids"] for text in texts] for texts in (
        [item.prompt for item in task], [item.target for item in task]))  # fmt: skip
    met = [
        State([*prompt, *answer[:-1], model.mask_id, model.eos_ids[0]], len(prompt), 1)
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    heard: list[str] = []

    def score(items: Sequence[str], texts: Sequence[str]) -> list[bool]:
        assert list(items) == [question.item for question in asked]
        heard.extend(texts)
        return [True, False]

    ends = states.completed(model, asked, met, softdlm.Decoding().settled(model.own), score)
    for item, state, end, text in zip(task, met, ends, heard, strict=True):
        place = state.ids.index(model.mask_id)
        assert end.ids[place] != model.mask_id
        assert [*end.ids[:place], *end.ids[place + 1 :]] == [*state.ids[:place], *state.ids[place + 1 :]]
        assert text.startswith(model.tokenizer.decode(state.ids[state.prompt : place]))
        assert text[:10] == item.target[:10]
    assert [end.solved for end in ends] == [True, False]


def test_the_scores_are_those_of_the_task() -> None:
    task = load_task("mini-math", size=3, split="validation")
    score = states.task_scorer(["either-or", "mini-math"], 3, "validation")
    assert score([item.id for item in task], [task[0].target, "no idea", task[2].target]) == [True, False, True]
    assert score([], []) == []
    with pytest.raises(UsageError, match="more than a generated task may have"):
        states.task_scorer(["mini-math"], 10**9)


def test_states_that_end_in_a_wrong_answer_are_counted_but_not_looked_at() -> None:
    rows = measured(tiny("llada"), score=nobody, states=5)
    assert [row.passes for row in rows] == [1, 2, 3, 4, None] * 3
    assert not any(row.solved or row.places for row in rows)
    assert all(row.seen == {"soft": {each: Seen([], []) for each in INPUTS}} for row in rows)
    (first, *_) = reliability.summarise(rows)
    assert (first.states, first.met, first.calibration.predictions, first.calibration.right) == (0, 12, 0, None)


def test_positions_and_states_are_drawn_by_item_and_seed() -> None:
    model: Any = tiny("llada")
    few = measured(model, states=2, positions=2)
    same = [replace(QUESTIONS[0], item=str(index)) for index in range(6)]
    rows = list(reliability.measure_reliability(model, same, RULES, DECODING, everyone, states=1, positions=2))
    assert len({(row.passes, *row.places) for row in rows}) > 1, "items have draws of their own"
    whole = {(row.item, row.passes): row for row in measured(model)}
    assert all(len(row.places) == min(2, len(whole[row.item, row.passes].places)) for row in few)
    for row in few:
        full = whole[row.item, row.passes]
        index = [full.places.index(place) for place in row.places]
        assert index == sorted(index)
        for each in INPUTS:
            expected = [full.seen["soft"][each].confidence[number] for number in index]
            assert row.seen["soft"][each].confidence == equal(expected)
    apart = [
        row
        for question in QUESTIONS
        for row in reliability.measure_reliability(
            model, [question], RULES, DECODING, everyone, states=2, positions=2
        )
    ]  # fmt: skip
    assert [(row.item, row.passes, row.places) for row in apart] == [(row.item, row.passes, row.places) for row in few]
    assert pooled(apart)["both"] == equal(pooled(few)["both"])
    other = measured(model, states=2, positions=2, decoding=replace(DECODING, seed=1))
    assert [(row.passes, row.places) for row in other] != [(row.passes, row.places) for row in few]


def test_the_summary_pools_the_places_of_a_task() -> None:
    def row(task: str, passes: int | None, solved: bool, *values: tuple[float, bool]) -> ReliabilityRow:
        seen = Seen([value for value, _ in values], [right for _, right in values])
        return ReliabilityRow(
            task, "0", passes, solved, list(range(len(values))), {"soft": dict.fromkeys(INPUTS, seen)}
        )

    rows = [row("a", 1, True, (0.95, True)), row("a", 2, False), row("a", None, False), row("b", 1, True, (0.2, True)),
            row("a", 3, True, (0.25, False), (0.3, False))]  # fmt: skip
    found = reliability.summarise(rows)
    assert [(each.task, each.input) for each in found] == [(task, each) for task in "ab" for each in INPUTS]
    assert (found[0].states, found[0].met, found[0].calibration.predictions) == (2, 3, 3)
    assert found[0].calibration.confidence == pytest.approx(50)
    assert found[0].calibration.right == pytest.approx(100 / 3)
    assert (found[4].states, found[4].met, found[4].calibration.right) == (1, 1, 100)
    assert reliability.summarise([]) == []


def test_a_stopped_run_goes_on_within_an_item(tmp_path: Path) -> None:
    model = tiny("llada")

    def plan() -> Any:
        return reliability_plan(model, QUESTIONS, RULES, DECODING, score=everyone, states=2, positions=3, batch_size=2)

    whole, file = run(model, plan()), tmp_path / "rows.jsonl"
    assert [row.item for row in whole.rows] == ["0", "0", "1", "1", "2", "2"]

    def stop(done: int, total: int) -> None:
        assert total == 6
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(model, plan(), file, stop)
    done: list[int] = []
    again = run(model, plan(), file, lambda count, _: done.append(count))
    assert done == [4, 5, 6]
    assert again.rows == whole.rows
    assert again.summary == whole.summary
    other = reliability_plan(model, QUESTIONS, RULES, DECODING, score=everyone, states=3, positions=3)
    with pytest.raises(UsageError, match="was measured with another states"):
        run(model, other, file)


@pytest.mark.parametrize(
    ("fields", "rules", "message"),
    [
        ({"temperature": 0.5}, RULES, "temperature 0, not 0.5"),
        ({"block_length": 4}, RULES, "one block: leave out block_length and cache"),
        ({}, {"turns": softdlm.Alternate(softdlm.Slerp())}, "no memory and no turns: leave out turns"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(fields: dict[str, Any], rules: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reliability_plan(tiny("llada"), QUESTIONS, rules, replace(DECODING, **fields), score=everyone)
