"""Frontier, beyond the paper: accuracy against forward passes over thresholds and entropy bounds."""

from __future__ import annotations

from softdlm.report.document import Drawing
from softdlm.report.table import Table
from softdlm.reproduce import table2
from softdlm.reproduce.experiment import Experiment
from softdlm.reproduce.measurements import Measurements, effort
from softdlm.reproduce.study import Grids, Study, rate_title, steps, task_title
from softdlm.reproduce.table6 import BENCHMARKS, adaptive, most_items
from softdlm.reproduce.table_parts import accuracies, cell_table, method_title, point


def commits(study: Study) -> dict[str, tuple[str, ...]]:
    """Kind -> its commit rules."""
    thresholds = tuple(f"threshold({tau})" for tau in study.scale.thresholds)
    bounds = tuple(f"entropy({gamma})" for gamma in study.scale.bounds)
    return {"fixed": steps(1, *table2.RATES), "threshold": thresholds, "entropy": bounds}


def cells(study: Study) -> Grids:
    """Table 6 over many thresholds and bounds; beside them the fixed rates, where Table 7 has the same items."""
    kinds = commits(study)
    whole = [task for task in study.places(*BENCHMARKS) if most_items(study, task) is None]
    return [
        *adaptive(study, study.scale.frontier, kinds["threshold"] + kinds["entropy"]),
        *study.grids(whole, study.scale.frontier, steps(*table2.RATES), single=True),
    ]


def tables(measured: Measurements) -> list[Table]:
    found, methods = measured.cells["frontier"], measured.study.scale.frontier
    rows = {
        (task_title(task), rate_title(commit)): accuracies(found, task, methods, commit, passes=True)
        for task in measured.study.places(*BENCHMARKS)
        for kind in reversed(commits(measured.study).values())
        for commit in kind
        if any(found.find(task, method, commit) for method in methods)
    }
    columns = (*methods, *(f"passes, {method_title(method)}" for method in methods))
    title = "Frontier (beyond the paper). Accuracy in per cent and forward passes an answer"
    return [cell_table(measured, "frontier", title, ("task", "commit rule"), columns, rows, None)]


def drawings(measured: Measurements) -> list[Drawing]:
    found, made = measured.cells["frontier"], []
    for task in measured.study.places(*BENCHMARKS):
        series = {
            f"{method}, {kind}": [
                point(cell, effort(cell).passes) for commit in each if (cell := found.find(task, method, commit))
            ]
            for kind, each in commits(measured.study).items()
            for method in measured.study.scale.frontier
        }
        single = found.single(task)
        held = None if single is None else point(single, effort(single).passes)
        shown = {name: points for name, points in series.items() if points}
        band = " The band is vanilla at one token a step." if held else ""
        what = "accuracy against forward passes, by kind of commit rule. Higher and further left is better"
        caption = f"{task_title(task)}: {what}.{band}"
        label = {"ylabel": "accuracy, % (95 % interval)"}
        arguments = {"panels": {task_title(task): shown}, "held": [held], **label}
        made.append(Drawing(f"frontier-{task}", caption, "frontiers", arguments))
    return made


EXPERIMENT = Experiment(
    "frontier", "Frontier: accuracy against passes",
    "Beyond the paper: what each method makes of a forward pass, over thresholds and entropy bounds.",
    tables, drawings, cells, benchmarks=BENCHMARKS,
)  # fmt: skip
