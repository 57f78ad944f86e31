"""The benchmarks for our own runner: prompts and scores out of the same lm-eval task objects as the harness.

benchmark = load_benchmark("gsm8k", model, limit=100)
for item in benchmark.items:
    answer = generate(model, item.prompt, chat=False, stop=item.stop, max_new_tokens=benchmark.max_new_tokens, ...)
    benchmark.score(item, answer.text)["correct"]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softdlm.decoding import EosPolicy
from softdlm.errors import TokenizerError, UsageError
from softdlm.evaluate.benchmark_data import PREFIX, TASKS, digest, find_folder
from softdlm.evaluate.fingerprint import request_number
from softdlm.evaluate.readings import READINGS
from softdlm.records.canonical import content_digest
from softdlm.tasks.consistency import CONSISTENT

if TYPE_CHECKING:
    from softdlm.evaluate.harness_task import BenchmarkTask

_FEWSHOT_SEED = 1234
"""lm-eval's default, for the tasks that draw their shots."""
_DECODING = ("temperature", "top_p", "rank")


@dataclass(frozen=True)
class BenchmarkItem:
    id: str
    prompt: str
    """The whole text, chat template applied: `generate(..., chat=False)`."""
    stop: tuple[str, ...]
    request: int
    """The number for `generate(requests=...)`, so that draws do not depend on the place in a run."""
    doc: Mapping[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark in one reading: prompts, limits, scores, and a record of all that."""

    name: str
    items: tuple[BenchmarkItem, ...]
    task: BenchmarkTask
    template: str

    def __len__(self) -> int:
        return len(self.items)

    @property
    def max_new_tokens(self) -> int:
        return self._generation["max_gen_toks"]

    @property
    def eos(self) -> EosPolicy:
        """The task file's policy for EOS ids."""
        return self._generation["eos"]

    @property
    def decoding(self) -> dict[str, Any]:
        """What the reading says beyond length and EOS: Dream's temperature, top_p and rank."""
        return {name: self._generation[name] for name in _DECODING if name in self._generation}

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(entry["metric"] for entry in self.task.config.metric_list or ())

    def score(self, item: BenchmarkItem, text: str) -> dict[str, Any]:
        """`correct`, `reason`, and each of `metrics`."""
        return self.task.score(item.doc, text)

    def score_all(self, items: Sequence[BenchmarkItem], texts: Sequence[str], workers: int | None = None) -> list[dict]:
        """Scores in order; programs run side by side."""
        return self.task.score_all([item.doc for item in items], texts, workers)

    def reference(self, item: BenchmarkItem) -> str:
        """The data's own solution as this reading expects it: a perfect model's answer."""
        return self.task.reference(item.doc)

    def protocol(self) -> dict[str, Any]:
        """Every setting that a verdict depends on; whether answers agree with themselves is no verdict."""
        sandbox = self.task.sandbox
        return {
            **self.task.protocol,
            "task": self.task.task_name,
            "task_version": self.task.VERSION,
            "shots": self.task.config.num_fewshot,
            "items": len(self.items),
            "defaults": {"max_new_tokens": self.max_new_tokens, "eos": self.eos, **self.decoding},
            "stop": list(self._generation["until"]),
            "metrics": [name for name in self.metrics if name != CONSISTENT],
            "chat_template": content_digest(self.template),
            "prompts": digest({"prompt": item.prompt} for item in self.items),
            "data": self._data_digest,
            "sandbox": None if sandbox is None else sandbox.record(),
            "versions": {name: version(name) for name in ("lm_eval", "math_verify", "sympy", "antlr4-python3-runtime")},
        }

    @property
    def _generation(self) -> dict[str, Any]:
        return self.task.config.generation_kwargs or {}

    @cached_property
    def _data_digest(self) -> str:
        return digest(row for split in sorted(self.task.dataset) for row in self.task.dataset[split])


def benchmark_names() -> tuple[str, ...]:
    """Every reading, by the name of its task file."""
    return tuple(sorted(file.stem.replace("_", "-") for file in TASKS.glob("[!_]*.yaml")))


def load_benchmark(
    name: str,
    tokenizer_or_model: Any,
    *,
    data_dir: str | Path | None = None,
    limit: int | None = None,
    allow_unsandboxed: bool = False,
    math500: str = READINGS["math500"].values[0],
) -> Benchmark:
    """A benchmark in one reading, with prompts in the chat template of this model.

    Data come from `data_dir`, from the folder SOFTDLM_DATA names, or from the hub. `limit` takes the first items. Code
    benchmarks need a sandbox; allow_unsandboxed runs programs without one where there is none. `math500` is the
    headline score of MATH-500: exact-match or math-verify.
    """
    if name not in benchmark_names():
        raise UsageError(f"unknown benchmark {name!r}: one of {', '.join(benchmark_names())}")
    if limit is not None and limit < 1:
        raise UsageError(f"limit must be at least 1, not {limit}")
    tokenizer = getattr(tokenizer_or_model, "tokenizer", tokenizer_or_model)
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise TokenizerError(f"benchmark {name} needs a tokenizer with a chat template, not {tokenizer_or_model!r}")
    find_folder(data_dir)
    task = _load_task(name, data_dir, {"allow_unsandboxed": allow_unsandboxed, "math500": math500})
    items = _build(task, tokenizer, limit)
    return Benchmark(name, items, task, tokenizer.chat_template)


def _load_task(name: str, data_dir: str | Path | None, said: dict[str, Any]) -> BenchmarkTask:
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise UsageError(f"benchmark {name} needs lm-evaluation-harness: pip install 'softdlm[eval]'") from error
    said = said if data_dir is None else {**said, "data_dir": str(data_dir)}
    manager = TaskManager(include_path=str(TASKS), include_defaults=False, metadata=said)
    task: Any = manager.load([PREFIX + name.replace("-", "_")])["tasks"]
    (found,) = task.values()
    found.set_fewshot_seed(_FEWSHOT_SEED)
    return found


def _build(task: BenchmarkTask, tokenizer: Any, limit: int | None) -> tuple[BenchmarkItem, ...]:
    from softdlm.evaluate.harness_task import render

    template = partial(render, tokenizer)
    task.build_all_requests(
        limit=limit, apply_chat_template=True, fewshot_as_multiturn=task.turns, chat_template=template
    )
    return tuple(_item(task, index, instance) for index, instance in enumerate(task.instances))


def _item(task: BenchmarkTask, index: int, instance: Any) -> BenchmarkItem:
    prompt, said = instance.args
    own = instance.doc.get("task_id", instance.doc.get("unique_id", f"test/{index}"))
    name = task.protocol["benchmark"]
    return BenchmarkItem(f"{name}/{own}", prompt, tuple(said["until"]), request_number(prompt, "0"), instance.doc)
