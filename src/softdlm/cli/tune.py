"""`softdlm tune`: find the decoding settings that suit a model on a task."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softdlm import parsing
from softdlm.cli.evaluate import BatchSize, resumable
from softdlm.cli.option_tables import LOADING, RULE_LISTS, SETTINGS, Table, takes
from softdlm.cli.options import DataDir, Json, Model, Unsandboxed, loading_values, names_in, print_json
from softdlm.errors import UsageError

if TYPE_CHECKING:
    from softdlm.evaluate.racing import Standing
    from softdlm.evaluate.tuned import Tuned

LISTS: Table = {name: RULE_LISTS[name] for name in ("feedback", "commit", "k", "lam")}
TASK_HELP = "mini-math, mini-code or either-or (validation items), FILE.jsonl (prompt and answer), or a benchmark."
Task = Annotated[str, typer.Option("--task", help=TASK_HELP)]
WITHIN_HELP = "Fewest passes within this many points of accuracy of one token at a time. Default: 1."
Within = Annotated[float | None, typer.Option(help=WITHIN_HELP, metavar="POINTS")]
PASSES_HELP = "Instead: best accuracy in at most this many forward passes an answer, on average."
Passes = Annotated[float | None, typer.Option(help=PASSES_HELP, metavar="P")]
Items = Annotated[int | None, typer.Option(help="Only the first N items. Default: 200, of a file all.", metavar="N")]
BUDGET_HELP = "Forward passes at most, summed over all answers. Default: 40000."
Budget = Annotated[int | None, typer.Option(help=BUDGET_HELP, metavar="PASSES")]
Alpha = Annotated[float | None, typer.Option(help="Level of the tests that drop a setting. Default: 0.05.")]
Out = Annotated[Path, typer.Option(help="Folder for settings.json, table.md, frontier.svg and all answers.")]


@takes(lists=LISTS, words=SETTINGS, loading=LOADING)
def tune(
    lists: dict[str, str], words: dict[str, Any], loading: dict[str, Any], model: Model = "builtin",
    task: Task = "mini-math", within: Within = None, passes: Passes = None, items: Items = None,
    budget: Budget = None, alpha: Alpha = None, data_dir: DataDir = None, allow_unsandboxed: Unsandboxed = False,
    batch_size: BatchSize = None, out: Out = Path("tuned"), as_json: Json = False,
) -> None:  # fmt: skip
    """Find the decoding settings that suit a model on a task, and write them to a file that --settings takes.

    Resumable: run the same command again.
    """
    from softdlm.decoding import Decoding
    from softdlm.evaluate.cell import ModelSpec
    from softdlm.evaluate.executors import LocalExecutor
    from softdlm.evaluate.race import Goal
    from softdlm.evaluate.tune import WITHIN, Search, carry_out, task_of
    from softdlm.report.progress import Screen

    if within is not None and passes is not None:
        raise UsageError("--within and --passes are two goals: give one of them")
    given = {"items": items, "budget": budget, "alpha": alpha, **grid_values(lists)}
    search = Search(
        ModelSpec.of(model, **loading_values(loading)),
        task_of(task, data_dir=data_dir, allow_unsandboxed=allow_unsandboxed),
        Goal(WITHIN if within is None and passes is None else within, passes),
        Decoding.of(**words),
        **{name: value for name, value in given.items() if value is not None},
    )
    screen, executor = Screen(), LocalExecutor(batch_size)

    def report(now: Standing | str) -> None:
        screen.say(now) if isinstance(now, str) else screen.show(now.line(screen.width))

    with resumable(screen, f"every finished sample is in {out}"):
        found = carry_out(search, executor, out, report)
    show(found, words, as_json)
    if found.failed or found.chosen is None:
        raise typer.Exit(1)


def grid_values(lists: dict[str, str]) -> dict[str, tuple[Any, ...]]:
    """The lists that replace parts of the grid."""
    given = {name: names_in(f"--{name}", text) for name, text in lists.items()}
    kinds = {"k": ("ks", parsing.whole), "lam": ("lams", parsing.number)}
    for name, (field, read) in kinds.items():
        if name in given:
            given[field] = tuple(read(f"--{name}", value) for value in given.pop(name))
    return given


def show(found: Tuned, words: dict[str, Any], as_json: bool) -> None:
    from softdlm.report.row_tables import print_rows

    if as_json:
        print_json(found.record())
        return
    print_rows(found.shown, found.title, notes=found.notes)
    if found.settings is not None:
        more = {name: value for name, value in words.items() if name != "max_new_tokens"}
        options = [part for name, value in more.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        print(f"Settings: {found.settings}. To use them:")
        print(f"  softdlm generate ... {shlex.join(['--settings', str(found.settings), *options])}")
