"""What tables are made of: titles, notes, cells of accuracies and of means, and the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from softdlm.evaluate.metrics import Mean, mcnemar
from softdlm.evaluate.summary import Result
from softdlm.report.figures import Point
from softdlm.report.table import Cell, Column, Row, Table, mark_best
from softdlm.reproduce.measurements import Cells, Measurements, Of, effort, paired, right, share
from softdlm.reproduce.study import Study, strength_words, task_title

METHODS = {
    "euclidean": "Euclidean",
    "slerp": "SLERP",
    "slerp-candidate-norm": "SLERP, candidate norm",
    "euclidean-mask-norm": "linear, [MASK] norm",
    "additive": "Additive",
    "norm-mix": "NormMix",
    "lrd": "LRD",
    "remix": "ReMix",
    "soft-token-5": "SoftToken, 5",
    "euclidean-best": "Euclidean, best",
    "slerp-best": "SLERP, best",
}
INTERVAL = "Brackets: 95 % intervals (Wilson). p: exact McNemar test against the first column, same items."


def method_title(name: str) -> str:
    return METHODS.get(name, name)


def accuracy(result: Result | None, base: Result | None = None, of: Of = right) -> Cell:
    """Per cent solved (or what else `of` asks), with a p-value against `base` where that is another cell."""
    if result is None:
        return Cell()
    other = None if base is None or base.folder == result.folder else base
    return Cell(*share(result, of)[:3], note=f"p {mcnemar(*paired(other, result, of)):.2g}" if other else "")


def accuracies(
    cells: Cells, task: str, methods: Sequence[str], commit: str, *, passes: bool = False, of: Of = right
) -> list[Cell]:
    """The methods at one rate, with p-values against the first; then, if asked for, their passes."""
    found = [cells.find(task, method, commit) for method in methods]
    efforts = [Cell(None if each is None else effort(each).passes) for each in found if passes]
    return [*mark_best([accuracy(each, found[0], of) for each in found], higher=True), *efforts]


def point(result: Result, x: float, of: Of = right) -> Point:
    """Accuracy in per cent (or what else `of` asks) with its interval, drawn at x."""
    return Point(x, *share(result, of)[:3])


def mean_cell(values: Sequence[float], weights: Sequence[float] | None = None) -> Cell:
    """A mean with its bootstrap interval; empty where there are no values."""
    return Cell(*Mean.of(values, weights)[:3]) if values else Cell()


def beside_paper(cells: Sequence[Cell], numbers: Sequence[float | None] | None) -> tuple[Cell, ...]:
    """The first cells with the numbers that the paper prints in their places; unchanged where it prints none."""
    printed = [replace(cell, paper=number) for cell, number in zip(cells, numbers or (), strict=False)]
    return (*printed, *cells[len(printed) :])


def cell_table(
    measured: Measurements,
    name: str,
    title: str,
    heads: tuple[str, ...],
    columns: Sequence[str],
    rows: Mapping[tuple[str, ...], Sequence[Cell]],
    places: Mapping[str, str] | None,
    *,
    interval: str = INTERVAL,
    last: Sequence[str] = (),
    soft: str = "",
    own: str = "",
) -> Table:
    """A table of accuracies by row labels; `places` (task -> benchmark) is None where the paper has no such table.

    `soft` says what the soft tokens' settings are, where they are not each task's own k and lambda. `own` is the
    table's own name, where an experiment has several.
    """
    study, lines = measured.study, tuple(Row(labels, tuple(cells)) for labels, cells in rows.items())
    counts = {each.labels["task"]: len(each.samples) for each in measured.cells[name].results}
    items = ", ".join(f"{count:,} {task_title(task)}" for task, count in counts.items())
    there = any(cell.paper is not None for line in lines for cell in line.cells)
    soft = soft or f"Soft tokens with {strength_words(study, places or study.tasks)}."
    first = [f"Items: {items}." if counts else "No cell is finished.", soft]
    printed = () if places is None else paper_notes(study, places, there)
    every = [*first, *([interval] if interval else ()), *printed, *last]
    made = tuple(Column(method_title(each)) for each in columns)
    return Table(own or name, f"{title}, {study.title}", heads, made, lines, tuple(every), study.scale.mark)


def accuracy_table(
    measured: Measurements, name: str, title: str, heads: tuple[str, ...], benchmarks: Sequence[str],
    methods: Sequence[str], rates: Mapping[Any, str], paper: Mapping[str, Any] | None = None,
    columns: Sequence[str] = (), passes: bool = False, last: Sequence[str] = (),
) -> Table:  # fmt: skip
    """The accuracies of methods, a row for each task and rate; one of no name has no label.

    `paper` is model -> benchmark -> a row, or the rows by rate or commit rule; None where the paper has no such table.
    """
    places, rows = measured.study.places(*benchmarks), {}
    for task, benchmark in places.items():
        printed = measured.study.printed.value(paper or {}, benchmark)
        for rate, commit in rates.items():
            numbers = printed.get(rate, printed.get(commit)) if isinstance(printed, dict) else printed
            found = accuracies(measured.cells[name], task, methods, commit, passes=passes)
            rows[task_title(task), *filter(None, [str(rate)])] = beside_paper(found, numbers)
    beside = None if paper is None else places
    return cell_table(measured, name, title, heads, columns or methods, rows, beside, last=last)


def mean_table(
    study: Study,
    name: str,
    title: str,
    heads: tuple[str, ...],
    columns: Sequence[Column],
    rows: Sequence[Row],
    note: str,
    drawn: str,
    printed: Sequence[str],
) -> Table:
    """A table of means over what `drawn` names (prompts, items); `printed` are the notes on the paper's numbers."""
    notes = (note, f"Brackets: 95 % intervals (bootstrap over {drawn}).", *printed)
    return Table(name, f"{title}, {study.title}", heads, tuple(columns), tuple(rows), notes, study.scale.mark)


def paper_notes(study: Study, places: Mapping[str, str] | None, there: bool = True) -> tuple[str, ...]:
    """Which model the paper's numbers are of.

    `places` is task -> benchmark, None where the paper's table has no benchmarks; `there` says whether it has numbers.
    """
    printed = study.printed
    if not there:
        return (f"The paper prints no such numbers of {printed.model}.",)
    beside = "".join(
        f", {task_title(name)} beside {task}" for task, name in (places or {}).items() if task_title(task) == task
    )
    if printed.same:
        return (f"Paper: the same model{beside}.",)
    return (f"Paper: {printed.model}{beside}. Another model, so its numbers are for orientation only.",)


def prompts_note(study: Study) -> str:
    return "Prompts inside the chat template." if study.chat else "Prompts as raw text."
