"""Text in, text out: prompts of every kind, stopping, streaming, traces."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softdlm
from softdlm import PromptError, Slerp, TokenizerError, TopN, Trace, UsageError, records
from softdlm.engine.answer import hold_back
from softdlm.generation import encode
from softdlm.trace import Mark, Pass
from tests.conftest import DATA, FAMILIES, IDS, tiny
from tests.strategies import generator
from tests.tokenizers import checkpoint


@pytest.fixture(scope="module", params=FAMILIES)
def speaker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny model with a tokenizer."""
    return softdlm.load(checkpoint(tmp_path_factory.mktemp(request.param), request.param))


def test_a_string_is_a_users_turn(speaker: Any) -> None:
    message = [{"role": "user", "content": "the cat"}]
    ids = encode(speaker, message)
    assert encode(speaker, "the cat") == ids
    assert len(encode(speaker, "the cat", chat=False)) < len(ids)
    forms: list[Any] = ["the cat", message, ids, torch.tensor(ids)]
    answers = [softdlm.generate(speaker, form, max_new_tokens=6) for form in forms]
    assert all(answer == answers[0] for answer in answers)


def test_many_prompts_come_back_in_order(speaker: Any) -> None:
    prompts = ["a long prompt about the cat", "the", "not so long"]
    answers = softdlm.generate(speaker, prompts, max_new_tokens=6, batch_size=2)
    assert answers == [softdlm.generate(speaker, prompt, max_new_tokens=6) for prompt in prompts]
    assert [answer.trace.prompt_ids for answer in answers] == [encode(speaker, prompt) for prompt in prompts]


def test_the_generation_adds_up(speaker: Any) -> None:
    answer = softdlm.generate(speaker, "the cat", max_new_tokens=12, commit=TopN(3), feedback=Slerp())
    assert len(answer.canvas_ids) == 12
    assert answer.ids == answer.canvas_ids[: len(answer.ids)]
    assert answer.text == speaker.tokenizer.decode(answer.ids, skip_special_tokens=True)
    assert answer.forwards == len(answer.trace.passes)
    assert answer.tokens_per_forward == len(answer.ids) / answer.forwards
    reason = "length" if len(answer.ids) == 12 else "eos"
    assert answer.finish_reason == reason


@settings(max_examples=25)
@given(st.sampled_from(FAMILIES), st.integers(0, 999), st.booleans(), st.sampled_from([None, 4, 8]), st.booleans())
def test_a_trace_replays_to_the_same_answer(
    family: str, seed: int, candidates: bool, block: int | None, early: bool
) -> None:
    prompt = torch.randint(3, 140, (5,), generator=generator(seed)).tolist()
    answer = softdlm.generate(
        tiny(family),
        prompt,
        max_new_tokens=10,
        commit=TopN(2),
        feedback=Slerp(),
        block_length=block,
        early_finish=early,
        record_candidates=candidates,
    )
    trace = Trace(**{**vars(answer.trace)})
    assert trace.replay()[:10] == answer.canvas_ids
    frames = list(trace.frames())
    assert len(frames) == answer.forwards + 1
    assert frames[0] == [*prompt, *[tiny(family).mask_id] * (trace.length - 5)]
    for before, after, step in zip(frames[:-1], frames[1:], trace.passes, strict=True):
        changed = [place for place in range(trace.length) if before[place] != after[place]]
        assert changed == step.positions
        assert len(step.confidence) == len(step.tokens)
        assert bool(step.candidates) == (candidates and bool(step.open))
        assert all(len(options) == 3 for options in [*step.candidates, *step.chosen])
        assert len(step.entropy) == len(step.open)
        assert len(step.chosen) == len(step.chosen_entropy) == (len(step.positions) if candidates else 0)
        assert all(options[0][0] == token for token, options in zip(step.tokens, step.chosen, strict=False))
    if candidates:
        assert len(trace.seconds) == answer.forwards
        assert min(trace.seconds) >= 0
        check_soft_inputs(trace)


def check_soft_inputs(trace: Trace) -> None:
    """A pass saw soft tokens where an earlier one predicted something, and [MASK] at the others."""
    seen: set[int] = set()
    for step in trace.passes:
        here = {*step.open, *step.positions}
        assert set(step.soft) == seen & here
        seen |= here


