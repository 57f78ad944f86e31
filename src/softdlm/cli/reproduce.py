"""`softdlm reproduce`: the paper's tables and figures on a model, with a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from softdlm.cli.evaluate import Models, Reading, carry_out, check_single, resumable
from softdlm.cli.option_tables import COMMAS, LOADING, takes
from softdlm.cli.options import DataDir, Json, Unsandboxed, loading_values, names_in, print_json

WHAT = "figure1, table1 ... table8, b1, figure2, best, consistent, rivals, frontier, agreement, or all."
What = Annotated[list[str], typer.Argument(help=WHAT, metavar="WHAT...")]
Quick = Annotated[bool, typer.Option("--quick", help="A few items of everything: minutes on two cores.")]
Limit = Annotated[int | None, typer.Option(help="At most N items, prompts and completions of each kind.")]
TASKS_HELP = f"Tasks, {COMMAS}. Default: mini-math,mini-code for builtin, gsm8k,math500,humaneval,mbpp for others."
Tasks = Annotated[str | None, typer.Option(help=TASKS_HELP)]
NewTokens = Annotated[
    int | None, typer.Option("--max-new-tokens", "-n", help="Length of the answer's canvas. Default: the recipe's.")
]
BATCH_HELP = "Items decoded together. Default: 256 for the built-in model on a GPU, else as in softdlm eval."
BatchSize = Annotated[int | None, typer.Option(help=BATCH_HELP)]
NO_FIGURES_HELP = "Draw no figures, which need matplotlib; softdlm redraw adds them later."
NoFigures = Annotated[bool, typer.Option("--no-figures", help=NO_FIGURES_HELP)]
Out = Annotated[Path | None, typer.Option(help="Folder for the results. What it holds is not measured again.")]


@takes(loading=LOADING)
def reproduce(
    loading: dict[str, Any], what: What, model: Models = "builtin", quick: Quick = False, out: Out = None,
    limit: Limit = None,
    tasks: Tasks = None, reading: Reading = None, max_new_tokens: NewTokens = None, data_dir: DataDir = None,
    allow_unsandboxed: Unsandboxed = False, batch_size: BatchSize = None, no_figures: NoFigures = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Measure the paper's tables and figures on a model, or several, and write one report.

    Resumable: run the same command again.
    """
    from softdlm.evaluate.readings import Readings
    from softdlm.report.figures import check_format
    from softdlm.report.page import write
    from softdlm.report.progress import Screen
    from softdlm.reproduce import run
    from softdlm.reproduce.experiments import select
    from softdlm.reproduce.reading_notes import check_readings
    from softdlm.reproduce.study import Study

    chosen = select(what)
    folder = out or Path("reproduction-quick" if quick else "reproduction")
    if not no_figures:
        check_format(folder / "figure.svg")
    models, values = names_in("--model", model), loading_values(loading)
    check_single(models, values)
    place = {name: values.pop(name, None) for name in ("device", "dtype")}
    readings = Readings.of(reading or ())
    studies = [
        Study.of(
            each,
            quick=quick,
            limit=limit,
            tasks=None if tasks is None else list(names_in("--tasks", tasks)),
            batch_size=batch_size,
            loading=values,
            readings=readings,
            max_new_tokens=max_new_tokens,
            data_dir=data_dir,
            allow_unsandboxed=allow_unsandboxed,
            **place,
        )
        for each in models
    ]
    check_readings(studies, chosen)
    screen = Screen()
    with resumable(screen, f"what was measured is in {folder}"):
        found = [run.collect(study, chosen, folder, carry_out, screen) for study in studies]
    every, failed = [measured for measured, _ in found], [line for _, lines in found for line in lines]
    report = run.conclude(every, chosen, failed)
    name = "report" if "all" in what else "-".join(each.name for each in chosen)
    run.write_data(report, every, folder, name)
    _show(report, write(report, folder, name, figures=not no_figures), as_json)
    if failed:
        raise typer.Exit(1)


def _show(report: Any, page: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from softdlm.report.formats import print_table
    from softdlm.report.row_tables import print_rows

    if as_json:
        tables = [table.record() for section in report.sections for table in section.tables]
        found = [asdict(each) for each in report.findings]
        whole = {"protocol": report.protocol, "findings": found, "tables": tables, "failed": report.failed}
        print_json({**whole, "report": str(page)})
        return
    for section in report.sections:
        for table in section.tables:
            print_table(table)
    if report.findings:
        print_rows(list(claims(report.findings)), "Findings")
    print(f"Report: {page}")


def claims(findings: Sequence[Any]) -> Iterator[dict[str, str]]:
    """A row a claim, with a line for each verdict on it."""
    for (where, claim), group in groupby(findings, key=lambda each: (each.where, each.claim)):
        lines = [f"{each.scope}: {each.verdict}{f' ({each.strength})' * bool(each.strength)}" for each in group]
        yield {"claim": f"{where}: {claim}", "verdict": "\n".join(lines)}
