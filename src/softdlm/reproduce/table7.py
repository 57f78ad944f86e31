"""Table 7: recovery of single-token decoding, from Table 2's cells and vanilla at one token a step."""

from __future__ import annotations

from itertools import pairwise

from softdlm.evaluate.metrics import Share
from softdlm.evaluate.summary import Result
from softdlm.report.table import Cell, Table, mark_best
from softdlm.reproduce.evidence import Decided, Pair, more_solved
from softdlm.reproduce.experiment import Claim, Experiment, ShareClaim
from softdlm.reproduce.leads import printed, slerp_leads
from softdlm.reproduce.measurements import Measurements, paired, share
from softdlm.reproduce.paper_numbers import paper_numbers
from softdlm.reproduce.study import Grids, Study, task_title
from softdlm.reproduce.table2 import BENCHMARKS, METHODS, RATES
from softdlm.reproduce.table_parts import beside_paper, cell_table, method_title

PAPER = paper_numbers("table7")
"""Model -> benchmark -> tokens a step -> recovery by each of METHODS, in per cent."""


def cells(study: Study) -> Grids:
    return study.grids(study.places(*BENCHMARKS), METHODS, tuple(RATES.values()), single=True)


def recovered(result: Result | None, single: Result | None) -> Cell:
    """Of what vanilla solves one token at a time, the per cent solved too (appendix C); n/a where that is nothing."""
    if result is None or single is None:
        return Cell()
    before, after = paired(single, result)
    kept = [now for was, now in zip(before, after, strict=True) if was]
    return Cell(*Share.of(kept)[:3]) if kept else Cell("n/a")


def tables(measured: Measurements) -> list[Table]:
    found, places, printed = measured.cells["table7"], measured.study.places(*BENCHMARKS), measured.study.printed
    singles = {task: found.single(task) for task in places}
    rows = {}
    for task, name in places.items():
        for n, commit in RATES.items():
            line = [recovered(found.find(task, method, commit), singles[task]) for method in METHODS]
            best = mark_best(line, higher=True)
            rows[task_title(task), str(n)] = beside_paper(best, printed.value(PAPER, name, n))
    solved = ", ".join(f"{task_title(task)} {share(single)} %" for task, single in singles.items() if single)
    notes = (f"Vanilla solves at 1 token a step: {solved}.", "Brackets: 95 % intervals (Wilson) over those items.")
    title, heads = "Table 7. Recovery of single-token decoding in per cent", ("task", "tokens a step")
    notes = notes if solved else ()
    return [cell_table(measured, "table7", title, heads, METHODS, rows, places, interval="", last=notes)]


def _claim(words: str, *others: int) -> ShareClaim:
    """SLERP against the methods of these columns, on the items that single tokens solve."""
    rivals = [METHODS[other] for other in others]
    leads = slerp_leads("table7", BENCHMARKS, rivals, RATES.values(), recovered=True)
    return ShareClaim(words, leads, paper=tuple(printed(PAPER, METHODS.index("slerp"), others)))


def recovery_falls(measured: Measurements) -> Decided:
    """Each rate against the next faster one, for every method."""
    found = measured.cells["table7"]
    for task in measured.study.places(*BENCHMARKS):
        single = found.single(task)
        falls = [
            Pair(f"{method_title(method)}, {slow} a step against {fast}:", second, first, single)
            for method in METHODS
            for slow, fast in pairwise(RATES)
            if (first := found.find(task, method, RATES[slow])) and (second := found.find(task, method, RATES[fast]))
        ]
        yield task_title(task), more_solved(falls if single else [])


EXPERIMENT = Experiment(
    "table7", "Table 7: recovery of single-token decoding",
    "Of what vanilla solves at one token a step, the share that each method solves too (appendix C).",
    tables, cells=cells, benchmarks=BENCHMARKS, paper=PAPER,
    claims=(
        _claim("SLERP has the highest recovery rate in most settings", 0, 1),
        _claim("SLERP recovers more than vanilla in most settings", 0),
        _claim("SLERP recovers more than Euclidean soft tokens in most settings", 1),
        Claim("Recovery falls as more tokens are committed a step", recovery_falls),
    ),
)  # fmt: skip