def saved_traces(speaker: Any) -> Iterator[Trace]:
    """With and without candidates and texts, with blocks, and of every kind of soft token."""
    options: list[Any] = [
        {},
        {"record_candidates": True},
        {"record_candidates": True, "feedback": "alternate(slerp(k=1, lam=0.5))", "block_length": 4},
        {"record_candidates": True, "feedback": "norm-mix", "candidates": 5},
        {"record_candidates": True, "temperature": 1.0, "seed": 4},
    ]
    for each in options:
        yield softdlm.generate(speaker, "the cat sat", max_new_tokens=12, tokens_per_step=3, **each).trace


def test_a_trace_is_saved_and_loaded(speaker: Any, tmp_path: Path) -> None:
    schema = json.loads(Path(records.__path__[0], "trace.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    file = tmp_path / "trace.json"
    for trace in saved_traces(speaker):
        trace = replace(trace, marks=[Mark(15, 17, False)], right=False, target="a dog")
        trace.save(file)
        jsonschema.validate(json.loads(file.read_text()), schema)
        found = Trace.load(file)
        assert found == trace
        assert found.seconds == trace.seconds
        assert set(found.pieces) in (found.tokens(), set())
        assert found.prompt.endswith("the cat sat" if found.pieces else "")
        assert "<|" not in found.prompt
        recorded = bool(trace.passes[0].chosen)
        assert bool(found.pieces) == bool(found.seconds) == recorded


DAMAGES: list[tuple[str, Any, str]] = [
    ("whole", "[]", "is not a trace saved by softdlm: softdlm_trace is missing"),
    ("whole", "{", "it is not JSON"),
    ("softdlm_trace", 1, "is a trace of version 1; this softdlm reads version 2"),
    ("softdlm_trace", 99, "of version 99"),
    ("length", 3, "is not a trace saved by softdlm"),
    ("length", "3", "is not a trace saved by softdlm"),
    ("prompt_ids", [1.5], "whole numbers"),
    ("model", None, "must be texts"),
    ("fixed", [[1, 2, 3]], "is not a trace"),
    ("marks", [[900, 901, True]], "whole numbers below"),
    ("mixture", [], "must be objects"),
    ("passes.positions", [0], "different lengths"),
    ("passes.tokens", ["<script>"], "whole numbers"),
    ("passes.open", [[0, 900]], "do not ascend within a canvas"),
    ("passes.ids", [[-1]], "incomplete"),
    ("vocabulary.texts", ["a"], "is not a trace"),
]


@pytest.mark.parametrize(("place", "value", "words"), DAMAGES)
def test_a_damaged_trace_is_refused_in_one_line(tmp_path: Path, place: str, value: Any, words: str) -> None:
    made = softdlm.generate(tiny("llada"), [3, 4], max_new_tokens=4, tokens_per_step=4, record_candidates=True).trace
    data = made.to_json()
    assert Trace.from_json(data) == made
    *outer, name = place.split(".")
    (data[outer[0]] if outer else data)[name] = value
    (tmp_path / "bad.json").write_text(value if place == "whole" else json.dumps(data))
    with pytest.raises(UsageError, match=words) as caught:
        Trace.load(tmp_path / "bad.json")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "bad.json"))


def test_a_long_trace_stays_small() -> None:
    """512 tokens in 128 passes with three candidates that change in every pass, of a vocabulary of 126,000."""
    random, mask, left = Random(3), 126_336, list(range(20, 532))
    passes = []
    for _ in range(128):
        gone = sorted(random.sample(left, 4))
        left = [at for at in left if at not in gone]
        lists = [[(random.randrange(126_000), random.randrange(10_000) / 1e4) for _ in range(3)] for _ in range(512)]
        doubt = [random.randrange(9000) / 1e3 for _ in range(512)]
        open, made = len(left), slice(508, 512)
        passes.append(
            Pass(gone, [5] * 4, [0.123456] * 4, list(left), lists[:open], doubt[:open], lists[made], doubt[made], left)
        )
    trace = Trace(list(range(20)), 532, mask, 2, passes)
    trace = replace(trace, pieces=dict.fromkeys(trace.tokens(), "0" * 5))
    text = json.dumps(trace.to_json(), separators=(",", ":"))
    assert len(text) < 3_000_000, "although no two candidates are the same token"
    assert Trace.from_json(json.loads(text)) == trace


