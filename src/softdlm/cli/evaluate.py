"""`softdlm eval`: models x tasks x feedback rules x commit rules, resumably."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softdlm import parsing
from softdlm.cli.option_tables import COMMAS, LOADING, RULE_LISTS, SETTINGS, takes
from softdlm.cli.options import DataDir, Json, Unsandboxed, loading_values, names_in, option
from softdlm.cli.results import Markdown, show
from softdlm.errors import UsageError
from softdlm.records.files import ready_file

if TYPE_CHECKING:
    from softdlm.decoding import Decoding
    from softdlm.evaluate.cell import ModelSpec
    from softdlm.evaluate.executors import Executor
    from softdlm.evaluate.grid import Grid, Plan
    from softdlm.report.progress import Screen

Models = Annotated[str, typer.Option("--model", "-m", help=f"builtin, folders or Hugging Face ids, {COMMAS}.")]
TASKS_HELP = f"mini-math, mini-code, either-or, gsm8k, math500, humaneval, mbpp, or FILE.jsonl; several {COMMAS}."
Tasks = Annotated[str, typer.Option("--task", help=TASKS_HELP)]
RECIPE_HELP = "paper: k, lam, EOS handling and lengths of the paper, by model family and benchmark."
Recipe = Annotated[str | None, typer.Option(help=RECIPE_HELP)]
READING_HELP = "How the paper is read, name=value, such as dream=dream-greedy; may be repeated. See docs/reproduce.md."
Reading = Annotated[list[str] | None, typer.Option(help=READING_HELP, metavar="NAME=VALUE")]
Limit = Annotated[int | None, typer.Option(help="Only the first N items of each task.")]
Split = Annotated[str, typer.Option(help="Split of the built-in tasks: test, validation or train.")]
BatchSize = Annotated[int | None, option("Items decoded together. Default: 32 on a GPU, 4 for each thread of a CPU.")]
Out = Annotated[Path, typer.Option(help="Folder for the results. Unfinished ones found there are continued.")]
Executors = Annotated[str, option("local: this process. ray: one Ray actor for each GPU or core.", "--executor")]
RAY_HELP = "Ray cluster: ray://host:10001, host:6379 or auto. Default: a new one on this machine."
RayAddress = Annotated[str | None, typer.Option(help=RAY_HELP)]
Workers = Annotated[int | None, typer.Option(help="Actors of --executor ray. Default: one for each GPU, else core.")]
NO_SINGLE_HELP = "Leave out vanilla at one token a step; without it there are no recovery rates."
OWN_HELP = "Also the model's own decoding: that of its checkpoint, or of --settings."
WithOwn = Annotated[bool, typer.Option("--own", help=OWN_HELP)]
NoSingle = Annotated[bool, typer.Option("--no-single", help=NO_SINGLE_HELP)]
Plot = Annotated[Path | None, option("Draw accuracy against forward passes to this file (png, svg or pdf).")]


@takes(lists=RULE_LISTS, words=SETTINGS, loading=LOADING)
def evaluate(
    lists: dict[str, str], words: dict[str, Any], loading: dict[str, Any], model: Models = "builtin",
    task: Tasks = "mini-math", recipe: Recipe = None, reading: Reading = None, limit: Limit = None,
    split: Split = "test", data_dir: DataDir = None, allow_unsandboxed: Unsandboxed = False,
    batch_size: BatchSize = None, executor: Executors = "local", ray_address: RayAddress = None,
    workers: Workers = None, no_single: NoSingle = False, own: WithOwn = False, out: Out = Path("results"),
    plot: Plot = None, markdown: Markdown = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Measure accuracy, recovery and speed of models x tasks x feedback rules x commit rules.

    Resumable: run the same command again. If a model fails to load, only its cells fail.
    """
    from softdlm.decoding import Decoding
    from softdlm.evaluate.cell import TaskSpec
    from softdlm.evaluate.grid import Grid, plan
    from softdlm.evaluate.readings import Readings

    specs = model_specs(names_in("--model", model), loading_values(loading), here=ray_address is None)
    tasks = tuple(TaskSpec(name, split, limit, data_dir, allow_unsandboxed) for name in names_in("--task", task))
    wanted = (*decodings(lists, words), *([Decoding.of(**words)] if own else []))
    grid = Grid(specs, tasks, wanted, recipe, Readings.of(reading or ()), single=not no_single)
    check_plot(plot, grid)
    on_gpu = any(spec.device.startswith("cuda") for spec in specs)
    executes = find_executor(executor, batch_size, ray_address, workers, on_gpu)
    chosen = plan(grid)
    failed, folders = carry_out(chosen, out, executes), [out / each.key for each in chosen.cells]
    show(folders, as_json=as_json, as_markdown=markdown, failed=failed)
    if plot is not None:
        draw(folders, plot)
    if failed:
        raise typer.Exit(1)


