"""Carry a study out: cells, then analyses, then tables, figures, findings and the report. Stopped, it goes on."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from softdlm import __version__
from softdlm.analysis import plans as analysis
from softdlm.errors import SoftDLMError
from softdlm.evaluate.cell import short_digest
from softdlm.evaluate.executors import LocalExecutor
from softdlm.evaluate.grid import Finder, Plan, join, plans
from softdlm.evaluate.journal import MANIFEST, read_manifest, write_whole, writing
from softdlm.evaluate.run import bar, hardware, versions
from softdlm.evaluate.summary import Result, rows
from softdlm.report.formats import to_csv, to_latex, to_markdown
from softdlm.report.screen import Screen
from softdlm.reproduce.analyses import ANALYSES
from softdlm.reproduce.data import Cells, Data, effort
from softdlm.reproduce.evidence import Finding
from softdlm.reproduce.experiments import Experiment
from softdlm.reproduce.findings import findings
from softdlm.reproduce.mechanism import rows_record
from softdlm.reproduce.section import Section
from softdlm.reproduce.study import Study

CELLS, ROWS = "cells", "rows"
"""Folders of what is being measured; the others hold what is made of it."""
BULKY = ("agreement",)
"""Analyses whose rows stay in their own files."""
RunCells = Callable[[Plan, Path, LocalExecutor], list[str]]


@dataclass(frozen=True)
class Report:
    study: Study
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]
    protocol: dict[str, Any]
    """Every setting, the versions and the machine."""
    failed: tuple[str, ...]


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
        except SoftDLMError as error:
            missing[name] = [str(error)]
            failed.append(f"{name}: {error}")
            screen.say(f"softdlm: {name}: {error}")
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
            seconds = time.monotonic() - began
            screen.show(f"{bar(done / total)} {name}  {what}  {done}/{total}  {seconds:.0f} s", last=done == total)

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
    names = [each.name for each in experiments]
    return Report(
        data.study,
        tuple(each.section(data) for each in experiments),
        tuple(findings(data, names)),
        protocol(data),
        tuple(failed),
    )


def protocol(data: Data) -> dict[str, Any]:
    """Settings, versions, machine, and the work done in sample-passes."""
    results = {each.folder.name: each for cells in data.cells.values() for each in cells.results}
    comparisons = {each.comparison: each for each in results.values()}
    settings = {
        each.labels["task"]: {**each.protocol["decoding"], "count": each.protocol["task"]["count"]}
        for each in comparisons.values()
    }
    sessions = [each for result in results.values() for each in read_manifest(result.folder)["sessions"]]
    return {
        "date": date.today().isoformat(),
        "study": data.study.record(),
        "decoding": settings,
        "analyses": {name: [each.settings for each in found] for name, found in data.analyses.items()},
        "versions": {"softdlm": __version__, "python": platform.python_version(), **versions()},
        "hardware": hardware(),
        "measured_on": sorted({str(each.get("hardware")) for each in sessions}),
        "cells": len(results),
        "sample_passes": sum(effort(each).forwards for each in results.values()),
        "decoding_seconds": round(sum(effort(each).seconds for each in results.values()), 1),
    }


def write(report: Report, data: Data, out: Path, name: str) -> list[Path]:
    """Tables in three formats, figures, data, and the HTML report; returns what was written."""
    from softdlm.report.page import page

    written = []
    with writing(out):
        for folder in ("tables", "figures", "data"):
            (out / folder).mkdir(parents=True, exist_ok=True)
        for section in report.sections:
            for table in section.tables:
                for ending, text in (("md", to_markdown(table)), ("csv", to_csv(table)), ("tex", to_latex(table))):
                    written.append(_save(out / "tables" / f"{table.name}.{ending}", text))
            for drawing in section.drawings:
                drawing.draw(file=out / "figures" / f"{drawing.name}.svg")
                written.append(out / "figures" / f"{drawing.name}.svg")
            file = out / "data" / f"{section.name}.json"
            write_whole(file, _section_record(report, data, section))
            written.append(file)
        whole = {"findings": _findings_record(report), "cells": _cells_record(data), "protocol": report.protocol}
        for stem, value in whole.items():
            write_whole(out / "data" / f"{stem}.json", value)
            written.append(out / "data" / f"{stem}.json")
        figures = {file.stem: file.read_text(encoding="utf-8") for file in written if file.suffix == ".svg"}
        written.append(_save(out / f"{name}.html", page(report, figures)))
    return written


def _save(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


def _section_record(report: Report, data: Data, section: Section) -> dict[str, Any]:
    return {
        "scale": report.study.scale.name,
        "mark": report.study.scale.mark,
        "experiment": section.name,
        "title": section.title,
        "measured": section.measured,
        "not_measured": section.not_measured,
        "tables": [table.record() for table in section.tables],
        "rows": {
            name: rows_record(data.rows(name))
            for name in data.analyses
            if name not in BULKY and name == _analysis_of(section.name)
        },
    }


def _analysis_of(name: str) -> str | None:
    from softdlm.reproduce.experiments import EXPERIMENTS

    return next(each.analysis for each in EXPERIMENTS if each.name == name)


def _findings_record(report: Report) -> dict[str, Any]:
    return {"mark": report.study.scale.mark, "findings": [asdict(each) for each in report.findings]}


def _cells_record(data: Data) -> dict[str, Any]:
    """Every cell once, with its verdicts in the order of the sorted item ids."""
    results = {each.folder.name: each for cells in data.cells.values() for each in cells.results}
    strings = {
        key: "".join("01"[each.samples[item].correct] for item in sorted(each.samples)) for key, each in results.items()
    }
    found = [{**row, "verdicts": strings[row["cell"]]} for row in rows(list(results.values()))]
    return {"mark": data.study.scale.mark, "cells": found}