def test_streamed_text_only_grows_and_ends_as_the_answer(speaker: Any) -> None:
    pieces: dict[int, list[str]] = {0: [], 1: []}
    prompts = ["the cat sat", "who"]
    answers = softdlm.generate(
        speaker, prompts, max_new_tokens=16, on_text=lambda request, piece: pieces[request].append(piece)
    )
    for request, answer in enumerate(answers):
        assert "".join(pieces[request]) == answer.text
        assert "" not in pieces[request]


def test_streaming_waits_for_the_longest_committed_prefix() -> None:
    """Nothing is said before position 0 is committed, however much stands behind it."""
    seen: list[int] = []

    class Letters:
        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            seen.append(len(ids))
            return "".join(chr(65 + token % 26) for token in ids)

    model = softdlm.load(DATA / "llada", **IDS["llada"])
    model.tokenizer = Letters()
    pieces: list[str] = []
    answer = softdlm.generate(
        model, [3, 4, 5], max_new_tokens=12, early_finish=False, on_text=lambda _, piece: pieces.append(piece)
    )
    frames = [frame[3:] for frame in answer.trace.frames()][1:]
    prefixes = [next((i for i, t in enumerate(f) if t in (model.mask_id, *model.eos_ids)), 12) for f in frames]
    grown = [now for now, before in zip(prefixes, [None, *prefixes], strict=False) if now != before]
    assert seen[: len(grown)] == grown, "decoded where the prefix grew, and only there"
    assert "".join(pieces) == answer.text


def test_stop_strings_cut_the_text_and_the_work(speaker: Any) -> None:
    whole = softdlm.generate(speaker, "the cat", max_new_tokens=24, early_finish=False, block_length=4)
    assert len(whole.text) > 3, "the tiny model must say something for this test"
    stop = whole.text[1:3]
    cut = softdlm.generate(speaker, "the cat", max_new_tokens=24, early_finish=False, block_length=4, stop=stop)
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason == "stop"
    assert cut.forwards <= whole.forwards
    assert speaker.mask_id not in cut.canvas_ids
    assert len(cut.canvas_ids) == 24
    two = softdlm.generate(
        speaker, "the cat", max_new_tokens=24, early_finish=False, block_length=4, stop=["zzz", stop]
    )
    assert two.text == cut.text


def test_text_that_may_yet_change_is_held_back() -> None:
    assert hold_back("abc", []) == "abc"
    assert hold_back("ab\ufffd", []) == "ab"
    assert hold_back("abST", ["STOP"]) == "ab"
    assert hold_back("abS", ["STOP", "Q"]) == "ab"
    assert hold_back("abTO", ["STOP"]) == "abTO"
    assert hold_back("a\n", ["\n\n"]) == "a"


