"""`softdlm reproduce`: the paper's tables and figures on a model, with a report."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from softdlm.cli.options import Attention, Device, Dtype, EosIds, Json, MaskId, Model, Revision, token_ids

WHAT = "figure1, table1 ... table8, b1, figure2, frontier, extras, or all of them."
What = Annotated[list[str], typer.Argument(help=WHAT, metavar="WHAT...")]
Quick = Annotated[bool, typer.Option("--quick", help="A few items of everything: minutes on two cores.")]
Limit = Annotated[int | None, typer.Option(help="At most so many items, prompts and completions of each kind.")]
Tasks = Annotated[
    str | None,
    typer.Option(help="mini-math,mini-code by default for builtin, gsm8k,math500,humaneval,mbpp for others."),
]
Chat = Annotated[
    bool,
    typer.Option("--chat/--raw", help="Controlled prompts in the chat template, or as raw text."),
]
Readings = Annotated[str | None, typer.Option(help="Of Dream: dream-dllm (default) or dream-greedy.")]
SensitivityRate = Annotated[int, typer.Option(help="Tokens a step in Figure 2, which does not say: 2, or 4.")]
AdaptiveItems = Annotated[str, typer.Option(help="Of GSM8K in Table 6: first-500 or full.")]
NewTokens = Annotated[int | None, typer.Option("--max-new-tokens", "-n", help="The recipe's by default.")]
BatchSize = Annotated[int | None, typer.Option(help="256 for the built-in model on a GPU, else as in softdlm eval.")]
DataDir = Annotated[str | None, typer.Option(help="Folder of the benchmarks' files.")]
Unsandboxed = Annotated[
    bool, typer.Option("--allow-unsandboxed", help="Where there is no sandbox, run generated code without one.")
]
NoFigures = Annotated[bool, typer.Option("--no-figures", help="Without matplotlib; softdlm redraw adds them.")]
Out = Annotated[Path | None, typer.Option(help="Folder of results; what it holds is not measured again.")]


def reproduce(
    what: What, model: Model = "builtin", quick: Quick = False, out: Out = None, limit: Limit = None,
    tasks: Tasks = None, chat: Chat = False, reading: Readings = None, sensitivity_rate: SensitivityRate = 2,
    table6_items: AdaptiveItems = "first-500", max_new_tokens: NewTokens = None, data_dir: DataDir = None,
    allow_unsandboxed: Unsandboxed = False, revision: Revision = None, device: Device = None, dtype: Dtype = None,
    attention: Attention = "auto", mask_id: MaskId = None, eos_ids: EosIds = None, batch_size: BatchSize = None,
    no_figures: NoFigures = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Measure the paper's tables and figures on a model, and write a report; stopped, the same command goes on."""
    from softdlm.report.figures import check_format
    from softdlm.report.page import write
    from softdlm.report.progress import Screen
    from softdlm.reproduce import run
    from softdlm.reproduce.experiments import select
    from softdlm.reproduce.study import Study

    chosen = select(what)
    folder = out or Path("reproduction-quick" if quick else "reproduction")
    if not no_figures:
        check_format(folder / "figure.svg")
    ends = None if eos_ids is None else tuple(token_ids(eos_ids, "--eos-ids"))
    study = Study.of(
        model,
        quick=quick,
        limit=limit,
        tasks=None if tasks is None else [name.strip() for name in tasks.split(",")],
        chat=chat,
        device=device,
        dtype=dtype,
        batch_size=batch_size,
        loading={"revision": revision, "attention": attention, "mask_id": mask_id, "eos_ids": ends},
        reading=reading,
        sensitivity_rate=sensitivity_rate,
        adaptive_items=table6_items,
        max_new_tokens=max_new_tokens,
        data_dir=data_dir,
        allow_unsandboxed=allow_unsandboxed,
    )
    screen = Screen()
    try:
        with screen.heeding():
            measured, failed = run.collect(study, chosen, folder, _run_cells, screen)
    except KeyboardInterrupt:
        again = shlex.join(["softdlm", *sys.argv[1:]])
        screen.say(f"stopped; what was measured is in {folder}. To go on: {again}")
        raise typer.Exit(130) from None
    report = run.conclude(measured, chosen, failed)
    name = "report" if "all" in what else "-".join(each.name for each in chosen)
    run.write_data(report, measured, folder, name)
    _show(report, write(report, folder, name, figures=not no_figures), as_json)
    if failed:
        raise typer.Exit(1)


def redraw(
    data: Annotated[Path, typer.Argument(help="data/report.json of a reproduction, or report.json.gz.")],
    out: Annotated[Path | None, typer.Option(help="Where to; the reproduction's own folder by default.")] = None,
) -> None:
    """Write a reproduction's tables, figures and page again from its data; measures nothing."""
    from softdlm.report.document import Report
    from softdlm.report.figures import check_format
    from softdlm.report.page import write

    report = Report.read(data)
    folder = out or data.absolute().parent.parent
    check_format(folder / "figure.svg")
    print(f"Report: {write(report, folder, data.name.removesuffix('.gz').removesuffix('.json'))}")


def _run_cells(plan: Any, out: Path, executor: Any) -> list[str]:
    from softdlm.cli.evaluate import carry_out

    return carry_out(plan, out, executor)


def _show(report: Any, page: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from softdlm.report.formats import print_table
    from softdlm.report.row_tables import print_titled

    found = [asdict(each) for each in report.findings]
    if as_json:
        tables = [table.record() for section in report.sections for table in section.tables]
        whole = {"protocol": report.protocol, "findings": found, "tables": tables, "failed": report.failed}
        print(json.dumps({**whole, "report": str(page)}, ensure_ascii=False, indent=1))
        return
    for section in report.sections:
        for table in section.tables:
            print_table(table)
            print()
    if found:
        names = ("where", "claim", "scope", "verdict")
        print_titled("Findings", [{name: each[name] for name in names} for each in found])
    print(f"Report: {page}")
