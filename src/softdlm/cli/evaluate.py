"""`softdlm eval`: models x tasks x methods x rates, resumably."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from softdlm.cli.options import (
    COMMAS,
    Attention,
    BlockLength,
    Cache,
    DataDir,
    Device,
    Dtype,
    Json,
    Rank,
    Refresh,
    Renew,
    Seed,
    TopP,
    Unsandboxed,
    names_in,
)
from softdlm.cli.results import Markdown, show
from softdlm.errors import UsageError

if TYPE_CHECKING:
    from softdlm.evaluate.cell import ModelSpec
    from softdlm.evaluate.executors import Executor
    from softdlm.evaluate.grid import Grid, Plan

Number = TypeVar("Number", int, float)

Models = Annotated[str, typer.Option("--model", "-m", help=f"builtin, folders or Hugging Face ids, {COMMAS}.")]
TASKS_HELP = f"mini-math, mini-code, either-or, gsm8k, math500, humaneval, mbpp; several {COMMAS}."
Tasks = Annotated[str, typer.Option("--task", help=TASKS_HELP)]
Methods = Annotated[str, typer.Option("--method", help=f"Feedback rules, {COMMAS}.")]
PerStep = Annotated[
    str | None, typer.Option("--tokens-per-step", "-t", help=f"Tokens committed in each pass, {COMMAS}.")
]
Taus = Annotated[str | None, typer.Option("--threshold", help=f"Confidence thresholds, {COMMAS}.")]
Gammas = Annotated[str | None, typer.Option("--entropy-bound", help=f"Entropy bounds in nats, {COMMAS}.")]
Factors = Annotated[str | None, typer.Option("--factor", help=f"Factors of Fast-dLLM's rule, {COMMAS}.")]
Ks = Annotated[str | None, typer.Option("--k", help=f"Candidates in a soft token, {COMMAS}. Default: 3.")]
Lams = Annotated[
    str | None, typer.Option("--lam", help=f"Strengths of the feedback, {COMMAS}. Default: the model's own.")
]
RECIPE_HELP = "paper: k, lam, EOS handling and lengths of the paper, by model family and benchmark."
Recipe = Annotated[str | None, typer.Option(help=RECIPE_HELP)]
READING_HELP = "With --recipe paper, how Dream is decoded: dream-dllm or dream-greedy."
Reading = Annotated[str | None, typer.Option(help=READING_HELP)]
EOS_HELP = "EOS tokens: allow, last, forbid, or forbid-first (only the first EOS id; end of turn is allowed)."
Eos = Annotated[str | None, typer.Option(help=EOS_HELP)]
NewTokens = Annotated[
    int | None, typer.Option("--max-new-tokens", "-n", help="Length of the answer's canvas. Default: the task's.")
]
Temperature = Annotated[float | None, typer.Option(help="Sampling temperature. Default: 0, the likeliest token.")]
Limit = Annotated[int | None, typer.Option(help="Only the first N items of each task.")]
Split = Annotated[str, typer.Option(help="Split of the built-in tasks: test, validation or train.")]
OneRevision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub; for a single model.")]
OneMaskId = Annotated[int | None, typer.Option(help="Id of the mask token; for a single model.")]
ONE_EOS_IDS_HELP = f"Ids that end an answer, EOS first, {COMMAS}; for a single model."
OneEosIds = Annotated[str | None, typer.Option(help=ONE_EOS_IDS_HELP)]
BatchSize = Annotated[
    int | None, typer.Option(help="Items decoded together. Default: 32 on a GPU, 4 for each thread of a CPU.")
]
Out = Annotated[Path, typer.Option(help="Folder for the results. Unfinished ones found there are continued.")]
EXECUTOR_HELP = "local: this process. ray: one Ray actor for each GPU or core."
Executors = Annotated[str, typer.Option("--executor", help=EXECUTOR_HELP)]
RAY_HELP = "Ray cluster: ray://host:10001, host:6379 or auto. Default: a new one on this machine."
RayAddress = Annotated[str | None, typer.Option(help=RAY_HELP)]
Workers = Annotated[int | None, typer.Option(help="Actors of --executor ray. Default: one for each GPU, else core.")]
NO_SINGLE_HELP = "Leave out vanilla at one token a step; without it there are no recovery rates."
NoSingle = Annotated[bool, typer.Option("--no-single", help=NO_SINGLE_HELP)]
PLOT_HELP = "Draw accuracy against forward passes to this file (png, svg or pdf)."
Plot = Annotated[Path | None, typer.Option(help=PLOT_HELP)]


def evaluate(
    model: Models = "builtin", task: Tasks = "mini-math", method: Methods = "vanilla,euclidean,slerp",
    tokens_per_step: PerStep = None, threshold: Taus = None, entropy_bound: Gammas = None, factor: Factors = None,
    k: Ks = None, lam: Lams = None, recipe: Recipe = None, reading: Reading = None, rank: Rank = None,
    eos: Eos = None, block_length: BlockLength = None, cache: Cache = None, refresh: Refresh = None, renew: Renew = 1,
    max_new_tokens: NewTokens = None, temperature: Temperature = None, top_p: TopP = None, seed: Seed = 0,
    limit: Limit = None, split: Split = "test", data_dir: DataDir = None, allow_unsandboxed: Unsandboxed = False,
    revision: OneRevision = None, device: Device = None, dtype: Dtype = None, attention: Attention = "auto",
    mask_id: OneMaskId = None, eos_ids: OneEosIds = None, batch_size: BatchSize = None, executor: Executors = "local",
    ray_address: RayAddress = None, workers: Workers = None, no_single: NoSingle = False, out: Out = Path("results"),
    plot: Plot = None, markdown: Markdown = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Measure accuracy, recovery and speed of models x tasks x methods x rates.

    Resumable: run the same command again. If a model fails to load, only its cells fail.
    """
    from softdlm.evaluate.cell import TaskSpec
    from softdlm.evaluate.grid import Grid, plan

    own = {"revision": revision, "mask_id": mask_id, "eos_ids": optional_numbers("--eos-ids", eos_ids, int)}
    shared: Any = {"device": device, "dtype": dtype, "attention": attention, "here": ray_address is None}
    specs = model_specs(names_in("--model", model), own, shared)
    grid = Grid(
        models=specs,
        tasks=tuple(TaskSpec(name, split, limit, data_dir, allow_unsandboxed) for name in names_in("--task", task)),
        methods=names_in("--method", method),
        rates=rates(tokens_per_step=tokens_per_step, threshold=threshold, entropy_bound=entropy_bound, factor=factor),
        ks=optional_numbers("--k", k, int),
        lams=optional_numbers("--lam", lam, float),
        recipe=recipe,  # type: ignore[arg-type]
        reading=reading,  # type: ignore[arg-type]
        rank=rank,  # type: ignore[arg-type]
        eos=eos,  # type: ignore[arg-type]
        block_length=block_length,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        single=not no_single,
        cache=cache,  # type: ignore[arg-type]
        refresh=refresh,
        renew=renew,
    )
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


