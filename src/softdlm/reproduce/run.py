"""Carry a study out: cells, then analyses, then the report as a value. Stopped, it goes on."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

from softdlm import __version__
from softdlm.analysis import plans as analysis
from softdlm.errors import SoftDLMError
from softdlm.evaluate.cell import short_digest
from softdlm.evaluate.executors import Failure, LocalExecutor
from softdlm.evaluate.grid import Finder, Plan, join, plans
from softdlm.evaluate.run import hardware, versions
from softdlm.evaluate.summary import Result, rows
from softdlm.records.journal import MANIFEST, read_manifest, write_whole, writing
from softdlm.report.document import Report
from softdlm.report.progress import Screen, clock, progress_line
from softdlm.reproduce.analyses import ANALYSES
from softdlm.reproduce.experiments import Experiment
from softdlm.reproduce.findings import findings
from softdlm.reproduce.measurements import Cells, Data, effort
from softdlm.reproduce.mechanism import rows_record
from softdlm.reproduce.study import Study

CELLS, ROWS = "cells", "rows"
"""Folders of what is being measured; the others hold what is made of it."""
BULKY = ("agreement",)
"""Analyses whose rows stay in their own files."""
RunCells = Callable[[Plan, Path, LocalExecutor], list[str]]


def measure(
    study: Study, experiments: Sequence[Experiment], out: Path, run_cells: RunCells, screen: Screen
) -> tuple[Data, list[str]]:
    """Everything that the experiments need, each cell and each analysis once; also what failed, a line each."""
    executor = LocalExecutor(study.batch_size)
    wanted = {each.name: each.grids(study) for each in experiments if each.grids is not None}
    finder = Finder()
    made = {name: join(plans(grids, finder)) for name, grids in wanted.items()}
    whole = join(list(made.values()))
    failed = run_cells(whole, out / CELLS, executor) if whole.cells else list(whole.failures)
    cells = {name: _finished(plan, out / CELLS) for name, plan in made.items()}
    missing: dict[str, list[str]] = {name: _unfinished(plan, cells[name]) for name, plan in made.items()}
    found: dict[str, list[analysis.Result]] = {}
    for name in dict.fromkeys(each.analysis for each in experiments if each.analysis is not None):
        try:
            found[name] = analyse(name, study, executor, out / ROWS, screen)
        except (SoftDLMError, torch.OutOfMemoryError) as error:
            reason = Failure.of(error).reason
            missing[name] = [reason]
            failed.append(f"{name}: {reason}")
            screen.say(f"softdlm: {name}: {reason}")
    planned = {name: len(plan.cells) for name, plan in made.items()}
    return Data(study, cells, found, planned, missing), failed


def analyse(name: str, study: Study, executor: LocalExecutor, folder: Path, screen: Screen) -> list[analysis.Result]:
    """One analysis, a file of rows for each task, named by its settings: other settings never meet old rows."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    found = []
    for what, plan in ANALYSES[name](study, executor):
        file = folder / f"{name}-{what}-{short_digest(json.loads(json.dumps(plan.settings)))[:12]}.jsonl"
        began = time.monotonic()

        def show(done: int, total: int, what: str = what, began: float = began) -> None:
            facts = f"{done}/{total}", f"{clock(time.monotonic() - began)} so far"
            text = progress_line(done / total, f"{name} · {what}", *facts, width=screen.width)
            screen.show(text, last=done == total)

        found.append(analysis.run(executor.model(study.model), plan, file, show))
    return found


def _finished(plan: Plan, folder: Path) -> Cells:
    found = [Result.read(folder / each.key) for each in plan.cells if (folder / each.key / MANIFEST).exists()]
    return Cells([each for each in found if each.finished])


def _unfinished(plan: Plan, cells: Cells) -> list[str]:
    left = len(plan.cells) - len(cells.results)
    return [*plan.failures, *([f"{left} unfinished cells"] if left else [])]


def conclude(data: Data, experiments: Sequence[Experiment], failed: Sequence[str]) -> Report:
    """The report as a value, a function of what was measured."""
    study, found = data.study, protocol(data)
    work = f"Measured {found['date']}: {found['cells']} cells, {found['sample_passes']:,} sample-passes."
    other = f" The paper did not measure this model; its numbers beside ours are of {study.printed.model}."
    return Report(
        f"Soft tokens on {study.title}",
        work + ("" if study.printed.same else other),
        study.scale.mark,
        tuple(each.section(data) for each in experiments),
        tuple(findings(data, [each.name for each in experiments])),
        found,
        tuple(failed),
    )


def protocol(data: Data) -> dict[str, Any]:
    """Settings, versions, machine, and the work done in sample-passes."""
    results = _once(data)
    settings = {
        f"{each.labels['task']}, {each.protocol['task']['count']} items": each.protocol["decoding"]
        for each in {each.comparison: each for each in results}.values()
    }
    sessions = [each for result in results for each in read_manifest(result.folder)["sessions"]]
    return {
        "date": date.today().isoformat(),
        "cells": len(results),
        "sample_passes": sum(effort(each).forwards for each in results),
        "decoding_seconds": round(sum(effort(each).seconds for each in results), 1),
        "study": data.study.record(),
        "decoding": settings,
        "analyses": {name: [each.settings for each in found] for name, found in data.analyses.items()},
        "versions": {"softdlm": __version__, "python": platform.python_version(), **versions()},
        "hardware": hardware(),
        "measured_on": sorted({str(each.get("hardware")) for each in sessions}),
    }


def _once(data: Data) -> list[Result]:
    """Every cell once, whichever experiments share it."""
    return list({each.folder.name: each for cells in data.cells.values() for each in cells.results}.values())


def write_data(report: Report, data: Data, out: Path, name: str) -> None:
    """Everything that tables, figures and page are made of, and what that was made of in turn, small enough to keep."""
    folder = out / "data"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{name}.json", report.record())
        write_whole(folder / "cells.json", {"mark": report.mark, "cells": _cells_record(data)})
        for analysed in data.analyses:
            if analysed not in BULKY:
                rows = {"mark": report.mark, "rows": rows_record(data.rows(analysed))}
                write_whole(folder / f"{analysed}.json", rows)


def _cells_record(data: Data) -> list[dict[str, Any]]:
    """Every cell once, with its verdicts in the order of the sorted item ids."""
    results = _once(data)
    verdicts = {
        each.folder.name: "".join("01"[each.samples[item].correct] for item in sorted(each.samples)) for each in results
    }
    return [{**row, "verdicts": verdicts[row["cell"]]} for row in rows(results)]
