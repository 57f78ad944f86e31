"""Run a plan: open the cells, hand out what is missing, file what comes back."""

from __future__ import annotations

import math
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from softdlm.commit import Steps, TopN
from softdlm.decoding import Decoding
from softdlm.evaluate.cell import Cell
from softdlm.evaluate.executors import Executor, Failure, Work
from softdlm.evaluate.grid import Plan, Planned
from softdlm.evaluate.summary import summarise
from softdlm.records.files import ready_folder
from softdlm.records.journal import SAMPLES, SUMMARY, Journal, Sample, fits, read_samples
from softdlm.report.progress import clock, progress_line
from softdlm.rival_commit import TopNEps
from softdlm.version import __version__
from softdlm.wrapped_commit import HardOnly, LeadIn

PACKAGES = ("torch", "transformers", "tokenizers", "lm-eval", "math-verify", "sympy")
ADAPTIVE = 4
"""Tokens a pass that are expected of a rule whose rate depends on the prediction."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands after a sample."""

    label: str
    cell: int
    cells: int
    done: int
    items: int
    correct: int
    items_per_second: float
    seconds_left: float

    def __str__(self) -> str:
        return self.line()

    def line(self, width: int | None = None) -> str:
        """At most `width` characters, which never cost the time left."""
        speed = [f"{self.items_per_second:.2f} items/s"] if width is None or width >= 100 else []
        facts = [
            f"cell {self.cell}/{self.cells}",
            f"{self.done}/{self.items}",
            f"{100 * self.correct / self.done:.1f} % right",
            *speed,
            f"{clock(self.seconds_left)} left",
        ]
        return progress_line(self.done / self.items, self.label, *facts, width=width)


Report = Callable[[Progress], None]


@dataclass
class Run:
    """A plan being carried out in a folder of results."""

    plan: Plan
    out: Path
    executor: Executor
    report: Report
    journals: dict[str, Journal] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    pace: Pace = field(default_factory=lambda: Pace())

    def __post_init__(self) -> None:
        self.cells = {each.key: each for each in self.plan.cells}
        self.left = {key: 0 if self.is_finished(key) else len(each.items) for key, each in self.cells.items()}

    def is_finished(self, key: str) -> bool:
        """Whether there is a summary, and every item it was made of is still there, and nothing else."""
        folder, prompts = self.out / key, prompts_of(self.cells[key])
        if not (folder / SUMMARY).exists():
            return False
        samples = read_samples(folder / SAMPLES)[0]
        return set(prompts) == set(samples) and all(fits(each, prompts) for each in samples.values())

    def works(self) -> Iterator[Work]:
        """What is missing, cell by cell; a cell is opened when an executor asks for it, and not before."""
        for key, planned in self.cells.items():
            if self.is_finished(key):
                continue
            journal = Journal(self.out / key, planned.protocol, planned.cell.labels, prompts_of(planned))
            self.journals[key] = journal
            missing = tuple(item for item in planned.items if item not in journal.samples)
            self.left[key] = len(missing)
            if missing:
                cell = with_engine(planned.cell, journal.last)
                journal.begin(session(self.executor, cell))
                yield work_of(planned, cell, missing)
            else:
                self.finish(key)

    def file(self, key: str, result: Sample | Failure) -> None:
        if isinstance(result, Failure):
            self.failures.setdefault(key, result)
            return
        self.journals[key].append(result)
        self.left[key] -= 1
        self.pace.add(self.cells[key])
        self.report(self._progress(key))
        if self.left[key] == 0:
            self.finish(key)

    def finish(self, key: str) -> None:
        with self.journals.pop(key) as journal:
            journal.finish(summarise(list(journal.samples.values())))

    def close(self) -> None:
        while self.journals:
            self.journals.popitem()[1].close()

    def _progress(self, key: str) -> Progress:
        planned, samples = self.cells[key], self.journals[key].samples
        passes_left = sum(expected_passes(self.cells[each].cell.decoding) * n for each, n in self.left.items())
        return Progress(
            label=str(planned.cell),
            cell=list(self.cells).index(key) + 1,
            cells=len(self.cells),
            done=len(samples),
            items=len(planned.items),
            correct=sum(sample.correct for sample in samples.values()),
            items_per_second=self.pace.items / self.pace.seconds,
            seconds_left=passes_left * self.pace.seconds / self.pace.passes,
        )


def prompts_of(planned: Planned) -> dict[str, str | None]:
    """The items of a cell, each with the digest of its prompt where the plan has one."""
    return {item: planned.prompts.get(item) for item in planned.items}


@dataclass
class Pace:
    """Items and expected passes since the run began; a time left is a guess from them."""

    began: float = field(default_factory=time.monotonic)
    items: int = 0
    passes: float = 0.0

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.began, 1e-6)

    def add(self, planned: Planned) -> None:
        self.items += 1
        self.passes += expected_passes(planned.cell.decoding)


def work_of(planned: Planned, cell: Cell, items: tuple[str, ...]) -> Work:
    """What an executor is asked: these items of a planned cell."""
    return Work(planned.key, cell, items, planned.protocol["model"], len(items) * expected_passes(cell.decoding))


def expected_passes(decoding: Decoding) -> float:
    """Of an item: exact for n a step or a number of steps without an early end, else a quarter of the canvas.

    A rule that chooses among fewer positions than its inner rule is taken for that rule.
    """
    rule, canvas = decoding.rules[0], decoding.max_new_tokens or 1
    while isinstance(rule, LeadIn | HardOnly):
        rule = rule.then
    block = decoding.block_length or canvas
    blocks = [min(block, canvas - start) for start in range(0, canvas, block)]
    if isinstance(rule, TopN | TopNEps):
        return sum(math.ceil(masks / rule.n) for masks in blocks)
    if isinstance(rule, Steps):
        return sum(rule.steps if rule.schedule == "eps" else min(rule.steps, masks) for masks in blocks)
    return max(1.0, canvas / ADAPTIVE)


def run(plan: Plan, out: Path, executor: Executor, report: Report = lambda progress: None) -> dict[str, Failure]:
    """Answer what is missing and finish the cells; returns the failures by key.

    A disk that refuses and a cell that another process holds end the run at once; a failing model or item costs its
    cell only. Whatever ends it, every sample that was reported is on disk, and the same call resumes from there.
    """
    ready_folder(out)
    running = Run(plan, out, executor, report)
    try:
        for key, result in executor.run(running.works()):
            running.file(key, result)
    finally:
        running.close()
    return running.failures


def with_engine(cell: Cell, last: Mapping[str, Any]) -> Cell:
    """A cell that names no engine goes on with that of its last session."""
    engine = last.get("engine", "auto") if cell.model.engine == "auto" else cell.model.engine
    return cell if engine == cell.model.engine else replace(cell, model=replace(cell.model, engine=engine))


def session(executor: Executor, cell: Cell) -> dict[str, Any]:
    """When, by whom, with what and where: for the manifest."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        **executor.record(cell),
        "versions": {"softdlm": __version__, "python": platform.python_version(), **versions()},
        "hardware": hardware(),
    }


def hardware() -> dict[str, Any]:
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "machine": platform.machine(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": gpus,
    }


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
