"""Table 7: recovery of single-token decoding, from Table 2's cells and vanilla at one token a step."""

from __future__ import annotations

from itertools import pairwise

from softdlm.evaluate.metrics import Share
from softdlm.evaluate.summary import Result
from softdlm.report.table import Cell, Table, mark_best
from softdlm.reproduce.evidence import Decided, Pair, more_solved, pairs
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements, paired, share
from softdlm.reproduce.study import Grids, Study, task_title
from softdlm.reproduce.table2 import BENCHMARKS, METHODS, PAIRED_AT, RATES
from softdlm.reproduce.table_parts import beside_paper, cell_table

PAPER = {
    "LLaDA":          {"gsm8k": {2: (89.24, 89.34, 90.05), 4: (78.07, 79.19, 80.41), 8: (45.89, 45.79, 45.89)},
                       "math500": {2: (67.19, 65.63, 71.88), 4: (51.56, 55.47, 55.47), 8: (38.28, 40.63, 41.41)},
                       "humaneval": {2: (76.32, 75.0, 85.53), 4: (48.68, 59.21, 60.53), 8: (30.26, 28.95, 35.53)},
                       "mbpp": {2: (73.0, 75.5, 78.5), 4: (61.0, 58.0, 64.0), 8: (38.0, 38.0, 44.5)}},
    "LLaDA-1.5":      {"gsm8k": {2: (91.25, 89.99, 90.83), 4: (83.35, 84.62, 85.67), 8: (56.59, 61.01, 61.22)},
                       "math500": {2: (71.31, 68.85, 76.23), 4: (59.84, 59.02, 59.84), 8: (40.0, 46.72, 47.54)},
                       "humaneval": {2: (70.89, 69.62, 74.68), 4: (46.84, 54.43, 59.49), 8: (22.78, 26.58, 37.97)},
                       "mbpp": {2: (78.5, 78.5, 79.0), 4: (61.0, 59.5, 62.0), 8: (38.5, 40.5, 40.0)}},
    "LLaDA-2.0-mini": {"gsm8k": {2: (95.5, 95.41, 96.94), 4: (88.33, 91.92, 93.23), 8: (53.67, 55.24, 58.73)},
                       "math500": {2: (88.83, 92.72, 94.17), 4: (82.04, 81.07, 85.92), 8: (37.38, 41.26, 42.23)},
                       "humaneval": {2: (83.33, 81.06, 85.61), 4: (56.82, 62.12, 64.39), 8: (28.79, 28.03, 28.03)},
                       "mbpp": {2: (83.7, 85.89, 85.58), 4: (64.89, 66.46, 66.46), 8: (34.99, 34.8, 35.42)}},
    "Dream":          {"gsm8k": {2: (84.74, 86.68, 87.6), 4: (65.03, 64.2, 66.98), 8: (18.41, 18.32, 20.44)},
                       "math500": {2: (42.37, 42.69, 46.2), 4: (11.7, 13.45, 13.45), 8: (0.58, 0.59, 1.17)},
                       "humaneval": {2: (66.32, 72.63, 74.74), 4: (29.47, 38.95, 54.74), 8: (5.26, 13.68, 24.21)},
                       "mbpp": {2: (70.45, 70.8, 74.23), 4: (39.86, 40.5, 53.61), 8: (23.71, 24.41, 28.09)}},
}  # fmt: skip
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


def more_recovered(measured: Measurements) -> Decided:
    """SLERP against vanilla on the items that single tokens solve."""
    found = measured.cells["table7"]
    for task in measured.study.places(*BENCHMARKS):
        if (single := found.single(task)) is not None:
            yield task_title(task), more_solved(pairs(found, task, "slerp", "vanilla", PAIRED_AT, single))


def recovery_falls(measured: Measurements) -> Decided:
    """Each rate against the next faster one, for every method."""
    found = measured.cells["table7"]
    for task in measured.study.places(*BENCHMARKS):
        single = found.single(task)
        falls = [
            Pair(f"{method}, {slow} against {fast}:", second, first, single)
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
        Claim("SLERP recovers more than vanilla of what single tokens solve, at every rate", more_recovered),
        Claim("Recovery falls as more tokens are committed a step", recovery_falls),
    ),
)  # fmt: skip
