"""Table 6: adaptive samplers without and with soft tokens."""

from __future__ import annotations

from collections.abc import Sequence

from softdlm.report.table import Table
from softdlm.reproduce.evidence import Decided, pairs, positive
from softdlm.reproduce.experiment import Claim, Experiment, ShareClaim
from softdlm.reproduce.leads import printed, slerp_leads
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.paper_numbers import paper_numbers
from softdlm.reproduce.study import Grids, Study, rate_title, task_title
from softdlm.reproduce.table_parts import accuracy_table

BENCHMARKS = ("gsm8k", "humaneval")
METHODS = ("vanilla", "slerp")
RATES = {rate_title(commit): commit for commit in ("threshold(0.9)", "entropy(0.1)")}
FIRST = 500
"""The number of GSM8K's items that the paper's values fit."""
PAPER = paper_numbers("table6")
"""Model -> benchmark -> sampler -> accuracy of each of METHODS, in per cent."""


def most_items(study: Study, task: str) -> int | None:
    """The limit on a task's items: the first 500 of GSM8K, unless the study takes all."""
    return FIRST if task == "gsm8k" and study.adaptive_items == "first-500" else None


def adaptive(study: Study, methods: Sequence[str], commits: Sequence[str]) -> Grids:
    """Cells on the items of this table."""
    places = study.places(*BENCHMARKS)
    return [grid for task in places for grid in study.grids([task], methods, commits, most=most_items(study, task))]


def cells(study: Study) -> Grids:
    return adaptive(study, METHODS, list(RATES.values()))


def tables(measured: Measurements) -> list[Table]:
    """The paper's accuracies, and the passes that it does not print."""
    columns = ("alone", "with SLERP", "passes alone", "passes with SLERP")
    title, heads = "Table 6. Adaptive samplers without and with soft tokens: accuracy in per cent", ("task", "sampler")
    cells = BENCHMARKS, METHODS, RATES
    return [accuracy_table(measured, "table6", title, heads, *cells, PAPER, columns, passes=True)]


def saves_passes(measured: Measurements) -> Decided:
    for task in measured.study.places(*BENCHMARKS):
        signs = []
        for pair in pairs(measured.cells["table6"], task, "slerp", "vanilla", RATES):
            before, after = pair.worse.samples, pair.better.samples
            saved = [before[item].forwards - after[item].forwards for item in before]
            signs.append(positive(saved, f"{pair.words}: passes saved", 1))
        yield task_title(task), signs


EXPERIMENT = Experiment(
    "table6", "Table 6: adaptive samplers",
    "Confidence threshold 0.9 and entropy bound 0.1, without and with SLERP; passes are ours (appendix B.4).",
    tables, cells=cells, benchmarks=BENCHMARKS, paper=PAPER,
    claims=(
        ShareClaim("SLERP improves both adaptive samplers on every model and task",
                   slerp_leads("table6", BENCHMARKS, ["vanilla"], RATES.values()), "all",
                   paper=tuple(printed(PAPER, 1, [0]))),
        Claim("Adaptive samplers take fewer passes with SLERP", saves_passes, "ours, with Table 6"),
    ),
)  # fmt: skip
