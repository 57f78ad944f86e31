"""Runs of lm-eval that several tests read."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.conftest import BENCHMARKS
from tests.tokenizers import checkpoint

MODELS = ("builtin", "llada", "dream", "llada2")
PAPER = {
    "llada": ("gsm8k", "math500", "humaneval", "mbpp"),
    "dream": ("gsm8k-dream", "math500-dream", "humaneval-dream", "mbpp-dream"),
}
UNJAILED: dict[str, Any] = {"allow_unsandboxed": True}
"""The programs of these tests are our own, or a random network's."""
WORDS: dict[str, Any] = {
    "feedback": "slerp", "k": "2", "lam": 0.3, "commit": "topn(4)", "max_new_tokens": 8, "device": "cpu",
}  # fmt: skip


@cache
def folder(model: str) -> str:
    return "builtin" if model == "builtin" else str(checkpoint(Path(mkdtemp()), model))


def benchmarks(model: str) -> tuple[str, ...]:
    return PAPER["dream" if model == "dream" else "llada"]


def adapter(model: str, **words: Any) -> Any:
    from softdlm.evaluate.harness import SoftDLM

    return SoftDLM(**{"pretrained": folder(model), "max_length": 4096, **WORDS, **words})


def task_manager() -> Any:
    from lm_eval.tasks import TaskManager

    from softdlm.evaluate.benchmark_data import TASKS

    said: dict[str, Any] = {"data_dir": str(BENCHMARKS), **UNJAILED}
    return TaskManager(include_path=str(TASKS), include_defaults=False, metadata=said)


def evaluate(lm: Any, names: tuple[str, ...], limit: int = 1, turns: bool = False, **more: Any) -> Any:
    from lm_eval.evaluator import simple_evaluate

    run: Any = simple_evaluate
    return run(
        model=lm,
        tasks=["softdlm_" + name.replace("-", "_") for name in names],
        task_manager=task_manager(),
        limit=limit,
        apply_chat_template=True,
        fewshot_as_multiturn=turns,
        confirm_run_unsafe_code=True,
        bootstrap_iters=0,
        **more,
    )


@cache
def paper_run(model: str) -> Any:
    """The four benchmarks of the paper, one made-up item each."""
    return evaluate(adapter(model), benchmarks(model))
