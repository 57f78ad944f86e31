"""Agreement along a decode, beyond the paper: how predictions settle from pass to pass."""

from __future__ import annotations

from typing import Any

from softdlm.analysis.agreement import summarise
from softdlm.analysis.plans import agreement_plan
from softdlm.report.table import Cell, Column, Row, Table
from softdlm.reproduce.analyses import SOFT, on_tasks
from softdlm.reproduce.evidence import Decided, larger
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.study import task_title
from softdlm.reproduce.table_parts import method_title

BENCHMARKS = ("gsm8k", "humaneval")
AGREEMENT = on_tasks(
    "agreement", agreement_plan, BENCHMARKS, SOFT, None, ("vanilla", "topn(4)"), temperature=0.0, top_p=None
)
"""Along a decode at 4 tokens a step and temperature 0, also for Dream."""


def tables(measured: Measurements) -> list[Table]:
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
    return [Table("agreement", title, ("task", "method"), columns, tuple(rows), notes, measured.study.scale.mark)]


def settles_earlier(measured: Measurements) -> Decided:
    for task, rows in measured.by_task("agreement").items():
        both = [row.course for row in rows if all(sum(row.course[name].waiting) for name in ("slerp", "vanilla"))]
        slerp, vanilla = ([_settled(course[name]) for course in both] for name in ("slerp", "vanilla"))
        words = ("share of open positions already settled: SLERP", "vanilla")
        yield task_title(task), [larger(words, slerp, vanilla)] if both else []


def _settled(course: Any) -> float:
    return sum(course.settled) / sum(course.waiting)


EXPERIMENT = Experiment(
    "agreement", "Agreement: how predictions settle along a decode",
    "Beyond the paper: from which pass on the best token of an open position is the final one.",
    tables, analysis=AGREEMENT, benchmarks=BENCHMARKS,
    claims=(Claim("With SLERP open positions settle earlier than with vanilla", settles_earlier, "ours, agreement"),),
)  # fmt: skip
