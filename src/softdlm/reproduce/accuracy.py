"""Tables and figures made of cells: 2, 5, 6, 7, Figure 2, the frontier, and the rules of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from softdlm.evaluate.cell import Rate
from softdlm.evaluate.metrics import Share, mcnemar
from softdlm.evaluate.summary import Result
from softdlm.report.document import Drawing
from softdlm.report.figures import Point
from softdlm.report.table import Cell, Column, Row, Table, mark_best
from softdlm.reproduce import grids
from softdlm.reproduce.labels import INTERVAL, items_note, method_title, paper_notes, strength_note
from softdlm.reproduce.measurements import Cells, Data, effort, is_of, paired, verdicts
from softdlm.reproduce.study import task_title


def accuracy(result: Result | None, base: Result | None = None, paper: float | None = None) -> Cell:
    """Per cent solved; with a p-value against another cell, that of the table's first column."""
    if result is None:
        return Cell(paper=paper)
    share = Share.of(list(verdicts(result).values()))
    other = base is not None and base.folder != result.folder
    note = f"p {mcnemar(*paired(base, result)):.2g}" if other and base is not None else ""
    return Cell(share.percent, share.low, share.high, paper, note=note)


def passes(result: Result | None) -> Cell:
    return Cell(None if result is None else effort(result).passes)


def recovered(result: Result | None, single: Result | None, paper: float | None = None) -> Cell:
    """Of what vanilla solves one token at a time, the per cent solved too (appendix C); n/a where that is nothing."""
    if result is None or single is None:
        return Cell(paper=paper)
    before, after = paired(single, result)
    kept = [now for was, now in zip(before, after, strict=True) if was]
    if not kept:
        return Cell("n/a", paper=paper)
    share = Share.of(kept)
    return Cell(share.percent, share.low, share.high, paper)


def table2(data: Data) -> list[Table]:
    study, cells, places = data.study, data.cells["table2"], data.study.places(*grids.MAIN)
    rows = []
    for task, name in places.items():
        for n, rate in zip(grids.RATES, grids.per_step(*grids.RATES), strict=True):
            found = [cells.find(task, method, rate) for method in grids.PAPER_METHODS]
            printed = [study.printed.value("table2", name, method, n) for method in grids.PAPER_METHODS]
            line = [accuracy(each, found[0], value) for each, value in zip(found, printed, strict=True)]
            rows.append(Row((task_title(task), str(n)), mark_best(line, higher=True)))
    title = f"Table 2. Accuracy in per cent, {study.title}"
    return [_table(data, "table2", title, ("task", "tokens a step"), grids.PAPER_METHODS, rows, places)]


def table5(data: Data) -> list[Table]:
    study, cells, places = data.study, data.cells["table5"], data.study.places(*grids.ABLATED)
    (rate,) = grids.per_step(2)
    rows = []
    for task, name in places.items():
        found = [cells.find(task, method, rate) for method in grids.NORM_ABLATION]
        printed = [study.printed.value("table5", name, method) for method in grids.NORM_ABLATION]
        line = [accuracy(each, found[0], value) for each, value in zip(found, printed, strict=True)]
        rows.append(Row((task_title(task),), mark_best(line, higher=True)))
    title = f"Table 5. Interpolation and output norm: accuracy in per cent at 2 tokens a step, {study.title}"
    return [_table(data, "table5", title, ("task",), grids.NORM_ABLATION, rows, places)]


def table6(data: Data) -> list[Table]:
    """The paper's accuracies, and the passes that it does not print."""
    study, cells, places = data.study, data.cells["table6"], data.study.places(*grids.ADAPTIVE)
    rates = {"threshold": Rate("threshold", grids.THRESHOLD), "entropy_bound": Rate("entropy_bound", grids.BOUND)}
    rows = []
    for task, name in places.items():
        for kind, rate in rates.items():
            found = [cells.find(task, method, rate) for method in ("vanilla", "slerp")]
            printed = [study.printed.value("table6", name, kind, method) for method in ("vanilla", "slerp")]
            line = [accuracy(each, found[0], value) for each, value in zip(found, printed, strict=True)]
            line = mark_best(line, higher=True)
            rows.append(Row((task_title(task), str(rate)), (*line, *map(passes, found))))
    columns = (Column("alone"), Column("with SLERP"), Column("passes alone"), Column("passes with SLERP"))
    title = f"Table 6. Adaptive samplers without and with soft tokens: accuracy in per cent, {study.title}"
    return [_table(data, "table6", title, ("task", "sampler"), columns, rows, places)]


