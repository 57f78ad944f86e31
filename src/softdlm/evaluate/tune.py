"""`softdlm tune`: the decoding settings that suit a model on a task, found by a race within a budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from softdlm.commit import CommitRule
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.evaluate.api import model_spec
from softdlm.evaluate.cell import ModelSpec, TaskSpec, is_file
from softdlm.evaluate.executors import Executor, LocalExecutor
from softdlm.evaluate.grid import Finder, Grid, plan, sweep
from softdlm.evaluate.race import Goal
from softdlm.evaluate.racing import Course, Race, Report, Store, most_passes
from softdlm.evaluate.tuned import Tuned, conclude, settings_file
from softdlm.feedback import FeedbackRule
from softdlm.models.denoiser import Denoiser
from softdlm.records.files import check_replaceable, ready_folder, write_json, write_text
from softdlm.report.figures import frontiers
from softdlm.tasks import TASKS

FEEDBACK = ("vanilla", "slerp", "alternate(slerp)", "no_eos(alternate(slerp))")
COMMIT = ("entropy(0.02)", "entropy(0.1)", "entropy(0.3)", "threshold(0.95)")
KS = (1, 3)
LAMS = (0.3, 0.4, 0.5)
ITEMS, BUDGET, ALPHA, WITHIN = 200, 40_000, 0.05, 1.0
REFERENCE_SHARE = 3
"""One token at a time may take one part in this many of the budget."""
CELLS, SETTINGS, TABLE, FIGURE = "cells", "settings.json", "table.md", "frontier.svg"


@dataclass(frozen=True)
class Search:
    """What is tuned, on what, for what goal, at what cost."""

    model: ModelSpec
    task: TaskSpec
    """Without a limit; `items` is one."""
    goal: Goal
    base: Decoding = field(default_factory=Decoding)
    """The fields that all settings share."""
    feedback: tuple[str | FeedbackRule, ...] = FEEDBACK
    commit: tuple[str | CommitRule, ...] | None = None
    """None: those of the table above, and with a number of passes also fixed rates that keep to it."""
    ks: tuple[int, ...] = KS
    lams: tuple[float, ...] = LAMS
    items: int | None = None
    budget: int = BUDGET
    alpha: float = ALPHA

    def __post_init__(self) -> None:
        if self.items is not None and self.items < 1:
            raise UsageError(f"items must be at least 1, not {self.items}")
        if self.budget < 1:
            raise UsageError(f"budget must be at least 1 forward pass, not {self.budget}")
        if not 0 <= self.alpha <= 0.5:
            raise UsageError(f"alpha must lie between 0 and 0.5, not {self.alpha}")
        self.grid(self.task, 64)  # every value is tried once, before a checkpoint is looked for

    def grid(self, task: TaskSpec, canvas: int) -> Grid:
        """All settings on these items, the reference first: vanilla, one token at a time."""
        commits = self.commit or (*COMMIT, *fixed_rates(self.goal, self.base, canvas))
        return Grid((self.model,), (task,), sweep(self.base, self.feedback, commits, self.ks, self.lams))

    @property
    def most(self) -> int | None:
        """Items at most: of a file all of them, unless a number is given."""
        return self.items or (None if is_file(self.task.name) else ITEMS)


def task_of(name: str, **more: Any) -> TaskSpec:
    """A task to tune on: the validation items of a built-in one, whose test items stay unseen."""
    return replace(TaskSpec(name, "validation" if name in TASKS else "test"), **more)


def fixed_rates(goal: Goal, base: Decoding, canvas: int) -> tuple[str, ...]:
    """The slowest rules of a fixed rate that keep to the number of passes; none where they cannot."""
    if goal.passes is None:
        return ()
    block = min(base.block_length or canvas, canvas)
    each = int(goal.passes) // math.ceil(canvas / block)
    return (f"topn({math.ceil(block / each)})", f"steps({each}, schedule='power')") if each else ()


def lay_out(search: Search) -> Course:
    """Find model and items, and take so many items that the reference leaves most of the budget to the others."""
    finder, asked = Finder(), replace(search.task, limit=search.most)
    alone = replace(search.base, commit="topn(1)", feedback="vanilla", rank=None)
    (first,) = plan(Grid((search.model,), (asked,), (alone,), single=False), finder).cells
    there, each = len(first.items), most_passes(first.cell.decoding)
    used = min(there, search.budget // (REFERENCE_SHARE * each))
    if used < 1:
        raise UsageError(
            f"budget {search.budget} is too small: one token at a time may take {each} passes an item and a third of "
            f"the budget, so give at least {REFERENCE_SHARE * each}"
        )
    task = replace(asked, limit=used) if used < there else asked
    made = plan(search.grid(task, first.cell.decoding.max_new_tokens or 1), finder)
    return Course(made.cells, tuple(_notes(search, used, there, each)))


def _notes(search: Search, used: int, there: int, each: int) -> Iterator[str]:
    if used < there:
        yield (
            f"One token at a time may take {each} passes an item and a third of the budget: {used} of {there} items "
            f"are used. All of them need --budget {REFERENCE_SHARE * each * there}."
        )
    if search.task.name not in TASKS and not is_file(search.task.name):
        yield (
            f"{search.task.name} has test items only: settings are chosen on them, so its test results with these "
            "settings are no longer those of unseen items."
        )


def tune(
    model: str | Path | Denoiser,
    task: str = "mini-math",
    *,
    within: float | None = None,
    passes: float | None = None,
    feedback: Sequence[str | FeedbackRule] = FEEDBACK,
    commit: Sequence[str | CommitRule] | None = None,
    k: Sequence[int] = KS,
    lam: Sequence[float] = LAMS,
    decoding: Decoding | Mapping[str, Any] | None = None,
    items: int | None = None,
    budget: int = BUDGET,
    alpha: float = ALPHA,
    batch_size: int | None = None,
    data_dir: str | None = None,
    allow_unsandboxed: bool = False,
    out: str | Path = "tuned",
    progress: Report = lambda standing: None,
) -> Tuned:
    """Find the decoding settings that suit a model on a task, resumably: the race and the files of `softdlm tune`.

    `within` asks for the fewest passes within that many points of accuracy of one token at a time (1 by default),
    `passes` for the best accuracy in at most that many mean passes. `feedback`, `commit`, `k` and `lam` are the
    settings that run, `decoding` holds what all of them share. The result's `settings` is a file for
    `softdlm.load(..., settings=)`.
    """
    executor = LocalExecutor(batch_size)
    shared = decoding if isinstance(decoding, Decoding) else Decoding.from_json(decoding or {})
    search = Search(
        model_spec(model, executor),
        task_of(task, data_dir=data_dir, allow_unsandboxed=allow_unsandboxed),
        Goal(WITHIN if within is None and passes is None else within, passes),
        shared, tuple(feedback), None if commit is None else tuple(commit), tuple(k), tuple(lam), items, budget, alpha,
    )  # fmt: skip
    return carry_out(search, executor, Path(out), progress)


def carry_out(search: Search, executor: Executor, out: Path, report: Report) -> Tuned:
    """Lay out the race, run it and write what it found; everything is checked before the weights are read."""
    course = lay_out(search)
    ready_folder(out / CELLS)
    for name in (SETTINGS, TABLE, FIGURE):
        check_replaceable(out / name)
    race = Race(course, Store(out / CELLS, executor), search.goal, search.budget, search.alpha, report)
    race.run()
    about = {"model": search.model.name, "task": search.task.name, "split": search.task.split}
    drawn = find_spec("matplotlib") is not None
    notes = course.notes if drawn else (*course.notes, "No figure: it needs matplotlib, pip install 'softdlm[plots]'.")
    tuned = conclude(race, about, notes, out / SETTINGS)
    write_text(out / TABLE, tuned.markdown())
    if tuned.settings is not None:
        write_json(tuned.settings, settings_file(tuned, race, search.base))
    else:
        (out / SETTINGS).unlink(missing_ok=True)  # of an earlier search
    if drawn:
        panels, held = tuned.panels()
        frontiers(panels, out / FIGURE, ylabel="% of answers (95 % interval)", held=held)
    return tuned
