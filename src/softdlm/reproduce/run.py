"""Measure what a study's experiments need, cells first, then analyses, and make the report. A stopped run resumes."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import torch

from softdlm.analysis.plans import Result as AnalysisResult
from softdlm.analysis.plans import run as run_analysis
from softdlm.errors import SoftDLMError
from softdlm.evaluate.executors import Failure, LocalExecutor
from softdlm.evaluate.grid import Finder, Plan, join, plans
from softdlm.evaluate.run import hardware, versions
from softdlm.evaluate.summary import Result, rows
from softdlm.records.canonical import digest
from softdlm.records.files import write_json, writing
from softdlm.records.journal import MANIFEST, read_manifest
from softdlm.report.document import Report
from softdlm.report.progress import Screen, clock, progress_line
from softdlm.report.words import rounded
from softdlm.reproduce.analyses import Analysis
from softdlm.reproduce.experiment import Experiment
from softdlm.reproduce.measurements import Cells, Measurements, effort
from softdlm.reproduce.study import Study
from softdlm.version import __version__

CELLS, ROWS = "cells", "rows"
"""Folders of the measurements themselves; the other folders hold what is made of them."""
BULKY = ("agreement",)
"""Analyses whose rows are not copied into the data files."""
RunCells = Callable[[Plan, Path, LocalExecutor], list[str]]


def collect(
    study: Study, experiments: Sequence[Experiment], out: Path, run_cells: RunCells, screen: Screen
) -> tuple[Measurements, list[str]]:
    """Everything that the experiments need, each cell and each analysis once; also what failed, a line each."""
    executor = LocalExecutor(study.batch_size)
    finder = Finder()
    wanted = {each.name: join(plans(each.cells(study), finder)) for each in experiments if each.cells is not None}
    whole = join(list(wanted.values()))
    failed = run_cells(whole, out / CELLS, executor) if whole.cells else list(whole.failures)
    cells = {name: _finished(plan, out / CELLS) for name, plan in wanted.items()}
    missing: dict[str, list[str]] = {name: _unfinished(plan, cells[name]) for name, plan in wanted.items()}
    found: dict[str, list[AnalysisResult]] = {}
    for name, analysis in {each.analysis.name: each.analysis for each in experiments if each.analysis}.items():
        try:
            found[name] = analyse(analysis, study, executor, out / ROWS, screen)
        except (SoftDLMError, torch.OutOfMemoryError) as error:
            reason = Failure.of(error).reason
            missing[name] = [reason]
            failed.append(f"{name}: {reason}")
            screen.say(f"softdlm: {name}: {reason}")
    planned = {name: len(plan.cells) for name, plan in wanted.items()}
    return Measurements(study, cells, found, planned, missing), failed


def analyse(
    analysis: Analysis, study: Study, executor: LocalExecutor, folder: Path, screen: Screen
) -> list[AnalysisResult]:
    """One analysis, a file of rows for each plan; a digest of the settings in its name keeps other settings apart."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    found = []
    for what, plan in analysis.plans(study, executor):
        file = folder / f"{analysis.name}-{what}-{digest(json.loads(json.dumps(plan.settings)))[:12]}.jsonl"
        began = time.monotonic()

        def show(done: int, total: int, label: str = f"{analysis.name} · {what}", began: float = began) -> None:
            facts = f"{done}/{total}", f"{clock(time.monotonic() - began)} so far"
            screen.show(progress_line(done / total, label, *facts, width=screen.width), last=done == total)

        found.append(run_analysis(executor.model(study.loaded), plan, file, show))
    return found


def _finished(plan: Plan, folder: Path) -> Cells:
    found = [Result.read(folder / each.key) for each in plan.cells if (folder / each.key / MANIFEST).exists()]
    return Cells([each for each in found if each.finished])


def _unfinished(plan: Plan, cells: Cells) -> list[str]:
    left = len(plan.cells) - len(cells.results)
    return [*plan.failures, *([f"{left} unfinished cells"] if left else [])]


def conclude(measured: Measurements, experiments: Sequence[Experiment], failed: Sequence[str]) -> Report:
    """The report, a pure function of the measurements but for the date and the machine."""
    study, found = measured.study, protocol(measured)
    work = f"Measured {found['date']}: {found['cells']} cells, {found['sample_passes']:,} sample-passes."
    other = f" The paper did not measure this model; its numbers beside ours are of {study.printed.model}."
    return Report(
        f"Soft tokens on {study.title}",
        work + ("" if study.printed.same else other),
        study.scale.mark,
        tuple(each.section(measured) for each in experiments),
        tuple(finding for each in experiments for finding in each.findings(measured)),
        found,
        tuple(failed),
    )


def protocol(measured: Measurements) -> dict[str, Any]:
    """Settings, versions, machine, and the work done in sample-passes."""
    results = measured.all_cells()
    sessions = [each for result in results for each in read_manifest(result.folder)["sessions"]]
    return {
        "date": date.today().isoformat(),
        "cells": len(results),
        "sample_passes": sum(effort(each).forwards for each in results),
        "decoding_seconds": round(sum(effort(each).seconds for each in results), 1),
        "study": measured.study.record(),
        "decoding": measured.decoding_settings(),
        "analyses": {name: [each.settings for each in found] for name, found in measured.analyses.items()},
        "versions": {"softdlm": __version__, "python": platform.python_version(), **versions()},
        "hardware": hardware(),
        "measured_on": sorted({str(each.get("hardware")) for each in sessions}),
    }


def write_data(report: Report, measured: Measurements, out: Path, name: str) -> None:
    """The report as data, and the cells and rows that it was made of, small enough to keep."""
    folder = out / "data"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{name}.json", report.record())
        write_json(folder / "cells.json", {"mark": report.mark, "cells": _cells_record(measured)})
        for analysed in measured.analyses:
            if analysed not in BULKY:
                found = [rounded(asdict(row)) for row in measured.rows(analysed)]
                write_json(folder / f"{analysed}.json", {"mark": report.mark, "rows": found})


def _cells_record(measured: Measurements) -> list[dict[str, Any]]:
    """Every cell once, with its verdicts in the order of the sorted item ids."""
    results = measured.all_cells()
    verdicts = {
        each.folder.name: "".join("01"[each.samples[item].correct] for item in sorted(each.samples)) for each in results
    }
    return [{**row, "verdicts": verdicts[row["cell"]]} for row in rows(results)]