def decodings(lists: Mapping[str, str], words: Mapping[str, Any]) -> tuple[Decoding, ...]:
    """Every feedback rule with every commit rule; by default vanilla, euclidean and slerp at 2, 4 and 8 a step."""
    from softdlm.decoding import Decoding
    from softdlm.evaluate.grid import sweep
    from softdlm.shortcuts import RATES

    given = {name: names_in(option_of(name), text) for name, text in lists.items()}
    rates = [name for name in ("commit", *RATES) if name in given]
    settings = dict(words)
    rank = {"rank": settings.pop("rank")} if "rank" in settings else {}
    named = {name: given[name] for name in rates} or {"tokens_per_step": ("2", "4", "8")}
    wanted = [Decoding.of(**{name: value}, **rank) for name, values in named.items() for value in values]
    ks = [parsing.whole("--k", value) for value in given.get("k", ())] or [None]
    lams = [parsing.number("--lam", value) for value in given.get("lam", ())] or [None]
    base = Decoding.of(**settings)
    feedback = given.get("feedback", ("vanilla", "euclidean", "slerp"))
    return tuple(
        each
        for rate in wanted
        for each in sweep(replace(base, rank=rate.rank), feedback, [rate.commit or "topn(1)"], ks, lams)
    )


def option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def model_specs(names: Sequence[str], loading: dict[str, Any], *, here: bool) -> tuple[ModelSpec, ...]:
    """Models by name."""
    from softdlm.evaluate.cell import ModelSpec

    check_single(names, loading)
    return tuple(ModelSpec.of(name, here=here, **loading) for name in names)


def check_single(names: Sequence[str], loading: Mapping[str, Any]) -> None:
    """What belongs to one checkpoint cannot be given for several."""
    if len(names) > 1 and loading.keys() & {"revision", "mask_id", "eos_ids", "settings"}:
        options = "--revision, --mask-id, --eos-ids and --settings"
        raise UsageError(f"{options} belong to one model: give a single --model with them")


def carry_out(chosen: Plan, out: Path, workers: Executor) -> list[str]:
    """Run the plan with progress on standard error; what failed, a line each."""
    from softdlm.evaluate.run import Progress, run
    from softdlm.report.progress import Screen

    screen = Screen()

    def show_progress(now: Progress) -> None:
        screen.show(now.line(screen.width), last=now.done == now.items)

    for failure in chosen.failures:
        screen.say(f"softdlm: {failure}")
    with resumable(screen, f"every finished sample is in {out}"):
        failures = run(chosen, out, workers, show_progress)
    cells = {each.key: str(each.cell) for each in chosen.cells}
    lines = [f"{cells[key]}: {failure.reason}" for key, failure in failures.items()]
    for line, failure in zip(lines, failures.values(), strict=True):
        screen.say(f"softdlm: {line}\n{failure.trace}".rstrip())
    if screen.terminal:
        screen.say("")
    return [*chosen.failures, *lines]


@contextmanager
def resumable(screen: Screen, kept: str) -> Iterator[None]:
    """Within, Ctrl-C ends the verb with exit code 130, what is kept, and the command to go on with."""
    try:
        with screen.heeding():
            yield
    except KeyboardInterrupt:
        again = shlex.join(["softdlm", *sys.argv[1:]])
        screen.say(f"stopped; {kept}. To go on: {again}")
        raise typer.Exit(130) from None


def check_plot(file: Path | None, grid: Grid) -> None:
    """Refuse a file that cannot be drawn before anything is decoded."""
    from softdlm.report.figures import check_format

    if file is None:
        return
    check_format(file)
    if len(grid.models) * len(grid.tasks) > 1:
        raise UsageError(f"--plot {file} draws one model on one task: give a single --model and --task with it")
    ready_file(file)


def draw(folders: Sequence[Path], file: Path) -> None:
    from softdlm.evaluate.summary import Result, rows
    from softdlm.records.journal import MANIFEST
    from softdlm.report.figures import draw_results

    draw_results(rows([Result.read(folder) for folder in folders if (folder / MANIFEST).exists()]), file)


def find_executor(
    name: str, batch_size: int | None, ray_address: str | None = None, workers: int | None = None, on_gpu: bool = False
) -> Executor:
    from softdlm.evaluate.executors import LocalExecutor
    from softdlm.evaluate.ray_executor import RayExecutor

    if name not in ("local", "ray"):
        raise UsageError(f"unknown executor {name!r}: local or ray")
    if name == "ray":
        return RayExecutor(ray_address, workers, batch_size, on_gpu)
    if ray_address is not None or workers is not None:
        raise UsageError("--ray-address and --workers are for --executor ray: give it with them")
    return LocalExecutor(batch_size)
