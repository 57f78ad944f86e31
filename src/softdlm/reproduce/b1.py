"""Appendix B.1: what linear interpolation from [MASK] does to angle and norm."""

from __future__ import annotations

from softdlm.report.table import Column, Row, Table
from softdlm.reproduce.evidence import Decided, against_limit
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.paper_numbers import paper_numbers
from softdlm.reproduce.study import task_title
from softdlm.reproduce.table3 import BENCHMARKS, GEOMETRY, open_items, positions
from softdlm.reproduce.table_parts import beside_paper, mean_cell, mean_table, method_title, paper_notes

OF_SOFT_TOKEN = ("angle_share", "norm_ratio", "below_both")
PAPER = paper_numbers("b1")
"""Model -> the angle in degrees, then OF_SOFT_TOKEN of the linear interpolation, over GSM8K and HumanEval together."""


def tables(measured: Measurements) -> list[Table]:
    """The paper's numbers stand beside linear interpolation; the other rows show what each other rule does."""
    study, rows = measured.study, []
    printed = study.printed.value(PAPER)
    for task, found in open_items(measured).items():
        for rule in found[0].shape.norm_ratio:
            values = [[row.shape.angle for row in found]]
            values += [[getattr(row.shape, name)[rule] for row in found] for name in OF_SOFT_TOKEN]
            cells = [mean_cell(each, positions(found)) for each in values]
            cells = beside_paper(cells, printed if rule == "euclidean" else None)
            rows.append(Row((task_title(task), method_title(rule)), cells))
    names = ("share of the angle", "norm / [MASK] norm", "below both norms")
    columns = [Column("angle, degrees", 2, 2), *(Column(name, 3, 3) for name in names)]
    note = "Top 4 candidates, λ = 0.5, at the positions of Table 3. Additive and NormMix have strengths of their own."
    together = ["The paper's numbers are over GSM8K and HumanEval together."] if printed else []
    notes = [*paper_notes(study, None, printed is not None), *together]
    title = "Appendix B.1. What interpolation from [MASK] does to angle and norm"
    return [mean_table(study, "b1", title, ("task", "soft token"), columns, rows, note, "items", notes)]


def shortens(measured: Measurements) -> Decided:
    for task, rows in open_items(measured).items():
        norms = [row.shape.norm_ratio["euclidean"] for row in rows]
        below = [row.shape.below_both["euclidean"] for row in rows]
        shorter = against_limit("norm / [MASK] norm", norms, "below", 1, positions(rows))
        mostly = against_limit("share of positions below both norms", below, "above", 0.5, positions(rows))
        yield task_title(task), [shorter, mostly]


def off_the_midpoint(measured: Measurements) -> Decided:
    """The claim holds on either side of the middle."""
    for task, rows in open_items(measured).items():
        shares = [row.shape.angle_share["euclidean"] for row in rows]
        yield task_title(task), [against_limit("share of the angle covered", shares, "off", 0.5, positions(rows))]


EXPERIMENT = Experiment(
    "b1", "Appendix B.1: angles and norms under linear interpolation",
    "What interpolation from [MASK] does to direction and length (appendix B.1).",
    tables, analysis=GEOMETRY, benchmarks=BENCHMARKS, paper=PAPER, strength="k = 4, λ = 0.5",
    claims=(
        Claim("Linear interpolation shortens the soft token, at most positions below both ends", shortens),
        Claim("Linear interpolation at one half does not reach the middle of the angle", off_the_midpoint),
    ),
)  # fmt: skip
