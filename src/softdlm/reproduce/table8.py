"""Table 8: agreement with a sequential reference on the model's own answers."""

from __future__ import annotations

from statistics import fmean

from softdlm.analysis.plans import completions_plan
from softdlm.report.table import Cell, Column, Row, Table, mark_best
from softdlm.reproduce.analyses import ALL, on_tasks
from softdlm.reproduce.evidence import Decided, larger
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.paper_numbers import paper_numbers
from softdlm.reproduce.study import task_title
from softdlm.reproduce.table_parts import beside_paper, mean_cell, mean_table, method_title, paper_notes

BENCHMARKS = ("math500", "humaneval")
PAPER = paper_numbers("table8")
"""Model -> benchmark -> method -> reverse KL in nats."""


def tables(measured: Measurements) -> list[Table]:
    """A completion's spans are averaged first, then the completions; those too short for a span are left out."""
    study, places = measured.study, measured.study.places(*BENCHMARKS)
    rows = []
    for task, found in measured.by_task("completions").items():
        long = [row for row in found if row.lengths]
        methods = list(found[0].reverse_kl)
        cells = [mean_cell([fmean(row.reverse_kl[method]) for row in long]) for method in methods]
        cells = beside_paper(cells, [study.printed.value(PAPER, places[task], method) for method in methods])
        counts = (Cell(len(long)), Cell(sum(len(row.lengths) for row in long)))
        pairs = zip(methods, mark_best(cells, higher=False), strict=True)
        rows += [Row((task_title(task), method_title(method)), (cell, *counts)) for method, cell in pairs]
    note = "Answers of vanilla at 1 token a step; spans of 2, 3 and 4 tokens at two places each; top 4, λ = 0.3."
    notes = paper_notes(study, places, any(study.printed.value(PAPER, name) for name in places.values()))
    columns = [Column("reverse KL, nats", 4, 6), Column("completions"), Column("spans")]
    title = "Table 8. Reverse KL on spans of the model's own answers"
    return [mean_table(study, "table8", title, ("task", "method"), columns, rows, note, "completions", notes)]


def closer(measured: Measurements) -> Decided:
    for task, rows in measured.by_task("completions").items():
        found = {
            method: [fmean(row.reverse_kl[method]) for row in rows if row.lengths]
            for method in ("vanilla", "euclidean", "slerp")
        }
        if found["slerp"]:
            words = {
                other: (f"reverse KL in nats: {method_title(other)}", "SLERP") for other in ("vanilla", "euclidean")
            }
            yield task_title(task), [larger(both, found[other], found["slerp"], 4) for other, both in words.items()]


EXPERIMENT = Experiment(
    "table8", "Table 8: agreement on the model's own answers",
    "Reverse KL on spans of two to four tokens (appendix D.4).",
    tables, analysis=on_tasks("completions", completions_plan, BENCHMARKS, ALL, (4, 0.3), ("vanilla", "topn(1)")),
    benchmarks=BENCHMARKS, paper=PAPER, strength="k = 4, λ = 0.3",
    claims=(
        Claim(
            "On its own answers SLERP is closer to the sequential reference than vanilla and Euclidean soft tokens",
            closer,
        ),
    ),
)  # fmt: skip
