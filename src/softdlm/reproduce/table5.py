"""Table 5: interpolation on the arc or the line, at the [MASK] norm or the candidates' norm."""

from __future__ import annotations

from softdlm.report.table import Table
from softdlm.reproduce.experiment import Experiment, ShareClaim
from softdlm.reproduce.leads import printed, slerp_leads
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


def _claim(words: str, *others: int) -> ShareClaim:
    """SLERP at the [MASK] norm against the constructions of these columns."""
    leads = slerp_leads("table5", BENCHMARKS, [METHODS[other] for other in others], [RATE])
    return ShareClaim(words, leads, "all", paper=tuple(printed(PAPER, METHODS.index("slerp"), others)))


EXPERIMENT = Experiment(
    "table5", "Table 5: interpolation and norm",
    "SLERP at the [MASK] norm and at the candidates' norm; linear interpolation at the [MASK] norm (appendix B.2).",
    tables, cells=cells, benchmarks=BENCHMARKS, paper=PAPER,
    claims=(
        _claim("SLERP at the [MASK] norm has the highest accuracy on every model and benchmark", 1, 2),
        _claim("The [MASK] norm solves more than the candidates' norm on every model and benchmark", 1),
        _claim("SLERP solves more than linear interpolation at the same norm on every model and benchmark", 2),
    ),
)  # fmt: skip
