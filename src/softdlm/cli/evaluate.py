"""`softdlm eval` and `softdlm results`: parse, call the library, print the table."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from softdlm.cli.options import Cache, Dtype, Refresh, Renew
from softdlm.errors import UsageError

if TYPE_CHECKING:
    from softdlm.evaluate.cell import ModelSpec
    from softdlm.evaluate.executors import Executor
    from softdlm.evaluate.grid import Grid, Plan

Number = TypeVar("Number", int, float)

Models = Annotated[str, typer.Option("--model", "-m", help="builtin, folders or Hugging Face ids, commas between.")]
Tasks = Annotated[str, typer.Option("--task", help="mini-math, mini-code, either-or, gsm8k, math500, humaneval, mbpp.")]
Methods = Annotated[str, typer.Option("--method", help="Names with commas between.")]
PerStep = Annotated[str | None, typer.Option("--tokens-per-step", "-t", help="Tokens committed per pass, a list.")]
Taus = Annotated[str | None, typer.Option("--threshold", help="Confidence thresholds, a list.")]
Gammas = Annotated[str | None, typer.Option("--entropy-bound", help="Entropy bounds in nats, a list.")]
Factors = Annotated[str | None, typer.Option("--factor", help="Factors of Fast-dLLM's rule, a list.")]
Ks = Annotated[str | None, typer.Option("--k", help="Candidates in a soft token, a list; 3 by default.")]
Lams = Annotated[str | None, typer.Option("--lam", help="Strengths, a list; the model's own by default.")]
Recipe = Annotated[str | None, typer.Option(help="paper: k, lam, EOS and lengths by model family and benchmark.")]
Readings = Annotated[str | None, typer.Option(help="Of Dream, with the recipe paper: dream-dllm or dream-greedy.")]
Ranks = Annotated[str | None, typer.Option("--rank", help="confidence, margin or entropy; each rule has its own.")]
Eos = Annotated[str | None, typer.Option(help="allow, last, forbid or forbid-first (EOS, not end of turn).")]
BlockLength = Annotated[int | None, typer.Option(help="Decode in blocks; one block by default.")]
NewTokens = Annotated[int | None, typer.Option("--max-new-tokens", "-n", help="The task's by default.")]
Temperature = Annotated[float | None, typer.Option(help="0 is greedy, and the default.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus, with a temperature.")]
Seed = Annotated[int, typer.Option(help="Of the draws, which depend on it and on the item.")]
Limit = Annotated[int | None, typer.Option(help="The first items of each task only.")]
Split = Annotated[str, typer.Option(help="Of the built-in tasks: test, validation or train.")]
BatchSize = Annotated[int | None, typer.Option(help="32 on a GPU and 4 for each thread of a CPU by default.")]
Out = Annotated[Path, typer.Option(help="Folder of results; cells found there go on where they stopped.")]
Executors = Annotated[str, typer.Option("--executor", help="local: this process. ray: actors, one per GPU or core.")]
RayAddress = Annotated[
    str | None, typer.Option(help="ray://host:10001, host:6379 or auto; a cluster of its own without.")
]
Workers = Annotated[int | None, typer.Option(help="Actors of --executor ray; all GPUs, or cores, by default.")]
DataDir = Annotated[str | None, typer.Option(help="Folder of the benchmarks' files.")]
Unsandboxed = Annotated[
    bool, typer.Option("--allow-unsandboxed", help="Where there is no sandbox, run generated code without one.")
]
NoSingle = Annotated[bool, typer.Option("--no-single", help="No vanilla at one token a step, so no recovery rates.")]
Plot = Annotated[Path | None, typer.Option(help="Draw accuracy against passes to this file (png, svg, pdf).")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def evaluate(
    model: Models = "builtin",
    task: Tasks = "mini-math",
    method: Methods = "vanilla,euclidean,slerp",
    tokens_per_step: PerStep = None,
    threshold: Taus = None,
    entropy_bound: Gammas = None,
    factor: Factors = None,
    k: Ks = None,
    lam: Lams = None,
    recipe: Recipe = None,
    reading: Readings = None,
    rank: Ranks = None,
    eos: Eos = None,
    block_length: BlockLength = None,
    cache: Cache = None,
    refresh: Refresh = None,
    renew: Renew = 1,
    max_new_tokens: NewTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    seed: Seed = 0,
    limit: Limit = None,
    split: Split = "test",
    data_dir: DataDir = None,
    allow_unsandboxed: Unsandboxed = False,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub, for one model.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cpu, ...; the first GPU by default.")] = None,
    dtype: Dtype = None,
    attention: Annotated[str, typer.Option(help="LLaDA-2 only: auto, full or block-causal.")] = "auto",
    mask_id: Annotated[int | None, typer.Option(help="Overrides the checkpoint's, for one model.")] = None,
    eos_ids: Annotated[str | None, typer.Option(help="Override the checkpoint's, for one model; EOS first.")] = None,
    batch_size: BatchSize = None,
    executor: Executors = "local",
    ray_address: RayAddress = None,
    workers: Workers = None,
    no_single: NoSingle = False,
    out: Out = Path("results"),
    plot: Plot = None,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Evaluate models x tasks x methods x rates, resumably; print accuracy, recovery and speed."""
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


def results(
    folder: Annotated[Path, typer.Argument(help="A folder of results, or one cell's.")] = Path("results"),
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Print the table of results on disk, finished or not; decodes nothing."""
    from softdlm.evaluate.summary import find_cells

    show(find_cells(folder), as_json=as_json, as_markdown=markdown, cells=True)


def carry_out(chosen: Plan, out: Path, workers: Executor) -> list[str]:
    """Run the plan with progress on standard error; what failed, a line each."""
    from softdlm.evaluate.run import run
    from softdlm.report.progress import Screen

    screen = Screen()
    for failure in chosen.failures:
        screen.say(f"softdlm: {failure}")
    try:
        with screen.heeding():
            failures = run(chosen, out, workers, lambda now: screen.show(str(now), last=now.done == now.items))
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


def show(
    folders: Sequence[Path], *, as_json: bool, as_markdown: bool, failed: Sequence[str] = (), cells: bool = False
) -> None:
    """The cells' table on standard output; `cells` adds the names of their folders."""
    from softdlm.evaluate.summary import Result, rows, tables, words
    from softdlm.records.journal import MANIFEST
    from softdlm.report.row_tables import markdown, print_titled

    found = rows([Result.read(folder) for folder in folders if (folder / MANIFEST).exists()])
    if as_json:
        print(json.dumps({"rows": found, "failed": list(failed)}, ensure_ascii=False, indent=1))
    elif as_markdown and found:
        print(markdown([words(row) for row in found]), end="")
    else:
        for title, lines in tables(found, cells=cells):
            print_titled(title, lines)


def check_plot(file: Path | None, grid: Grid) -> None:
    """Said before an hour of decoding, not after it."""
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


def names_in(option: str, text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise UsageError(f"{option} names nothing: {text!r}")
    return found


def numbers(option: str, text: str, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    found = names_in(option, text)
    try:
        return tuple(map(kind, found))
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise UsageError(f"{option} takes {what} with commas between, not {text!r}") from error


def optional_numbers(option: str, text: str | None, kind: Callable[[str], Number]) -> tuple[Number, ...] | None:
    return None if text is None else numbers(option, text, kind)
