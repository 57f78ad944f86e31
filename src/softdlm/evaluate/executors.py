"""Where cells are decoded. An executor takes work and yields finished samples; it never touches the disk.

`LocalExecutor` holds one model at a time in this process. Another one (a cluster's) may hold many, take works as they
come, split them along `batches`, and yield samples in any order: the runner files them by key.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from softdlm.errors import SoftDLMError, UsageError
from softdlm.evaluate.cell import Cell, ModelSpec, TaskSpec
from softdlm.evaluate.fingerprint import request_number
from softdlm.evaluate.grid import prompt_lengths
from softdlm.evaluate.task import EvalTask, load_eval_task
from softdlm.generation import Generation, Prompt, generate
from softdlm.models.denoiser import Denoiser
from softdlm.records.canonical import content_digest
from softdlm.records.journal import Sample, prompt_digest


class Work(NamedTuple):
    """Items of one cell that are still to be answered."""

    key: str
    cell: Cell
    items: tuple[str, ...]
    model: Mapping[str, Any]
    """The record of the checkpoint that the plan was made with: no other one may answer."""
    passes: float = 0.0
    """Expected of the answers that one model gives, each decoded alone."""


class Failure(NamedTuple):
    """Why a work, or what was left of it, was given up."""

    reason: str
    trace: str = ""
    """Where it was unexpected."""

    @staticmethod
    def of(error: Exception) -> Failure:
        if isinstance(error, SoftDLMError):
            return Failure(str(error))
        if "OutOfMemory" in type(error).__name__:
            return Failure("out of memory on the device: take a smaller --batch-size")
        return Failure(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))


@runtime_checkable
class Executor(Protocol):
    def run(self, works: Iterable[Work]) -> Iterator[tuple[str, Sample | Failure]]:
        """Pull works as there is room for them; yield (key, sample) for each item, or (key, failure)."""
        ...

    def record(self, cell: Cell) -> Mapping[str, Any]:
        """How and where, for the manifest."""
        ...


@dataclass
class LocalExecutor:
    """Cells one after another in this process.

    batch_size None is 32 on a GPU. A CPU takes each row by itself, as many at a time as torch has threads: four
    rows a thread keep them busy when some finish early, and with one thread nothing is gained by a batch.
    """

    batch_size: int | None = None
    _held: dict[Any, Any] = field(default_factory=dict, repr=False)
    _known: Mapping[str, Any] | None = field(default=None, repr=False)
    """The record that the model held was found to fit."""

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, not {self.batch_size}")

    def run(self, works: Iterable[Work]) -> Iterator[tuple[str, Sample | Failure]]:
        for work in works:
            try:
                for sample in self._answers(work):
                    yield work.key, sample
            except Exception as error:
                yield work.key, Failure.of(error)

    def record(self, cell: Cell) -> dict[str, Any]:
        return {"executor": "local", "batch_size": self._size(cell.model), "engine": cell.model.engine}

    def _size(self, spec: ModelSpec) -> int:
        threads = torch.get_num_threads()
        return self.batch_size or (32 if spec.device != "cpu" else 1 if threads == 1 else min(32, 4 * threads))

    def _answers(self, work: Work) -> Iterator[Sample]:
        model, size = self.model(work.cell.model, work.model), self._size(work.cell.model)
        task, lengths = self.task(work.cell.task, model)
        with model.expecting(work.passes / size):
            for batch in batches(task, lengths, size, set(work.items)):
                yield from answer(model, task, work.cell, batch)

    def model(self, spec: ModelSpec, record: Mapping[str, Any] | None = None) -> Denoiser:
        """The last model asked for stays; another one takes its place. With a record, only the checkpoint it is of."""
        if spec not in self._held:
            self._held.clear()
            self._held[spec], self._known = warm_up(spec.load(record)), record
        elif record is not None and record != self._known:
            spec.check(self._held[spec], record)
            self._known = record
        return self._held[spec]

    def keep(self, spec: ModelSpec, model: Denoiser) -> None:
        """Use a model that is loaded already."""
        self._held[spec] = model

    def task(self, spec: TaskSpec, model: Denoiser) -> tuple[EvalTask, dict[str, int]]:
        """The task with this model's prompts, and their lengths."""
        if spec not in self._held:
            task = load_eval_task(spec, model)
            self._held[spec] = task, prompt_lengths(model.tokenizer, task)
        return self._held[spec]


def warm_up(model: Denoiser) -> Denoiser:
    """Decode one token, so that the first sample's seconds do not include the start of the device."""
    with suppress(SoftDLMError):
        generate(model, [next(iter(model.eos_ids), 0)], max_new_tokens=1)
    return model


def batches(task: EvalTask, lengths: Mapping[str, int], size: int, wanted: set[str]) -> Iterator[list[Any]]:
    """Items of like length together, the longest first; the batches are those of the whole task, less what is done.

    So a resumed run has the batches of an uninterrupted one, and memory runs out at once or never.
    """
    items = sorted(task.items, key=lambda item: (tuple(item.stop), -lengths[item.id], item.id))
    for start in range(0, len(items), size):
        together = items[start : start + size]
        for stop in dict.fromkeys(tuple(item.stop) for item in together):
            batch = [item for item in together if tuple(item.stop) == stop and item.id in wanted]
            if batch:
                yield batch


def answer(model: Denoiser, task: EvalTask, cell: Cell, items: Sequence[Any]) -> Iterator[Sample]:
    """Decode one batch, then give the verdicts one by one; programs are run side by side."""
    prompts: list[Prompt] = [item.prompt for item in items]
    start = time.perf_counter()
    answers = generate(
        model,
        prompts,
        chat=False,
        batch_size=len(items),
        requests=[request_number(item.prompt, "0") for item in items],
        decoding=[replace(cell.decoding, stop=tuple(item.stop)) for item in items],
    )
    seconds = time.perf_counter() - start
    passes = sum(each.forwards for each in answers)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = pool.map(task.score, items, [each.text for each in answers])
        for item, each, verdict in zip(items, answers, verdicts, strict=True):
            yield sample_of(item, each, seconds * each.forwards / passes, verdict)


def sample_of(item: Any, made: Generation, seconds: float, verdict: Mapping[str, Any]) -> Sample:
    extra = {name: value for name, value in verdict.items() if name not in ("correct", "reason")}
    return Sample(
        id=item.id,
        prompt_digest=prompt_digest(item.prompt),
        text=made.text,
        ids_digest=content_digest(" ".join(map(str, made.ids)), length=16),
        forwards=made.forwards,
        tokens=len(made.ids),
        seconds=round(seconds, 6),
        finish=made.finish_reason,
        correct=bool(verdict["correct"]),
        reason=str(verdict["reason"]),
        extra=extra,
    )
