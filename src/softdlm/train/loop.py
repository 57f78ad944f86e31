"""The training loop: from a recipe to a checkpoint folder with its card (training.json)."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from softdlm.errors import SoftDLMError, UsageError
from softdlm.models.load import BUILTIN, load
from softdlm.records.files import ready_folder, write_json, write_text
from softdlm.records.lines import Lines, read_lines
from softdlm.records.rebuild import rebuild
from softdlm.train.batches import read_tokens, stream_examples, to_device
from softdlm.train.examples import ExampleMaker, Examples, Tokens
from softdlm.train.export import CARD, export
from softdlm.train.loss import arguments, network_loss, noise
from softdlm.train.recipe import Recipe
from softdlm.train.student import STATE, Student, TrainingProgress
from softdlm.train.validate import validate
from softdlm.version import __version__

METRICS = "metrics.jsonl"
PROBE = 100
"""Steps used to measure the speed that turns `minutes` into steps; the first fifth, with compilation, is not timed."""
GRACE = 1.1
"""A run is stopped when it takes this many times its `minutes`, even if its schedule is not finished."""
LOG_SECONDS = 1.0
BATCH_SIZES = {"cuda": 256, "cpu": 16}
"""Prompts decoded at once in validation."""

Say = Callable[[str], None]
OnMetrics = Callable[[dict[str, Any]], None]
"""Called about once a second with the latest metrics."""


@dataclass(frozen=True)
class Metric:
    """How a run stands: a line of metrics.jsonl."""

    step: int
    steps: int
    loss: float
    lr: float
    items_per_second: float
    seconds: float
    seconds_left: float


@dataclass(frozen=True)
class Run:
    """Where and how a recipe is trained. Apart from `minutes`, nothing here changes what is learnt."""

    out: Path
    device: torch.device
    workers: int = 0
    compile: bool = True
    """Compile the loss on a GPU; ignored on a CPU."""
    minutes: float | None = None
    """Train for about this long: the number of steps follows from the measured speed instead of the recipe."""
    resume: bool = False
    save_seconds: float = 60.0
    validation_items: int = 64

    def __post_init__(self) -> None:
        if self.minutes is not None and not self.minutes > 0:
            raise UsageError(f"minutes must be above 0, not {self.minutes}")
        if not self.save_seconds >= 0:
            raise UsageError(f"save_seconds must be at least 0, not {self.save_seconds}")
        if self.workers < 0:
            raise UsageError(f"workers must be 0 (examples are made in this process) or more, not {self.workers}")
        if self.validation_items < 0:
            raise UsageError(f"validation_items must be 0 (no validation) or more, not {self.validation_items}")


def train(recipe: Recipe, run: Run, say: Say = print, report: OnMetrics = lambda metrics: None) -> dict[str, Any]:
    """Train, export and validate. Returns the card, which is also written to the folder."""
    if run.minutes is not None and recipe.warmup < PROBE // 5:
        raise UsageError(
            f"minutes needs a warmup of at least {PROBE // 5} steps, in which speed is measured, not {recipe.warmup}"
        )
    tokens = read_tokens(BUILTIN)
    config = recipe.config(tokens.size, tokens.mask_id, tokens.eos_id)
    student = Student(recipe, config, run.device)
    progress = _begin(student, run)
    size = sum(weight.numel() for weight in student.weights.values())
    say(f"{size:,} parameters ({2 * size / 1e6:.1f} MB in bfloat16) on {device_name(run.device)}")
    if progress.step:
        say(f"resumed at step {progress.step} of {progress.steps}")
    progress = _train_steps(student, run, tokens, progress, say, report)
    card = _card(student, run, progress) | {
        "parameters": size,
        "weights_sha256": export(run.out, config, student.best_weights(), BUILTIN),
        "validation": [],
    }
    write_json(run.out / CARD, card)
    (run.out / STATE).unlink(missing_ok=True)
    if run.validation_items:
        card["validation"] = _validate(recipe, run, say)
        write_json(run.out / CARD, card)
    return card


def _begin(student: Student, run: Run) -> TrainingProgress:
    """Progress at step 0 in an empty folder, or at the state saved in the folder."""
    ready_folder(run.out)
    metrics = run.out / METRICS
    if run.resume:
        progress = student.restore(run.out)
        lines = read_lines(metrics, partial(rebuild, Metric))[0] if metrics.exists() else []
        _write_metrics(metrics, [asdict(line) for line in lines if line.step <= progress.step])
        return progress
    if (run.out / STATE).exists():
        raise UsageError(f"{run.out} holds an unfinished run: give --resume to go on with it, or another --out")
    if {file.name for file in run.out.iterdir()} - {METRICS}:
        raise UsageError(f"{run.out} is not empty: give another --out")
    _write_metrics(metrics, [])  # of a run that ended before its first state was saved
    return TrainingProgress(0, student.recipe.steps, run.minutes is None, 0.0)


def _write_metrics(file: Path, lines: list[dict[str, Any]]) -> None:
    write_text(file, "".join(f"{json.dumps(line)}\n" for line in lines))


def _train_steps(
    student: Student, run: Run, tokens: Tokens, progress: TrainingProgress, say: Say, report: OnMetrics
) -> TrainingProgress:
    recipe = student.recipe
    maker = ExampleMaker(tokens, recipe.mixture, recipe.batch, recipe.seed)
    step_loss = StepLoss(student.network, recipe.seed, tokens.mask_id, run)
    clock = TrainingClock(recipe, run, progress)
    with (
        closing(stream_examples(maker, progress.step, run.workers, recipe.pool)) as batches,
        Lines(run.out / METRICS, partial(rebuild, Metric)) as metrics,
    ):
        while progress.step < progress.steps:
            loss = step_loss(next(batches), progress.step)
            student.learn(loss, progress.step, recipe.share(progress.step, progress.steps))
            progress = replace(progress, step=progress.step + 1, seconds=clock.seconds)
            if not progress.planned:
                progress = clock.plan(progress, say)
            last = progress.step == progress.steps
            if clock.is_due("log", LOG_SECONDS) or last:
                record = clock.metrics(progress, student.recent_loss(progress.step))
                metrics.write(record)
                report(record)
            if run.minutes is not None and clock.seconds > GRACE * 60 * run.minutes:
                say(f"stopped at step {progress.step} of {progress.steps}: {run.minutes:g} minutes are over")
                break
            if progress.planned and not last and clock.is_due("save", run.save_seconds):
                student.save(run.out, progress)
    return replace(progress, seconds=clock.seconds)


class StepLoss:
    """The loss of a step: copies the batch to the device, masks it with the step's own seed, calls the network."""

    def __init__(self, network: Any, seed: int, mask_id: int, run: Run) -> None:
        cuda = run.device.type == "cuda"
        self.network, self.seed, self.mask_id, self.device = network, seed, mask_id, run.device
        self.generator = torch.Generator(run.device)
        self.loss = torch.compile(network_loss, dynamic=False) if cuda and run.compile else network_loss
        self.autocast = partial(torch.autocast, run.device.type, torch.bfloat16, enabled=cuda)

    def __call__(self, rows: Examples, step: int) -> torch.Tensor:
        batch = to_device(rows, self.device)
        self.generator.manual_seed(self.seed * 1_000_003 + step)
        noised = noise(batch, self.mask_id, self.generator)
        with self.autocast():
            return self.loss(self.network, *arguments(batch, noised))