@pytest.mark.parametrize(
    ("prompt", "options", "error", "words"),
    [
        ([3, 4], {"max_new_tokens": 0}, UsageError, "max_new_tokens must be at least 1, not 0"),
        ([3, 4], {"batch_size": 0}, UsageError, "batch_size must be at least 1, not 0"),
        ([3, 4], {"block_length": 0}, UsageError, "block_length must be at least 1"),
        ([], {}, UsageError, "no prompt was given"),
        ([3, 187], {}, PromptError, r"holds the mask token \(id 187\) at position 1"),
        ([3, 500], {}, PromptError, r"ids \[500\] lie outside the vocabulary of 192"),
        ([3] * 4090, {"max_new_tokens": 7}, PromptError, "take 4097 tokens, the model's context is 4096"),
        ([3, 4], {"stop": "x"}, TokenizerError, "has no tokenizer"),
        ([3, 4], {"on_text": print}, TokenizerError, "has no tokenizer"),
    ],
)
def test_bad_requests_are_one_clear_line(
    prompt: list[int], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        softdlm.generate(tiny("llada"), prompt, **options)
    assert "\n" not in str(caught.value)


def test_one_bad_prompt_costs_nothing_that_was_done() -> None:
    """All prompts are checked before the first pass."""
    steps: list[Any] = []
    with pytest.raises(PromptError, match="mask token"):
        softdlm.generate(tiny("llada"), [[3, 4], [5, 187]], on_step=lambda *seen: steps.append(seen))
    assert not steps


def test_one_prompt_too_long_costs_nothing_that_was_done() -> None:
    steps: list[Any] = []
    with pytest.raises(PromptError, match="take 4101 tokens"):
        softdlm.generate(
            tiny("llada"),
            [[3, 4], [5] * 4097],
            max_new_tokens=4,
            batch_size=1,
            on_step=lambda *seen: steps.append(seen),
        )
    assert not steps


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_of_no_length_is_refused_by_every_family(family: str) -> None:
    with pytest.raises(UsageError, match="block_length must be at least 1"):
        softdlm.generate(tiny(family), [3, 4], block_length=0)


@pytest.mark.usefixtures("unchecked")
def test_ids_may_be_an_array_or_a_tensor_of_one_dimension() -> None:
    model = tiny("llada")
    plain = softdlm.generate(model, [3, 4, 5], max_new_tokens=4)
    assert softdlm.generate(model, list(numpy.array([3, 4, 5])), max_new_tokens=4) == plain
    with pytest.raises(PromptError, match="must have one dimension, not 2"):
        softdlm.generate(model, torch.tensor([[3, 4, 5]]))


def test_an_empty_prompt_is_dreams_problem_only(speaker: Any) -> None:
    if speaker.first_open:
        with pytest.raises(PromptError, match="an empty prompt"):
            softdlm.generate(speaker, "", chat=False, max_new_tokens=4)
    else:
        assert len(softdlm.generate(speaker, "", chat=False, max_new_tokens=4).canvas_ids) == 4


def test_a_mask_token_inside_the_prompt_text_is_refused(speaker: Any) -> None:
    token = "<|mdm_mask|>" if speaker.source.family == "llada" else "<|mask|>"
    with pytest.raises(PromptError, match="holds the mask token"):
        softdlm.generate(speaker, f"the {token} cat")


def test_a_message_without_content_is_refused(speaker: Any) -> None:
    with pytest.raises(PromptError, match="a mapping with role and content, not"):
        softdlm.generate(speaker, [{"role": "user", "text": "hi"}])


def test_an_empty_stop_string_is_refused(speaker: Any) -> None:
    with pytest.raises(UsageError, match="stop must be text that is not empty"):
        softdlm.generate(speaker, "the", stop=["a", ""])


def test_unknown_options_are_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown decoding field lambda_; known are commit, feedback, k, lam"):
        softdlm.generate(tiny("llada"), [3, 4], lambda_=0.3)


def test_seeded_draws_repeat_and_differ_by_seed() -> None:
    options: dict[str, Any] = {"max_new_tokens": 12, "temperature": 1.5, "early_finish": False}
    one, same, other = (softdlm.generate(tiny("llada"), [3, 4], seed=seed, **options) for seed in (1, 1, 2))
    assert one == same
    assert one.canvas_ids != other.canvas_ids


def test_draws_follow_the_request_number_not_the_place() -> None:
    options: dict[str, Any] = {"max_new_tokens": 12, "temperature": 1.5, "early_finish": False}
    prompts = [[3, 4], [3, 4], [5, 6, 7]]
    first = softdlm.generate(tiny("llada"), prompts, requests=[70, 8, 9], **options)
    back = softdlm.generate(tiny("llada"), prompts[::-1], requests=[9, 8, 70], batch_size=1, **options)
    assert [each.canvas_ids for each in first] == [each.canvas_ids for each in back[::-1]]
    assert first[0].canvas_ids != first[1].canvas_ids
    heard: list[int] = []
    softdlm.generate(
        tiny("llada"), prompts, requests=[70, 8, 9], on_step=lambda _, names: heard.extend(names), **options
    )
    assert set(heard) == {70, 8, 9}
    with pytest.raises(UsageError, match="3 prompts but 2 request numbers"):
        softdlm.generate(tiny("llada"), prompts, requests=[1, 2])


def test_llada2_rounds_its_canvas_up_to_whole_blocks() -> None:
    answer = softdlm.generate(tiny("llada2"), [5, 6, 7], max_new_tokens=10, block_length=8, early_finish=False)
    assert answer.trace.length == 16
    assert len(answer.canvas_ids) == 10
    assert len(answer.trace.replay()) == 13
    assert softdlm.generate(tiny("llada"), [5, 6, 7], max_new_tokens=10, block_length=8).trace.length == 13
