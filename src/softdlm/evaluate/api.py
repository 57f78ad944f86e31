"""`softdlm.evaluate`: the evaluation of the command line as a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softdlm.decoding import Decoding
from softdlm.errors import SoftDLMError, UsageError
from softdlm.evaluate.cell import ModelSpec, TaskSpec
from softdlm.evaluate.executors import LocalExecutor
from softdlm.evaluate.grid import Grid, plan
from softdlm.evaluate.readings import Readings
from softdlm.evaluate.run import Progress, run
from softdlm.evaluate.summary import Result, rows, tables
from softdlm.models.denoiser import Denoiser
from softdlm.models.load import FAMILIES
from softdlm.records.journal import MANIFEST
from softdlm.report.row_tables import table


@dataclass(frozen=True)
class Evaluation:
    """The results of `evaluate`; printing it shows the table of `softdlm eval`."""

    rows: tuple[dict[str, Any], ...]
    """One dictionary per cell: method, rate, accuracy, interval, p, recovery, passes, and more."""
    folders: tuple[Path, ...]
    """Where each cell's answers are kept."""

    def __str__(self) -> str:
        return "\n".join(
            "\n".join([table(each.rows, 100, each.title).plain, *each.notes]) for each in tables(self.rows)
        )


def evaluate(
    model: str | Path | Denoiser,
    task: str | Sequence[str],
    decodings: Decoding | Mapping[str, Any] | Sequence[Decoding | Mapping[str, Any]],
    *,
    limit: int | None = None,
    split: str = "test",
    out: str | Path = "results",
    single: bool = False,
    recipe: str | None = None,
    readings: Readings | Mapping[str, Any] | Sequence[str] = (),
    batch_size: int | None = None,
    data_dir: str | None = None,
    allow_unsandboxed: bool = False,
    progress: Callable[[Progress], None] = lambda now: None,
) -> Evaluation:
    """Evaluate Decodings on a task, resumably: the cells, journals and table of `softdlm eval`.

    A Decoding may be given as its fields: `{"feedback": "slerp", "tokens_per_step": 4}`; what it leaves out is filled
    from the recipe (`"paper"`), the task and the checkpoint. `single` adds vanilla at one token a step, for recovery
    rates. `readings` say how the paper is read: `["dream=dream-greedy"]`.
    """
    executor = LocalExecutor(batch_size)
    spec = model_spec(model, executor)
    given = [decodings] if isinstance(decodings, Decoding | Mapping) else decodings
    chosen = tuple(each if isinstance(each, Decoding) else Decoding.from_json(each) for each in given)
    names = [task] if isinstance(task, str) else task
    specs = tuple(TaskSpec(name, split, limit, data_dir, allow_unsandboxed) for name in names)
    planned = plan(Grid((spec,), specs, chosen, recipe, Readings.of(readings), single))
    failures = run(planned, Path(out), executor, progress)
    lines = [f"{each.cell}: {failures[each.key].reason}" for each in planned.cells if each.key in failures]
    if lines or planned.failures:
        raise SoftDLMError("; ".join((*planned.failures, *lines)))
    folders = tuple(Path(out) / each.key for each in planned.cells)
    return Evaluation(tuple(rows([Result.read(each) for each in folders if (each / MANIFEST).exists()])), folders)


def model_spec(model: str | Path | Denoiser, executor: LocalExecutor) -> ModelSpec:
    """How the model is loaded; one that is loaded already stays."""
    if isinstance(model, str | Path):
        return ModelSpec.of(str(model))
    if model.source.family not in FAMILIES:
        raise UsageError(
            f"{model.source.name} was not loaded from a checkpoint, so its answers cannot be filed under its weights: "
            "give a name, a folder or a model from softdlm.load"
        )
    spec = ModelSpec.of(
        model.source.name,
        device=str(model.device),
        dtype=model.precision,
        revision=model.source.revision,
        mask_id=model.mask_id,
        eos_ids=model.eos_ids,
        attention=getattr(model, "attention", "auto"),
        settings=model.own,
        engine=model.engine,
    )
    executor.keep(spec, model)
    return spec