class TrainingClock:
    """Seconds spent on a run, resumed parts included; when to log and save; and how many steps fit into `minutes`."""

    def __init__(self, recipe: Recipe, run: Run, progress: TrainingProgress) -> None:
        self.recipe, self.run = recipe, run
        self.before, self.started = progress.seconds, time.perf_counter()
        self.last: dict[str, float] = {"log": self.started, "save": self.started}
        self.logged = (progress.step, progress.seconds)
        self.probe = min(PROBE, recipe.warmup)
        self.probed_from = 0.0

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.started

    def is_due(self, what: str, every: float) -> bool:
        now = time.perf_counter()
        if now - self.last[what] < every:
            return False
        self.last[what] = now
        return True

    def plan(self, progress: TrainingProgress, say: Say) -> TrainingProgress:
        """Set the schedule's length once the speed is known; the warm-up before that does not depend on the length."""
        untimed = self.probe // 5
        if progress.step not in (untimed, self.probe):
            return progress
        if self.run.device.type == "cuda":
            torch.cuda.synchronize(self.run.device)
        if progress.step == untimed:
            self.probed_from = self.seconds
            return progress
        assert self.run.minutes is not None
        pace = (self.seconds - self.probed_from) / (self.probe - untimed)
        steps = self.probe + int((60 * self.run.minutes - self.seconds) / pace)
        steps = max(steps, self.recipe.warmup + 1)
        say(f"{steps} steps at {1 / pace:.1f} a second fit into {self.run.minutes:g} minutes")
        return replace(progress, steps=steps, planned=True)

    def metrics(self, progress: TrainingProgress, loss: float) -> dict[str, Any]:
        if not isfinite(loss):
            raise SoftDLMError(f"the loss is {loss} at step {progress.step}: use a lower lr or a longer warmup")
        step, seconds = self.logged
        pace = (self.seconds - seconds) / max(progress.step - step, 1)
        self.logged = (progress.step, self.seconds)
        return asdict(
            Metric(
                step=progress.step,
                steps=progress.steps,
                loss=round(loss, 5),
                lr=self.recipe.lr * self.recipe.share(progress.step - 1, progress.steps),
                items_per_second=round(self.recipe.batch / pace, 1),
                seconds=round(self.seconds, 2),
                seconds_left=round(pace * (progress.steps - progress.step), 1),
            )
        )


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"


def _card(student: Student, run: Run, progress: TrainingProgress) -> dict[str, Any]:
    from transformers import __version__ as transformers_version

    return {
        "recipe": student.recipe.record(),
        "seed": student.recipe.seed,
        "steps": progress.step,
        "schedule_steps": progress.steps,
        "rows": progress.step * student.recipe.batch,
        "minutes": round(progress.seconds / 60, 2),
        "device": device_name(run.device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers_version,
        "softdlm": __version__,
        "final_loss": student.recent_loss(progress.step),
    }


def _validate(recipe: Recipe, run: Run, say: Say) -> list[dict[str, Any]]:
    """Validate the exported checkpoint, so that the files themselves are measured."""
    model = load(run.out, device=run.device)
    results = []
    for result in validate(model, list(recipe.mixture), run.validation_items, BATCH_SIZES[run.device.type]):
        results.append(result)
        say("{task}, {tokens_per_step} a step: {accuracy} % of {items} validation items".format(**result))
    return results