def table7(data: Data) -> list[Table]:
    study, cells, places = data.study, data.cells["table7"], data.study.places(*grids.MAIN)
    rows = []
    for task, name in places.items():
        single = cells.single(task)
        for n, rate in zip(grids.RATES, grids.per_step(*grids.RATES), strict=True):
            line = [
                recovered(cells.find(task, method, rate), single, study.printed.value("table7", name, method, n))
                for method in grids.PAPER_METHODS
            ]
            rows.append(Row((task_title(task), str(n)), mark_best(line, higher=True)))
    singles = {task_title(task): single for task in places if (single := cells.single(task)) is not None}
    shares = {task: Share.of(list(verdicts(single).values())) for task, single in singles.items()}
    solved = ", ".join(f"{task} {share} %" for task, share in shares.items())
    title = f"Table 7. Recovery of single-token decoding in per cent, {study.title}"
    notes = (f"Vanilla solves at 1 token a step: {solved}.", "Brackets: 95 % intervals (Wilson) over those items.")
    table = _table(data, "table7", title, ("task", "tokens a step"), grids.PAPER_METHODS, rows, places, intervals=False)
    return [_with_notes(table, notes if shares else ())]


def figure2(data: Data) -> list[Table]:
    """The figure's numbers."""
    tables = []
    for name, title in (("lam", "λ"), ("k", "k")):
        rows = []
        for task in grids.sensitivity_tasks(data.study):
            line = [accuracy(cell) for _, cell in _sweep(data, task, name)]
            values = [value for value, _ in _sweep(data, task, name)]
            pairs = zip(values, mark_best(line, higher=True), strict=True)
            rows += [Row((task_title(task), f"{value:g}"), (cell,)) for value, cell in pairs]
        what = f"Figure 2. Sensitivity to {title}: SLERP at {data.study.sensitivity_rate} tokens a step"
        note = "The rate of the paper's figure is not printed; its values are not either."
        columns = (Column("accuracy, %"),)
        tables.append(
            Table(f"figure2-{name}", what, ("task", title), columns, tuple(rows), (note,), data.study.scale.mark)
        )
    return tables


def figure2_drawings(data: Data) -> list[Drawing]:
    (rate,) = grids.per_step(data.study.sensitivity_rate)
    drawings = []
    for task in grids.sensitivity_tasks(data.study):
        bare = data.cells["figure2"].find(task, "vanilla", rate)
        panels = {}
        k, lam = data.study.strength(task)
        for name, title in (("lam", f"k = {k}"), ("k", f"λ = {lam:g}")):
            panels[title] = {"slerp": [_point(cell, value) for value, cell in _sweep(data, task, name)]}
        caption = f"{task_title(task)}: SLERP over λ and over k, {data.study.sensitivity_rate} tokens a step."
        held = None if bare is None else _point(bare, 0.0)
        labels = {"xlabels": ["λ", "k"], "ylabel": f"{task_title(task)} accuracy, %", "held": held}
        drawings.append(Drawing(f"figure2-{task}", caption, "curves", {"panels": panels, **labels}))
    return drawings


def table2_drawings(data: Data) -> list[Drawing]:
    cells = data.cells["table2"]
    panels = {
        task_title(task): {
            method: [
                _point(cell, n)
                for n, rate in zip(grids.RATES, grids.per_step(*grids.RATES), strict=True)
                if (cell := cells.find(task, method, rate)) is not None
            ]
            for method in grids.PAPER_METHODS
        }
        for task in data.study.places(*grids.MAIN)
    }
    labels = {"xlabels": ["tokens a step"] * len(panels), "ylabel": "accuracy, %", "doubling": True}
    caption = "Table 2 as curves, with 95 % intervals."
    return [Drawing("table2", caption, "curves", {"panels": panels, **labels})] if panels else []


