"""Measure what a study's experiments need, cells first, then analyses, and make the report. A stopped run resumes."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from softdlm.reproduce.study import Grids, Study, titles
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
    executor, finder = LocalExecutor(study.batch_size), Finder()
    folder, failed = out / CELLS, list[str]()

    def measure(wanted: Mapping[str, Plan]) -> dict[str, Cells]:
        whole = join(list(wanted.values()))
        told = run_cells(whole, folder, executor) if whole.cells else whole.failures
        failed.extend(line for line in told if line not in failed or line not in whole.failures)
        return {name: finished(plan, folder) for name, plan in wanted.items()}

    def plan(grids: Mapping[str, Grids]) -> dict[str, Plan]:
        return {name: join(plans(each, finder)) for name, each in grids.items()}

    searched = plan({each.name: each.search(study) for each in experiments if each.search})
    fixed = plan({each.name: each.cells(study) for each in experiments if each.cells})
    searches = measure(searched)
    follow = plan({each.name: each.follow(study, searches[each.name]) for each in experiments if each.follow})
    wanted = {name: join([each, follow[name]]) if name in follow else each for name, each in fixed.items()}
    cells = measure(wanted)
    missing = {name: _unfinished(each, cells[name]) for name, each in wanted.items()}
    found = _analyses(study, experiments, out / ROWS, executor, screen, missing, failed)
    planned = {name: len(each.cells) for name, each in wanted.items()}
    return Measurements(study, cells, found, planned, searches, missing), failed


def _analyses(
    study: Study,
    experiments: Sequence[Experiment],
    folder: Path,
    executor: LocalExecutor,
    screen: Screen,
    missing: dict[str, list[str]],
    failed: list[str],
) -> dict[str, list[AnalysisResult]]:
    """The rows of every analysis; why one could not be made is added to `missing` and `failed`."""
    found: dict[str, list[AnalysisResult]] = {}
    for name, analysis in {each.analysis.name: each.analysis for each in experiments if each.analysis}.items():
        try:
            found[name] = analyse(analysis, study, executor, folder, screen)
        except (SoftDLMError, torch.OutOfMemoryError) as error:
            reason = Failure.of(error).reason
            missing[name] = [reason]
            failed.append(f"{name}: {reason}")
            screen.say(f"softdlm: {name}: {reason}")
    return found


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


def finished(plan: Plan, folder: Path) -> Cells:
    found = [Result.read(folder / each.key) for each in plan.cells if (folder / each.key / MANIFEST).exists()]
    return Cells([each for each in found if each.finished])


def _unfinished(plan: Plan, cells: Cells) -> list[str]:
    left = len(plan.cells) - len(cells.results)
    return [*plan.failures, *([f"{left} unfinished cells"] if left else [])]


def conclude(every: Sequence[Measurements], experiments: Sequence[Experiment], failed: Sequence[str]) -> Report:
    """The report on one model or several, a pure function of the measurements but for the date and the machine."""
    studies, found = [each.study for each in every], protocol(every)
    work = f"Measured {found['date']}: {found['cells']} cells, {found['sample_passes']:,} sample-passes."
    return Report(
        f"Soft tokens on {_listed(titles(studies))}",
        " ".join([work, *_orientation(studies)]),
        studies[0].scale.mark,
        tuple(each.section(*every) for each in experiments),
        tuple(finding for each in experiments for finding in each.findings(*every)),
        found,
        tuple(failed),
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _orientation(studies: Sequence[Study]) -> Iterator[str]:
    """Whose numbers stand beside those of models that the paper did not measure."""
    for name, study in zip(titles(studies), studies, strict=True):
        if not study.printed.same:
            which = "this model" if len(studies) == 1 else name
            yield f"The paper did not measure {which}; its numbers beside ours are of {study.printed.model}."


def protocol(every: Sequence[Measurements]) -> dict[str, Any]:
    """Settings, versions, machine, and the work done in sample-passes; with several models, settings by model."""
    results = [result for measured in every for result in measured.all_cells()]
    sessions = [each for result in results for each in read_manifest(result.folder)["sessions"]]
    names = titles([each.study for each in every])

    def by_model(of: Callable[[Measurements], Any]) -> Any:
        return of(every[0]) if len(every) == 1 else {name: of(each) for name, each in zip(names, every, strict=True)}

    return {
        "date": date.today().isoformat(),
        "cells": len(results),
        "sample_passes": sum(effort(each).forwards for each in results),
        "decoding_seconds": round(sum(effort(each).seconds for each in results), 1),
        "study": by_model(lambda each: each.study.record()),
        "decoding": by_model(Measurements.decoding_settings),
        "analyses": by_model(_analysis_settings),
        "versions": {"softdlm": __version__, "python": platform.python_version(), **versions()},
        "hardware": hardware(),
        "measured_on": sorted({str(each.get("hardware")) for each in sessions}),
    }


def _analysis_settings(measured: Measurements) -> dict[str, Any]:
    return {name: [each.settings for each in found] for name, found in measured.analyses.items()}


def write_data(report: Report, every: Sequence[Measurements], out: Path, name: str) -> None:
    """The report as data, and the cells and rows that it was made of, small enough to keep."""
    folder = out / "data"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{name}.json", report.record())
        cells = [record for measured in every for record in _cells_record(measured)]
        write_json(folder / "cells.json", {"mark": report.mark, "cells": cells})
        for analysed in dict.fromkeys(name for measured in every for name in measured.analyses):
            if analysed not in BULKY:
                write_json(folder / f"{analysed}.json", {"mark": report.mark, "rows": _rows_record(every, analysed)})


def _rows_record(every: Sequence[Measurements], analysed: str) -> list[dict[str, Any]]:
    """The rows of an analysis, with the model where there are several."""
    names = titles([each.study for each in every])
    return [
        ({"model": name} if len(every) > 1 else {}) | rounded(asdict(row))
        for name, measured in zip(names, every, strict=True)
        for row in measured.rows(analysed)
    ]


def _cells_record(measured: Measurements) -> list[dict[str, Any]]:
    """Every cell once, with its verdicts in the order of the sorted item ids: right, and where asked consistent."""
    results = measured.all_cells()
    verdicts = {each.folder.name: _digits(each) for each in results}
    return [{**row, **verdicts[row["cell"]]} for row in rows(results)]


def _digits(result: Result) -> dict[str, str]:
    ids = sorted(result.samples)
    consistent = result.consistent(ids)
    found = {"verdicts": result.verdicts(ids)} | ({} if consistent is None else {"consistent": consistent})
    return {name: "".join("01"[each] for each in values) for name, values in found.items()}
