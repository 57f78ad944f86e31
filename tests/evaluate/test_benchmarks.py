"""The benchmarks as our own runner sees them."""

from pathlib import Path
from typing import Any

import pytest

import softdlm
from softdlm import Decoding, TokenizerError, UsageError
from softdlm.errors import SandboxError
from softdlm.evaluate import paper
from softdlm.evaluate.benchmarks import Benchmark, benchmark_names, load_benchmark
from softdlm.evaluate.cell import ModelSpec, TaskSpec
from softdlm.evaluate.grid import Grid, plan
from tests.conftest import BENCHMARKS, DATA, REAL_BENCHMARKS, needs_real_data, tiny
from tests.evaluate.harness_runs import UNJAILED, folder

pytestmark = pytest.mark.filterwarnings("ignore:generated code will run without a sandbox")
GOLDEN = DATA / "prompts"
# the paper's settings: shots, new tokens, EOS
PAPER = {
    "gsm8k": (5, 512, "last"),
    "math500": (4, 512, "last"),
    "humaneval": (0, 512, "forbid-first"),
    "mbpp": (3, 256, "last"),
    "gsm8k-dream": (0, 256, "allow"),
    "math500-dream": (0, 512, "allow"),
    "humaneval-dream": (0, 768, "allow"),
    "mbpp-dream": (0, 1024, "allow"),
}
# not those that draw other items as shots
WITH_GOLDEN = (*PAPER, "gsm8k-turns", "math500-turns", "math500-boxed-dream", "mbpp-turns", "mbpp-begin")
SAMPLED = {"temperature": 0.1, "top_p": 0.9, "rank": "entropy"}


def model_for(name: str) -> Any:
    return softdlm.load(folder("dream" if "dream" in name else "llada"), device="cpu")


def load(name: str, where: Path = BENCHMARKS, limit: int | None = None) -> Benchmark:
    return load_benchmark(name, model_for(name), data_dir=where, limit=limit, **UNJAILED)


def test_there_is_a_reading_for_each_open_question() -> None:
    assert set(PAPER) <= set(benchmark_names())
    others = {"gsm8k-turns", "gsm8k-drawn", "math500-turns", "math500-boxed", "math500-boxed-dream"}
    assert others | {"mbpp-turns", "mbpp-compat", "mbpp-begin", "mbpp-dream-compat"} <= set(benchmark_names())


@pytest.mark.parametrize("name", benchmark_names())
def test_every_reading_solves_its_own_references(name: str) -> None:
    benchmark = load(name)
    answers = [benchmark.reference(item) for item in benchmark.items]
    scores = benchmark.score_all(benchmark.items, answers)
    assert scores == [benchmark.score(item, text) for item, text in zip(benchmark.items, answers, strict=True)]
    solvable = [not ("compat" in name and item.doc["test_setup_code"]) for item in benchmark.items]
    assert [score["correct"] for score in scores] == solvable
    assert all({"correct", "reason", *benchmark.metrics} <= score.keys() for score in scores)
    assert len({item.id for item in benchmark.items}) == len({item.request for item in benchmark.items}) == len(scores)
    protocol = benchmark.protocol()
    assert protocol["task"] == "softdlm_" + name.replace("-", "_")
    assert protocol["headline"] in benchmark.metrics
    assert bool(protocol["sandbox"]) == (protocol["benchmark"] in ("humaneval", "mbpp"))


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_settings(name: str) -> None:
    benchmark = load(name, limit=1)
    assert (benchmark.protocol()["shots"], benchmark.max_new_tokens, benchmark.eos) == PAPER[name]
    assert benchmark.decoding == (SAMPLED if "dream" in name else {})
    assert len(benchmark) == 1
    # the shots really are in the prompt
    marks = {"gsm8k": "\nA:", "math500": "\nSolution:", "humaneval": "Complete the", "mbpp": "You are an expert"}
    shots = PAPER[name][0]
    if name in marks:
        assert benchmark.items[0].prompt.count(marks[name]) == shots + 1


@pytest.mark.parametrize("family", ["llada", "llada2_moe", "Dream"])
@pytest.mark.parametrize("name", paper.DOMAINS)
def test_the_recipe_and_the_task_files_say_the_same(family: str, name: str) -> None:
    setting = paper.setting(family, name)
    ours = load(paper.Recipe(family).variant(name), limit=1)
    assert (ours.protocol()["shots"], ours.max_new_tokens, ours.eos) == (
        setting.shots,
        setting.max_new_tokens,
        setting.eos,
    )
    said = {name: getattr(setting, name) for name in SAMPLED if getattr(setting, name) is not None}
    assert ours.decoding == said == (SAMPLED if family == "Dream" else {})


