"""Extras, beyond the paper: soft-token rules that others have published, and how predictions settle along a decode."""

from __future__ import annotations

from typing import Any

from softdlm.analysis.agreement import summarise
from softdlm.analysis.plans import agreement_plan
from softdlm.report.table import Cell, Column, Row, Table
from softdlm.reproduce import table2
from softdlm.reproduce.analyses import ALL, SOFT, on_tasks
from softdlm.reproduce.evidence import Decided, larger
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.study import Grids, Study, steps, task_title
from softdlm.reproduce.table_parts import accuracy_table, method_title

METHODS = (*table2.METHODS, "additive", "norm-mix")
AGREEMENT = on_tasks(
    "agreement", agreement_plan, ("gsm8k", "humaneval"), SOFT, None, ("vanilla", "topn(4)"), temperature=0.0, top_p=None
)
"""Along a decode at 4 tokens a step and temperature 0, also for Dream."""


def cells(study: Study) -> Grids:
    return study.grids(study.places(*table2.BENCHMARKS), ALL, steps(*study.scale.extra_rates))


def tables(measured: Measurements) -> list[Table]:
    return [_accuracy(measured), _agreement(measured)]


def _accuracy(measured: Measurements) -> Table:
    rates = {n: f"topn({n})" for n in measured.study.scale.extra_rates}
    title, heads = "Extras (beyond the paper). Other published rules: accuracy in per cent", ("task", "tokens a step")
    notes = ("Additive is dInfer's smoothing, NormMix DMax's norm rule, each at its own strength.",)
    return accuracy_table(measured, "extras", title, heads, table2.BENCHMARKS, METHODS, rates, last=notes)


def _agreement(measured: Measurements) -> Table:
    names = ("settled", "changed", "reordered", "earlier", "later")
    rows = []
    for task, found in measured.by_task("agreement").items():
        for each in summarise(found):
            shares = [getattr(each, name) for name in names]
            cells = (Cell(None if share is None else 100 * share) for share in shares)
            rows.append(Row((task_title(task), method_title(each.rule)), (*cells, Cell(each.items))))
    notes = (
        "At 4 tokens a step. Settled: open positions whose best token is already the final one.",
        "Changed: open positions whose best token is another in the next pass.",
        "Reordered: items whose commits differ from vanilla's; earlier, later: positions committed in another pass.",
    )
    title = f"Agreement along a decode (beyond the paper), per cent, {measured.study.title}"
    columns = tuple(Column(name) for name in (*names, "items"))
    return Table("agreement", title, ("task", "method"), columns, tuple(rows), notes, measured.study.scale.mark)


def settles_earlier(measured: Measurements) -> Decided:
    for task, rows in measured.by_task("agreement").items():
        both = [row.course for row in rows if all(sum(row.course[name].waiting) for name in ("slerp", "vanilla"))]
        slerp, vanilla = ([_settled(course[name]) for course in both] for name in ("slerp", "vanilla"))
        words = ("share of open positions already settled: SLERP", "vanilla")
        yield task_title(task), [larger(words, slerp, vanilla)] if both else []


def _settled(course: Any) -> float:
    return sum(course.settled) / sum(course.waiting)


EXPERIMENT = Experiment(
    "extras", "Extras: rules of others, and agreement along a decode",
    "Beyond the paper: Additive and NormMix at the same rates, and how predictions settle from pass to pass.",
    tables, cells=cells, analysis=AGREEMENT, benchmarks=table2.BENCHMARKS,
    claims=(Claim("With SLERP open positions settle earlier than with vanilla", settles_earlier, "ours, agreement"),),
)  # fmt: skip