def frontier(data: Data) -> list[Table]:
    study, cells, places = data.study, data.cells["frontier"], data.study.places(*grids.ADAPTIVE)
    methods = study.scale.frontier
    rows = []
    for task in places:
        for rate in _rates(cells, task):
            found = [cells.find(task, method, rate) for method in methods]
            line = mark_best([accuracy(each, found[0]) for each in found], higher=True)
            rows.append(Row((task_title(task), str(rate)), (*line, *map(passes, found))))
    titles = [method_title(method) for method in methods]
    columns = (*map(Column, titles), *(Column(f"passes, {title}") for title in titles))
    title = f"Frontier (beyond the paper). Accuracy in per cent and forward passes an answer, {study.title}"
    return [_table(data, "frontier", title, ("task", "commit rule"), columns, rows, None)]


def frontier_drawings(data: Data) -> list[Drawing]:
    cells, drawings = data.cells["frontier"], []
    for task in data.study.places(*grids.ADAPTIVE):
        series = {
            f"{method}, {kind}": [
                _point(cell, effort(cell).passes)
                for rate in _rates(cells, task)
                if rate.name == name and (cell := cells.find(task, method, rate)) is not None
            ]
            for name, kind in (("tokens_per_step", "fixed"), ("threshold", "threshold"), ("entropy_bound", "entropy"))
            for method in data.study.scale.frontier
        }
        single = cells.single(task)
        held = None if single is None else _point(single, effort(single).passes)
        shown = {name: points for name, points in series.items() if points}
        arguments = {"series": shown, "title": task_title(task), "held": held, "below": True}
        band = " The band is vanilla at one token a step." if held else ""
        caption = f"{task_title(task)}: accuracy against forward passes, by kind of commit rule.{band}"
        drawings.append(Drawing(f"frontier-{task}", caption, "passes", arguments))
    return drawings


def extras(data: Data) -> list[Table]:
    study, cells, places = data.study, data.cells["extras"], data.study.places(*grids.MAIN)
    methods = (*grids.PAPER_METHODS, *grids.OTHERS)
    rows = []
    for task in places:
        for n, rate in zip(study.scale.extra_rates, grids.per_step(*study.scale.extra_rates), strict=True):
            found = [cells.find(task, method, rate) for method in methods]
            line = mark_best([accuracy(each, found[0]) for each in found], higher=True)
            rows.append(Row((task_title(task), str(n)), line))
    title = f"Extras (beyond the paper). Other published rules: accuracy in per cent, {study.title}"
    table = _table(data, "extras", title, ("task", "tokens a step"), methods, rows, None)
    whose = "Additive is dInfer's smoothing, NormMix DMax's norm rule, each at its own strength."
    return [_with_notes(table, (whose,))]


def _table(
    data: Data,
    name: str,
    title: str,
    heads: tuple[str, ...],
    columns: Sequence[str | Column],
    rows: Iterable[Row],
    places: Mapping[str, str] | None,
    *,
    intervals: bool = True,
) -> Table:
    """With the notes that all tables of cells have; `places` None: the paper has no such table."""
    made = tuple(Column(method_title(each)) if isinstance(each, str) else each for each in columns)
    rows = tuple(rows)
    counts = {task: len(each.samples) for each in data.cells[name].results for task in [each.labels["task"]]}
    there = any(cell.paper is not None for row in rows for cell in row.cells)
    notes = [items_note(counts)] if counts else ["No cell is finished."]
    notes += [strength_note(data.study, places or data.study.tasks)]
    notes += [INTERVAL] if intervals else []
    notes += paper_notes(data.study, places, there) if places is not None else []
    return Table(name, title, heads, made, rows, tuple(notes), data.study.scale.mark)


def _with_notes(table: Table, notes: tuple[str, ...]) -> Table:
    return Table(**{**vars(table), "notes": (*table.notes, *notes)})


def _point(result: Result, x: float) -> Point:
    share = Share.of(list(verdicts(result).values()))
    return Point(x, share.percent, share.low, share.high)


def _sweep(data: Data, task: str, name: str) -> Iterator[tuple[float, Result]]:
    """SLERP over one of its settings, the other as in the accuracy tables."""
    k, lam = data.study.strength(task)
    return data.cells["figure2"].swept(task, "slerp", name, **({"k": k} if name == "lam" else {"lam": lam}))


def _rates(cells: Cells, task: str) -> list[Rate]:
    """The rates that a task's cells have, from slow to fast within a kind."""
    found = {
        (each.protocol["rate"]["name"], each.protocol["rate"]["value"]) for each in cells.results if is_of(each, task)
    }
    return [Rate(name, value) for name, value in sorted(found)]
