"""Table 3: the geometry of candidates, their aggregate and [MASK]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softdlm.analysis.plans import geometry_plan
from softdlm.report.table import Cell, Column, Row, Table
from softdlm.reproduce.analyses import SOFT, on_tasks
from softdlm.reproduce.evidence import Decided, against_limit, larger
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.paper_numbers import paper_numbers
from softdlm.reproduce.study import task_title
from softdlm.reproduce.table_parts import beside_paper, mean_cell, mean_table, paper_notes

BENCHMARKS = ("gsm8k", "humaneval")
GEOMETRY = on_tasks("geometry", geometry_plan, BENCHMARKS, SOFT, (4, 0.5), ("slerp", "topn(2)"))
"""Along a decode with SLERP at 2 tokens a step; appendix B.1 is made of the same rows."""
NEAR = 0.1
"""|cosine| below which we call two directions nearly orthogonal; the paper's largest is 0.074."""
PAPER = paper_numbers("table3")
"""Model -> benchmark -> cosine between candidates, |cosine| between aggregate and [MASK]."""


def open_items(measured: Measurements) -> dict[str, list[Any]]:
    """The items that had open positions at all, by task."""
    found = {task: [row for row in rows if row.shape.positions] for task, rows in measured.by_task("geometry").items()}
    return {task: rows for task, rows in found.items() if rows}


def positions(rows: Sequence[Any]) -> list[int]:
    """The weights of items where every position counts the same."""
    return [row.shape.positions for row in rows]


def cosines(rows: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Of each item: the cosine between candidates, and the |cosine| between aggregate and [MASK]."""
    return [row.shape.candidate_cosine for row in rows], [row.shape.aggregate_cosine for row in rows]


def tables(measured: Measurements) -> list[Table]:
    study, places = measured.study, measured.study.places(*BENCHMARKS)
    rows = []
    for task, found in open_items(measured).items():
        weights = positions(found)
        cells = [*(mean_cell(values, weights) for values in cosines(found)), Cell(sum(weights)), Cell(len(found))]
        rows.append(Row((task_title(task),), beside_paper(cells, study.printed.value(PAPER, places[task]))))
    columns = [Column("candidates, cosine", 3, 3), Column("aggregate and [MASK], |cosine|", 3, 3)]
    columns += [Column("positions"), Column("items")]
    note = "Top 3 candidates at every position left open while decoding with SLERP at 2 tokens a step."
    title, notes = "Table 3. Geometry of candidates and [MASK]", paper_notes(study, places)
    return [mean_table(study, "table3", title, ("task",), columns, rows, note, "items", notes)]


def aligned(measured: Measurements) -> Decided:
    for task, rows in open_items(measured).items():
        words = ("cosine between candidates", "|cosine| of aggregate and [MASK]")
        yield task_title(task), [larger(words, *cosines(rows), weights=positions(rows))]


def orthogonal(measured: Measurements) -> Decided:
    for task, rows in open_items(measured).items():
        _, aggregate = cosines(rows)
        yield task_title(task), [against_limit("mean |cosine|", aggregate, "below", NEAR, positions(rows))]


EXPERIMENT = Experiment(
    "table3", "Table 3: geometry of candidates and [MASK]",
    "Cosines at the open positions met while decoding (section 6.3).",
    tables, analysis=GEOMETRY, benchmarks=BENCHMARKS, paper=PAPER, strength="k = 3",
    claims=(
        Claim("Candidates are better aligned with one another than their aggregate with [MASK]", aligned),
        Claim(f"The aggregate is nearly orthogonal to [MASK] (|cosine| below {NEAR})", orthogonal),
    ),
)  # fmt: skip
