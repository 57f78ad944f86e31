"""Table 5: interpolation on the arc or the line, at the [MASK] norm or the candidates' norm."""

from __future__ import annotations

from softdlm.report.table import Table
from softdlm.reproduce.evidence import slerp_solves_more
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.paper_numbers import paper_numbers
from softdlm.reproduce.study import Grids, Study
from softdlm.reproduce.table_parts import accuracy_table

BENCHMARKS = ("math500", "humaneval")
METHODS = ("slerp", "slerp-candidate-norm", "euclidean-mask-norm")
RATE = "topn(2)"
PAPER = paper_numbers("table5")
"""Model -> benchmark -> accuracy of each of METHODS, in per cent."""


def cells(study: Study) -> Grids:
    return study.grids(study.places(*BENCHMARKS), METHODS, [RATE])


def tables(measured: Measurements) -> list[Table]:
    title = "Table 5. Interpolation and output norm: accuracy in per cent at 2 tokens a step"
    return [accuracy_table(measured, "table5", title, ("task",), BENCHMARKS, METHODS, {"": RATE}, PAPER)]


EXPERIMENT = Experiment(
    "table5", "Table 5: interpolation and norm",
    "SLERP at the [MASK] norm and at the candidates' norm; linear interpolation at the [MASK] norm (appendix B.2).",
    tables, cells=cells, benchmarks=BENCHMARKS, paper=PAPER,
    claims=(
        Claim("The [MASK] norm solves more than the candidates' norm",
              slerp_solves_more("table5", BENCHMARKS, "slerp-candidate-norm", {"SLERP": RATE})),
        Claim("SLERP solves more than linear interpolation at the same norm",
              slerp_solves_more("table5", BENCHMARKS, "euclidean-mask-norm", {"SLERP": RATE})),
    ),
)  # fmt: skip
