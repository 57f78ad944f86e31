"""Table 2: accuracy of vanilla, Euclidean and SLERP at 2, 4 and 8 tokens a step."""

from __future__ import annotations

from softdlm.report.document import Drawing
from softdlm.report.table import Table
from softdlm.reproduce.evidence import slerp_solves_more
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.study import Grids, Study, task_title
from softdlm.reproduce.table_parts import accuracies, beside_paper, cell_table, point

BENCHMARKS = ("gsm8k", "math500", "humaneval", "mbpp")
METHODS = ("vanilla", "euclidean", "slerp")
RATES = {2: "topn(2)", 4: "topn(4)", 8: "topn(8)"}
PAIRED_AT = {f"at {n}": commit for n, commit in RATES.items()}
PAPER = {
    "LLaDA":          {"gsm8k": {2: (71.65, 72.33, 73.24), 4: (64.44, 64.29, 65.58), 8: (36.77, 36.69, 36.77)},
                       "math500": {2: (24.4, 22.6, 23.6), 4: (18.2, 19.4, 20.0), 8: (12.8, 14.8, 14.8)},
                       "humaneval": {2: (39.02, 41.47, 45.12), 4: (24.39, 31.71, 32.32), 8: (15.24, 15.24, 19.51)},
                       "mbpp": {2: (33.2, 34.6, 36.2), 4: (27.0, 26.8, 28.6), 8: (16.0, 17.8, 19.2)}},
    "LLaDA-1.5":      {"gsm8k": {2: (72.25, 71.4, 71.8), 4: (65.13, 66.79, 67.63), 8: (43.82, 47.54, 47.99)},
                       "math500": {2: (20.8, 21.0, 24.0), 4: (17.6, 18.8, 20.4), 8: (15.0, 14.8, 15.0)},
                       "humaneval": {2: (38.41, 39.02, 43.9), 4: (24.39, 29.88, 33.54), 8: (12.8, 15.24, 18.9)},
                       "mbpp": {2: (34.8, 35.0, 35.8), 4: (26.2, 27.4, 29.0), 8: (17.2, 18.0, 18.4)}},
    "LLaDA-2.0-mini": {"gsm8k": {2: (89.61, 89.76, 90.6), 4: (83.09, 85.82, 87.4), 8: (49.81, 51.78, 54.2)},
                       "math500": {2: (40.6, 43.6, 44.6), 4: (37.4, 37.2, 39.0), 8: (16.2, 18.4, 18.8)},
                       "humaneval": {2: (70.73, 69.51, 71.95), 4: (46.95, 50.0, 53.05), 8: (24.39, 22.56, 23.17)},
                       "mbpp": {2: (55.8, 57.6, 57.8), 4: (42.8, 43.8, 44.2), 8: (23.8, 23.0, 23.4)}},
    "Dream":          {"gsm8k": {2: (74.45, 77.03, 78.17), 4: (56.94, 56.25, 58.61), 8: (16.15, 16.22, 18.2)},
                       "math500": {2: (20.4, 21.8, 22.4), 4: (5.2, 6.0, 6.4), 8: (0.4, 0.8, 0.8)},
                       "humaneval": {2: (42.68, 46.34, 50.61), 4: (17.68, 23.78, 32.32), 8: (3.05, 8.54, 14.02)},
                       "mbpp": {2: (43.4, 45.0, 47.0), 4: (25.2, 24.8, 32.8), 8: (14.2, 15.0, 17.4)}},
}  # fmt: skip
"""Model -> benchmark -> tokens a step -> accuracy of each of METHODS, in per cent."""


def cells(study: Study) -> Grids:
    return study.grids(study.places(*BENCHMARKS), METHODS, tuple(RATES.values()))


def tables(measured: Measurements) -> list[Table]:
    found, places, printed = measured.cells["table2"], measured.study.places(*BENCHMARKS), measured.study.printed
    rows = {
        (task_title(task), str(n)): beside_paper(
            accuracies(found, task, METHODS, commit), printed.value(PAPER, name, n)
        )
        for task, name in places.items()
        for n, commit in RATES.items()
    }
    title = "Table 2. Accuracy in per cent"
    return [cell_table(measured, "table2", title, ("task", "tokens a step"), METHODS, rows, places)]


def drawings(measured: Measurements) -> list[Drawing]:
    found = measured.cells["table2"]
    panels = {
        task_title(task): {
            method: [point(cell, n) for n, commit in RATES.items() if (cell := found.find(task, method, commit))]
            for method in METHODS
        }
        for task in measured.study.places(*BENCHMARKS)
    }
    labels = {"xlabels": ["tokens a step"] * len(panels), "ylabel": "accuracy, %", "doubling": True}
    caption = "Table 2 as curves, with 95 % intervals."
    return [Drawing("table2", caption, "curves", {"panels": panels, **labels})] if panels else []


EXPERIMENT = Experiment(
    "table2", "Table 2: accuracy", "Vanilla, Euclidean and SLERP at 2, 4 and 8 tokens a step (section 6.2).",
    tables, drawings, cells, benchmarks=BENCHMARKS, paper=PAPER,
    claims=(
        Claim("SLERP solves more than vanilla at every rate",
              slerp_solves_more("table2", BENCHMARKS, "vanilla", PAIRED_AT)),
        Claim("SLERP solves more than Euclidean soft tokens at every rate",
              slerp_solves_more("table2", BENCHMARKS, "euclidean", PAIRED_AT)),
    ),
)  # fmt: skip
