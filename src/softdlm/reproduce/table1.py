"""Table 1: is a soft token read as an additive or a multiplicative mixture of its candidates?"""

from __future__ import annotations

from statistics import fmean

from softdlm.analysis.plans import mixtures_plan
from softdlm.report.table import Column, Row, Table, mark_best
from softdlm.reproduce.analyses import CONTROLLED, SOFT, on_prompts
from softdlm.reproduce.evidence import Decided, larger
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.paper_numbers import paper_numbers
from softdlm.reproduce.table_parts import beside_paper, mean_cell, mean_table, method_title, paper_notes, prompts_note

MIXTURES = ("additive", "multiplicative")
PAPER = paper_numbers("table1")
"""Model -> JS divergence of SLERP's predictions to each of MIXTURES."""


def tables(measured: Measurements) -> list[Table]:
    """A prompt's positions are averaged first, then the prompts."""
    found, study = measured.rows("mixtures"), measured.study
    rows = []
    for rule in found[0].additive if found else ():
        cells = [mean_cell([fmean(getattr(row, kind)[rule]) for row in found]) for kind in MIXTURES]
        printed = study.printed.value(PAPER) if rule == "slerp" else None
        rows.append(Row((method_title(rule),), mark_best(beside_paper(cells, printed), higher=False)))
    columns = [Column(f"to the {kind} mixture", 4, 4) for kind in MIXTURES]
    note = f"{len(found)} of 70 prompts. {prompts_note(study)} k = 3, λ = 0.3; bold is the closer reference."
    title, notes = "Table 1. JS divergence of soft-token predictions to two mixtures, nats", paper_notes(study, None)
    return [mean_table(study, "table1", title, ("soft token",), columns, rows, note, "prompts", notes)]


def multiplicative(measured: Measurements) -> Decided:
    rows = measured.rows("mixtures")
    if rows:
        additive, multiplicative = ([fmean(getattr(row, kind)["slerp"]) for row in rows] for kind in MIXTURES)
        words = ("JS divergence in nats to the additive mixture", "to the multiplicative mixture")
        yield f"{len(rows)} prompts", [larger(words, additive, multiplicative, 4)]


EXPERIMENT = Experiment(
    "table1", "Table 1: is a soft token read as an additive or a multiplicative mixture?",
    "Jensen-Shannon divergence of soft-token predictions to both mixtures, on controlled prompts (section 5.1).",
    tables, analysis=on_prompts("mixtures", mixtures_plan, SOFT), paper=PAPER, strength=CONTROLLED,
    claims=(
        Claim("SLERP's predictions are closer to the multiplicative than to the additive mixture", multiplicative),
    ),
)  # fmt: skip
