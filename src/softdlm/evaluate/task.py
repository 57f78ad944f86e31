"""What a task must offer to be evaluated: the built-in ones and files through adapters, benchmarks by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from softdlm.decoding import EosPolicy
from softdlm.errors import TokenizerError, UsageError
from softdlm.evaluate.cell import TaskSpec, is_file
from softdlm.generation import render_chat
from softdlm.models.denoiser import Denoiser
from softdlm.models.load import Checkpoint
from softdlm.records.canonical import digest
from softdlm.sandbox.run import Sandbox, find_sandbox
from softdlm.tasks import TASKS, Item, Task, load_task, official_size, runs_code
from softdlm.tasks.consistency import CONSISTENT
from softdlm.tasks.math import final_answer

VERSIONS = {"mini-math": 1, "mini-code": 1, "either-or": 1}
"""Of the built-in scorers: raise it when a verdict on the same text changes."""


@runtime_checkable
class EvalItem(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def prompt(self) -> str:
        """The whole text that goes in, chat template included."""
        ...

    @property
    def stop(self) -> Sequence[str]: ...


@runtime_checkable
class EvalTask(Protocol):
    """Items with their prompts written for one model, and a verdict on a text."""

    @property
    def items(self) -> Sequence[Any]:
        """Each an EvalItem."""
        ...

    @property
    def max_new_tokens(self) -> int | None:
        """Length of the answer's canvas; None leaves it to the checkpoint."""
        ...

    @property
    def eos(self) -> EosPolicy: ...

    def score(self, item: Any, text: str) -> Mapping[str, Any]:
        """`correct` (bool) and `reason` (a word or two); further keys are extra metrics."""
        ...

    def protocol(self) -> Mapping[str, Any]:
        """What else can change a verdict: name, version, split, references, shots, scorer. Plain JSON values."""
        ...


@dataclass(frozen=True)
class Question:
    """An item of a built-in task, as one user turn."""

    source: Item
    prompt: str
    stop: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.source.id


@dataclass(frozen=True)
class BuiltinTask:
    task: Task
    items: tuple[Question, ...]
    sandbox: Sandbox | None = None
    """Where the programs of a task run; None for a task that has none."""
    eos: EosPolicy = "allow"

    @property
    def max_new_tokens(self) -> int:
        return self.task.max_new_tokens

    @staticmethod
    def of(spec: TaskSpec, model: Checkpoint | Denoiser) -> BuiltinTask:
        """The official items of a split, the first `limit` of them."""
        check_tokenizer(spec, model)
        size = official_size(spec.name, spec.split)
        sandbox = find_sandbox(allow_unsandboxed=spec.allow_unsandboxed) if runs_code(spec.name) else None
        task = load_task(spec.name, split=spec.split, size=min(size, spec.limit or size), sandbox=sandbox)
        prompts = as_user_turns(model, [item.prompt for item in task])
        return BuiltinTask(task, tuple(map(Question, task, prompts)), sandbox)

    def score(self, item: Question, text: str) -> dict[str, Any]:
        correct = self.task.score(item.source, text)
        made = {"correct": correct, "reason": _reason(item.source, text, correct), "level": item.source.level}
        agrees = self.task.consistent
        return made if agrees is None else {**made, CONSISTENT: agrees(item.source, text)}

    def protocol(self) -> dict[str, Any]:
        references = [[item.source.key, item.source.target, dict(item.source.meta)] for item in self.items]
        return {
            "name": self.task.name,
            "version": VERSIONS[self.task.name],
            "split": self.task.split,
            "references": digest(references),
            "sandbox": None if self.sandbox is None else self.sandbox.record(),
        }


def check_tokenizer(spec: TaskSpec, model: Checkpoint | Denoiser) -> None:
    if model.tokenizer is None:
        raise TokenizerError(f"{model.source.name} has no tokenizer, which the task {spec.name} needs")


def as_user_turns(model: Checkpoint | Denoiser, texts: Iterable[str]) -> list[str]:
    """Each text as the one turn of a user, in the model's chat template."""
    return [render_chat(model.tokenizer, [{"role": "user", "content": text}]) for text in texts]


def _reason(item: Item, text: str, correct: bool) -> str:
    if correct:
        return "solved"
    if not text.strip():
        return "empty"
    return "no answer" if item.task == "mini-math" and final_answer(text) is None else "wrong"


def load_eval_task(spec: TaskSpec, model: Checkpoint | Denoiser) -> EvalTask:
    """A built-in task or a benchmark by name, or a file of problems; its prompts written for this model."""
    if spec.name in TASKS:
        return BuiltinTask.of(spec, model)
    if is_file(spec.name):
        from softdlm.evaluate.file_task import FileTask

        return FileTask.of(spec, model)
    try:
        from softdlm.evaluate.benchmarks import load_benchmark
    except ImportError as error:
        raise UsageError(f"task {spec.name!r} needs pip install 'softdlm[eval]' ({error})") from error
    return load_benchmark(
        spec.name,
        model,
        data_dir=spec.data_dir,
        limit=spec.limit,
        allow_unsandboxed=spec.allow_unsandboxed,
        math500=spec.math500,
    )