def model_specs(names: Sequence[str], own: dict[str, Any], shared: dict[str, Any]) -> tuple[ModelSpec, ...]:
    """Models by name; what is one model's `own` cannot be given for several."""
    from softdlm.evaluate.cell import ModelSpec

    if len(names) > 1 and any(value is not None for value in own.values()):
        raise UsageError("--revision, --mask-id and --eos-ids are one model's: give a single --model with them")
    return tuple(ModelSpec.of(name, **shared, **own) for name in names)


def carry_out(chosen: Plan, out: Path, workers: Executor) -> list[str]:
    """Run the plan with progress on standard error; what failed, a line each."""
    from softdlm.evaluate.run import Progress, run
    from softdlm.report.progress import Screen

    screen = Screen()

    def show_progress(now: Progress) -> None:
        screen.show(now.line(screen.width), last=now.done == now.items)

    for failure in chosen.failures:
        screen.say(f"softdlm: {failure}")
    try:
        with screen.heeding():
            failures = run(chosen, out, workers, show_progress)
    except KeyboardInterrupt:
        again = shlex.join(["softdlm", *sys.argv[1:]])
        screen.say(f"stopped; every finished sample is in {out}. To go on: {again}")
        raise typer.Exit(130) from None
    cells = {each.key: str(each.cell) for each in chosen.cells}
    lines = [f"{cells[key]}: {failure.reason}" for key, failure in failures.items()]
    for line, failure in zip(lines, failures.values(), strict=True):
        screen.say(f"softdlm: {line}\n{failure.trace}".rstrip())
    if screen.terminal:
        screen.say("")
    return [*chosen.failures, *lines]


def check_plot(file: Path | None, grid: Grid) -> None:
    """Refuse a file that cannot be drawn before anything is decoded."""
    from softdlm.report.figures import check_format

    if file is None:
        return
    check_format(file)
    if len(grid.models) * len(grid.tasks) > 1:
        raise UsageError(f"--plot {file} draws one model on one task: give a single --model and --task with it")


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


def rates(**lists: str | None) -> tuple[Any, ...]:
    """The rates that the options name, in their order; 2, 4 and 8 tokens a step where none is given."""
    from softdlm.evaluate.cell import Rate

    given = {name: text for name, text in lists.items() if text is not None} or {"tokens_per_step": "2,4,8"}
    kinds: dict[str, Callable[[str], float]] = {"tokens_per_step": int}
    return tuple(
        Rate(name, value)
        for name, text in given.items()
        for value in numbers(f"--{name.replace('_', '-')}", text, kinds.get(name, float))
    )


def numbers(option: str, text: str, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    found = names_in(option, text)
    try:
        return tuple(map(kind, found))
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise UsageError(f"{option} takes {what} separated by commas, not {text!r}") from error


def optional_numbers(option: str, text: str | None, kind: Callable[[str], Number]) -> tuple[Number, ...] | None:
    return None if text is None else numbers(option, text, kind)
