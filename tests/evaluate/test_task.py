"""Tasks as the evaluation sees them: prompts written for a model, verdicts with reasons, benchmarks by name."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import softdlm
from softdlm.errors import TokenizerError, UsageError
from softdlm.evaluate.cell import TaskSpec, task_record
from softdlm.evaluate.task import EvalItem, EvalTask, load_eval_task
from softdlm.generation import encode
from softdlm.sandbox.run import Outcome, Sandbox
from tests.conftest import DATA, IDS
from tests.tokenizers import checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return softdlm.load(checkpoint(tmp_path_factory.mktemp("task") / "llada", "llada"), device="cpu")


@pytest.mark.parametrize("name", ["mini-math", "mini-code", "either-or"])
def test_builtin_tasks_are_rendered_as_generate_renders_them(model: Any, name: str) -> None:
    task, plain = load_eval_task(TaskSpec(name, limit=3), model), softdlm.tasks.load_task(name, size=3)
    assert isinstance(task, EvalTask)
    assert task.max_new_tokens == plain.max_new_tokens
    for item, source in zip(task.items, plain, strict=True):
        assert isinstance(item, EvalItem)
        assert item.id == source.id
        assert encode(model, item.prompt, chat=False) == encode(model, source.prompt)
        verdict = task.score(item, source.target)
        assert (verdict["correct"], verdict["reason"]) == (True, "solved")


def test_a_wrong_answer_has_a_reason(model: Any) -> None:
    task = load_eval_task(TaskSpec("mini-math", limit=1), model)
    reasons = [task.score(task.items[0], text)["reason"] for text in ("", "It is 3.", "#### -1")]
    assert reasons == ["empty", "no answer", "wrong"]


def test_a_limit_takes_the_first_items_and_never_adds_any(model: Any) -> None:
    whole = load_eval_task(TaskSpec("either-or"), model)
    assert len(whole.items) == 70
    assert load_eval_task(TaskSpec("either-or", limit=5), model).items == whole.items[:5]
    assert load_eval_task(TaskSpec("either-or", limit=500), model).items == whole.items


def test_a_model_without_a_tokenizer_is_said() -> None:
    bare = softdlm.load(DATA / "llada", device="cpu", **IDS["llada"])
    with pytest.raises(TokenizerError, match="has no tokenizer, which the task mini-math needs"):
        load_eval_task(TaskSpec("mini-math"), bare)


def test_benchmarks_are_found_by_name(model: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake: Any = ModuleType("softdlm.evaluate.benchmarks")
    asked = []

    def load_benchmark(
        name: str, model: Any, *, data_dir: str | None, limit: int | None, allow_unsandboxed: bool, math500: str
    ) -> Any:
        asked.append((name, model, data_dir, limit, allow_unsandboxed, math500))
        items = [SimpleNamespace(id="0", prompt="Q: 1+1", stop=["Q:"])]
        return SimpleNamespace(
            items=items, max_new_tokens=4, eos="last", score=lambda item, text: {}, protocol=lambda: {"name": name}
        )

    fake.load_benchmark = load_benchmark
    monkeypatch.setitem(sys.modules, "softdlm.evaluate.benchmarks", fake)
    task = load_eval_task(TaskSpec("gsm8k-strict", limit=7, data_dir=str(tmp_path), allow_unsandboxed=True), model)
    assert asked == [("gsm8k-strict", model, str(tmp_path), 7, True, "exact-match")]
    assert task_record(task) == {"name": "gsm8k-strict", "count": 1, "items": task_record(task)["items"]}


def test_programs_run_in_a_sandbox_that_is_on_record(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    class Recording(Sandbox):
        def run(self, program: str, checks: str = "") -> Outcome:
            ran.append(program)
            return Outcome("passed", "", 0.0)

    def find(*, allow_unsandboxed: bool) -> Sandbox:
        assert allow_unsandboxed is True
        return Recording("bubblewrap")

    monkeypatch.setattr("softdlm.evaluate.task.find_sandbox", find)
    task = load_eval_task(TaskSpec("mini-code", limit=1, allow_unsandboxed=True), model)
    assert task.protocol()["sandbox"]["backend"] == "bubblewrap"
    assert task.score(task.items[0], "return 'nonsense'")["correct"] is True
    assert "nonsense" in ran[0]
    assert load_eval_task(TaskSpec("mini-math", limit=1), model).protocol()["sandbox"] is None


def test_without_the_extra_the_remedy_is_said(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "softdlm.evaluate.benchmarks", None)
    with pytest.raises(UsageError, match=r"task 'mbpp' needs pip install 'softdlm\[eval\]'"):
        load_eval_task(TaskSpec("mbpp"), model)


def test_the_record_of_a_task_holds_what_the_model_reads() -> None:
    def record(prompt: str, stop: tuple[str, ...]) -> dict[str, Any]:
        task: Any = SimpleNamespace(
            items=[SimpleNamespace(id="a", prompt=prompt, stop=stop)], max_new_tokens=1, eos="allow",
            score=lambda item, text: {}, protocol=lambda: {"name": "x"},
        )  # fmt: skip
        return task_record(task)

    assert record("x", ()) == record("x", ())
    assert len({str(record(*each)) for each in (("x", ()), ("y", ()), ("x", ("\n",)))}) == 3


@pytest.mark.parametrize("ids", [[], ["a", "b", "a"]])
def test_items_need_ids_of_their_own(ids: list[str]) -> None:
    items = [SimpleNamespace(id=each, prompt="x", stop=()) for each in ids]
    task: Any = SimpleNamespace(
        items=items, max_new_tokens=1, eos="allow", score=lambda item, text: {}, protocol=lambda: {"name": "x"}
    )
    with pytest.raises(UsageError, match="an id of its own"):
        task_record(task)
