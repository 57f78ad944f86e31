"""`recipe=paper` in the lm-eval adapter: the settings of our own runner, by each request's task."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from softdlm import Decoding, Slerp, UsageError
from softdlm.evaluate.benchmarks import load_benchmark
from softdlm.evaluate.cell import ModelSpec, TaskSpec
from softdlm.evaluate.fingerprint import protocol
from softdlm.evaluate.grid import Grid
from softdlm.evaluate.harness_settings import Settings
from softdlm.evaluate.readings import READINGS, Readings
from softdlm.records.canonical import digest
from tests.conftest import BENCHMARKS
from tests.evaluate.harness_runs import UNJAILED, adapter, benchmarks, evaluate, folder

pytestmark = pytest.mark.filterwarnings("ignore:generated code will run without a sandbox")
FAMILY = {"llada": "llada", "llada2": "llada2_moe", "dream": "Dream"}
FREE: dict[str, Any] = {"k": None, "lam": None, "max_new_tokens": None}
"""Leaves these to the recipe."""
OF_ANSWERS = [
    (model, each.name, value)
    for model, family in FAMILY.items()
    for each in READINGS.values()
    if each.part == "answers" and each.is_for(family)
    for value in each.values
]


def asked(lm: Any, name: str) -> Any:
    """The requests of one of our tasks, as lm-eval makes them."""
    task = load_benchmark(name, lm.tokenizer, data_dir=BENCHMARKS, limit=1, **UNJAILED).task
    return lm._requests(task.instances)


@pytest.mark.parametrize(("model", "name", "value"), OF_ANSWERS)
def test_answers_are_decoded_as_in_our_own_runner(model: str, name: str, value: str) -> None:
    """Every reading, every benchmark, a fixed and an adaptive rate."""
    spec = ModelSpec.of(folder(model), device="cpu")
    for task, commit in product(("gsm8k", "humaneval"), ("topn(4)", "threshold(0.9)")):
        lm = adapter(model, **FREE, **{"commit": commit, "recipe": "paper", name: value})
        asked_for = (Decoding(commit=commit, feedback="slerp"),)
        grid = Grid((spec,), (TaskSpec(task),), asked_for, "paper", Readings.of({name: value}), single=False)
        (cell,) = grid.outline(FAMILY[model])
        (request,) = asked(lm, cell.task.name)
        assert request.decoding == replace(cell.decoding, stop=request.decoding.stop)
        assert lm.model.attention == cell.model.attention


def test_one_command_gives_maths_two_candidates_and_code_three(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = adapter("llada", **{**FREE, "max_new_tokens": 4}, recipe="paper")
    seen: dict[str, Any] = {}
    real = lm._requests

    def watched(requests: Any) -> Any:
        made = real(requests)
        seen.update({each.task_name: found.decoding for each, found in zip(requests, made, strict=True)})
        return made

    monkeypatch.setattr(lm, "_requests", watched)
    results = evaluate(lm, benchmarks("llada"))["results"]
    assert {name: decoding.feedback for name, decoding in seen.items()} == {
        "softdlm_gsm8k": Slerp(2, 0.3), "softdlm_math500": Slerp(2, 0.3),
        "softdlm_humaneval": Slerp(3, 0.3), "softdlm_mbpp": Slerp(3, 0.3),
    }  # fmt: skip
    assert all("consistent,none" in row for row in results.values())


def test_what_model_args_say_goes_before_the_recipe() -> None:
    lm = adapter("llada", k=4, lam=0.7, eos="forbid", max_new_tokens=9, recipe="paper")
    (request,) = asked(lm, "gsm8k")
    found = request.decoding
    assert (found.feedback, found.eos, found.max_new_tokens) == (Slerp(4, 0.7), "forbid", 9)


def test_other_tasks_are_not_the_papers() -> None:
    settings = Settings.parse({"recipe": "paper", "feedback": "slerp"})
    assert settings.for_request({"max_new_tokens": 7}, family="llada") == Decoding(feedback="slerp").settled(
        {"max_new_tokens": 7}
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"recipe": "pasta"}, "unknown recipe 'pasta': the only one is paper"),
        ({"dream": "dream-greedy"}, "dream needs the recipe: add recipe=paper"),
        ({"recipe": "paper", "dream": "fast"}, "dream=fast: the values are dream-dllm, dream-eps, dream-greedy"),
        ({"recipe": "paper", "math500": "math-verify"}, "give --metadata math500=math-verify"),
        ({"recipe": "paper", "turns": "many"}, "softdlm_gsm8k_turns"),
        ({"recipe": "paper", "prompts": "chat"}, "figure1, table1 and table4"),
        ({"recipe": "paper", "adaptve": "tempered"}, "unknown model_args adaptve; known are .* adaptive-eos"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings.parse(words)


def test_a_reading_of_another_family_is_refused() -> None:
    with pytest.raises(UsageError, match="dream=dream-greedy changes nothing here, it is for Dream"):
        adapter("llada", recipe="paper", dream="dream-greedy")


@pytest.mark.parametrize(
    ("model", "name", "value"), [each for each in OF_ANSWERS if each[2] != READINGS[each[1]].values[0]]
)
def test_caches_know_the_recipe_and_every_reading(model: str, name: str, value: str) -> None:
    base = {"pretrained": folder(model), "device": "cpu"}
    digests = [
        digest(protocol(Settings.parse({**base, **more})))
        for more in ({}, {"recipe": "paper"}, {"recipe": "paper", name: value})
    ]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("name", ["math500", "math500-turns", "math500-dream", "math500-boxed"])
@pytest.mark.parametrize("value", READINGS["math500"].values)
def test_the_headline_of_math500_is_the_readings(name: str, value: str) -> None:
    """An answer in a box that one of the scores takes: `correct` follows, and both stay on record."""
    tokenizer = adapter("dream" if "dream" in name else "llada").tokenizer
    loaded = load_benchmark(name, tokenizer, data_dir=BENCHMARKS, limit=1, math500=value)
    score = loaded.score(loaded.items[0], r"So $\boxed{0.75}$")
    assert (score["exact_match"], score["math_verify"]) == (False, True)
    metric = value.replace("-", "_")
    assert score["correct"] is score[metric]
    assert loaded.protocol()["headline"] == metric == loaded.metrics[0]
    assert {"exact_match", "math_verify"} < set(loaded.metrics)
    with pytest.raises(UsageError, match="math500=strict: the values are exact-match, math-verify"):
        load_benchmark(name, tokenizer, data_dir=BENCHMARKS, math500="strict")
