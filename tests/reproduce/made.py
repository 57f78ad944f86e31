"""Studies, cells and rows made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from softdlm.analysis.plans import Result as AnalysisResult
from softdlm.decoding import Decoding
from softdlm.evaluate.cell import Cell, ModelSpec, TaskSpec
from softdlm.evaluate.summary import Result
from softdlm.reproduce.measurements import Cells, Measurements
from softdlm.reproduce.study import FULL, Scale, Study
from tests.evaluate.cells import write_cell

ITEMS = 20
STUDY = Study(ModelSpec("tiny", "cpu", "float32"), "llada", ("mini-math", "mini-code"))


def study(scale: Scale = FULL, **changes: Any) -> Study:
    return replace(STUDY, scale=scale, **changes)


def result(
    root: Path,
    task: str,
    method: str,
    commit: str,
    solved: Sequence[int],
    *,
    items: int = ITEMS,
    finished: bool = True,
    forwards: int = 4,
    consistent: Sequence[int] | None = None,
) -> Result:
    """A cell on disk that solves the items with these numbers; the method is a spelled feedback rule.

    `consistent` are the numbers of the answers that agree with themselves: by default all.
    """
    one = Cell(STUDY.model, TaskSpec(task), Decoding(commit=commit, feedback=method, max_new_tokens=8).settled())
    names = {f"{task}-{number:03}": number for number in range(items)}
    verdicts = {name: number in solved for name, number in names.items()}
    agree = {name: consistent is None or number in consistent for name, number in names.items()}
    folder = write_cell(root / task, one, verdicts, finished=finished, forwards=forwards, consistent=agree)
    return Result.read(folder)


def measured(
    cells: dict[str, list[Result]] | None = None, rows: dict[str, list[Any]] | None = None, **more: Any
) -> Measurements:
    found = {
        name: [AnalysisResult({"qualify": len(each), "of": 70}, {}, [], each)] for name, each in (rows or {}).items()
    }
    return Measurements(
        more.pop("study", STUDY), {name: Cells(each) for name, each in (cells or {}).items()}, found, **more
    )


def grid_of(root: Path, solved: dict[str, Sequence[int]], single: Sequence[int] | None = None) -> list[Result]:
    """mini-math cells at 2, 4 and 8 a step: method -> how many of the items it solves at each, from the first."""
    made = [
        result(root, "mini-math", method, f"topn({n})", range(count))
        for method, counts in solved.items()
        for n, count in zip((2, 4, 8), counts, strict=True)
    ]
    return made if single is None else [*made, result(root, "mini-math", "vanilla", "topn(1)", single)]
