"""Table 2: accuracy of vanilla, Euclidean and SLERP at 2, 4 and 8 tokens a step."""

from __future__ import annotations

from softdlm.report.document import Drawing
from softdlm.report.table import Table
from softdlm.reproduce.experiment import Experiment, ShareClaim
from softdlm.reproduce.leads import printed, slerp_leads
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.paper_numbers import paper_numbers
from softdlm.reproduce.study import Grids, Study, task_title
from softdlm.reproduce.table_parts import accuracy_table, point

BENCHMARKS = ("gsm8k", "math500", "humaneval", "mbpp")
METHODS = ("vanilla", "euclidean", "slerp")
RATES = {2: "topn(2)", 4: "topn(4)", 8: "topn(8)"}
PAIRED_AT = {f"at {n} a step": commit for n, commit in RATES.items()}
PAPER = paper_numbers("table2")
"""Model -> benchmark -> tokens a step -> accuracy of each of METHODS, in per cent."""


def cells(study: Study) -> Grids:
    return study.grids(study.places(*BENCHMARKS), METHODS, tuple(RATES.values()))


def tables(measured: Measurements) -> list[Table]:
    heads = ("task", "tokens a step")
    made = accuracy_table(measured, "table2", "Table 2. Accuracy in per cent", heads, BENCHMARKS, METHODS, RATES, PAPER)
    return [made]


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


def _claim(words: str, *others: int) -> ShareClaim:
    """SLERP against the methods of these columns."""
    leads = slerp_leads("table2", BENCHMARKS, [METHODS[other] for other in others], RATES.values())
    return ShareClaim(words, leads, paper=tuple(printed(PAPER, METHODS.index("slerp"), others)))


EXPERIMENT = Experiment(
    "table2", "Table 2: accuracy", "Vanilla, Euclidean and SLERP at 2, 4 and 8 tokens a step (section 6.2).",
    tables, drawings, cells, benchmarks=BENCHMARKS, paper=PAPER,
    claims=(
        _claim("SLERP outperforms vanilla and Euclidean soft tokens in most settings", 0, 1),
        _claim("SLERP outperforms vanilla in most settings", 0),
        _claim("SLERP outperforms Euclidean soft tokens in most settings", 1),
    ),
)  # fmt: skip