def test_the_paper_recipe_plans_dreams_own_prompts() -> None:
    specs = (ModelSpec.of(folder("dream"), device="cpu"), ModelSpec.of(folder("llada"), device="cpu"))
    tasks = (TaskSpec("gsm8k", data_dir=str(BENCHMARKS)),)
    for recipe, wanted in (("paper", {"gsm8k-dream", "gsm8k"}), (None, {"gsm8k"})):
        planned = plan(Grid(specs, tasks, (Decoding(feedback="slerp"),), recipe=recipe, single=False)).cells
        assert {each.cell.task.name for each in planned} == wanted


def test_turns_and_one_turn_hold_the_same_shots() -> None:
    turn = "<|start_header_id|>user"
    for name, shots in (("gsm8k", 5), ("math500", 4), ("mbpp", 3)):
        one, many = load(name, limit=1), load(f"{name}-turns", limit=1)
        assert one.items[0].prompt.count(turn) == 1
        assert many.items[0].prompt.count(turn) == shots + 1
        assert (one.protocol()["turns"], many.protocol()["turns"]) == ("one", "many")
        assert one.protocol()["data"] == many.protocol()["data"]
        assert one.protocol()["prompts"] != many.protocol()["prompts"]


def test_drawn_shots_repeat_and_never_hold_the_item() -> None:
    for name in ("gsm8k-drawn", "math500-boxed"):
        first, again = load(name), load(name)
        assert [item.prompt for item in first.items] == [item.prompt for item in again.items]
        question = first.items[0].doc.get("question") or first.items[0].doc["problem"]
        assert first.items[0].prompt.count(question) == 1


def test_a_limit_takes_the_first_items() -> None:
    whole, part = load("gsm8k"), load("gsm8k", limit=2)
    assert part.items == whole.items[:2]
    assert [item.id for item in part.items] == ["gsm8k/test/0", "gsm8k/test/1"]


def test_a_sandbox_that_fails_says_nothing_about_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from softdlm.sandbox.run import Outcome, Sandbox

    benchmark = load("humaneval", limit=1)
    broken = [Outcome("error", "no room", 0.0)]
    monkeypatch.setattr(Sandbox, "run_all", lambda self, programs, workers=None: broken)
    with pytest.raises(SandboxError, match="did not run a program of softdlm_humaneval: no room"):
        benchmark.score(benchmark.items[0], "x = 1")


def test_without_a_sandbox_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    from softdlm.sandbox import run as sandbox

    monkeypatch.setattr(sandbox, "problem_with", lambda tried: "not here")
    with pytest.raises(SandboxError, match="no sandbox for generated code works here"):
        load_benchmark("mbpp", model_for("mbpp"), data_dir=BENCHMARKS)
    assert len(load_benchmark("gsm8k", model_for("gsm8k"), data_dir=BENCHMARKS)) == 3


def test_what_cannot_be_loaded_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown benchmark 'gsm9k': one of gsm8k, "):
        load("gsm9k")
    with pytest.raises(UsageError, match="limit must be at least 1, not 0"):
        load("gsm8k", limit=0)
    with pytest.raises(TokenizerError, match="needs a tokenizer with a chat template"):
        load_benchmark("gsm8k", tiny("llada"), data_dir=BENCHMARKS)
    with pytest.raises(UsageError, match="no such folder"):
        load("gsm8k", Path("/nowhere"))


@needs_real_data
@pytest.mark.parametrize("name", WITH_GOLDEN)
def test_the_first_real_prompt_is_the_golden_one(name: str) -> None:
    """Files in tests/data/prompts; to write them anew, delete them and run this test twice."""
    (item,) = load(name, REAL_BENCHMARKS, limit=1).items
    file = GOLDEN / f"{name}.txt"
    if not file.exists():
        file.write_bytes(item.prompt.encode())
        pytest.fail(f"{file} was missing and has been written: look at it, then run again")
    assert item.prompt == file.read_bytes().decode()


@needs_real_data
@pytest.mark.parametrize("name", PAPER)
def test_real_references_are_right(name: str) -> None:
    """The first 20 of each; benchmarks/reference_solutions.py takes them all."""
    benchmark = load(name, REAL_BENCHMARKS, limit=20)
    scores = benchmark.score_all(benchmark.items, [benchmark.reference(item) for item in benchmark.items])
    assert all(score["correct"] for score in scores)
