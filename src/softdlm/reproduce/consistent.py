"""Consistency beside accuracy, beyond the paper: does an answer agree with itself? From the cells of Table 7."""

from __future__ import annotations

from softdlm.report.table import Table
from softdlm.reproduce.evidence import Decided, Pair, more_solved, slerp_solves_more
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements, Of, consistent, right_and_consistent
from softdlm.reproduce.study import task_title
from softdlm.reproduce.table2 import BENCHMARKS, METHODS, PAIRED_AT, RATES
from softdlm.reproduce.table7 import cells
from softdlm.reproduce.table_parts import accuracies, accuracy, cell_table

MEANING = (
    "Consistent: every plain equation of the answer is true; a program parses and uses only defined names.",
    "The first row of a task is vanilla at one token a step.",
)
KINDS = {"consistent": consistent, "right-and-consistent": right_and_consistent}


def tables(measured: Measurements) -> list[Table]:
    return [_table(measured, kind, of) for kind, of in KINDS.items()]


def _table(measured: Measurements, kind: str, of: Of) -> Table:
    found, rows = measured.cells["consistent"], {}
    for task in measured.study.places(*BENCHMARKS):
        single = accuracy(found.single(task), of=of)
        rows[task_title(task), "1"] = [single, *[accuracy(None)] * (len(METHODS) - 1)]
        for n, commit in RATES.items():
            rows[task_title(task), str(n)] = accuracies(found, task, METHODS, commit, of=of)
    title = f"Answers that are {kind.replace('-', ' ')}, in per cent (beyond the paper)"
    heads = ("task", "tokens a step")
    return cell_table(measured, "consistent", title, heads, METHODS, rows, None, last=MEANING, own=kind)


def below_single(measured: Measurements) -> Decided:
    """SLERP at each rate against vanilla at one token a step: is it less consistent?"""
    found = measured.cells["consistent"]
    for task in measured.study.places(*BENCHMARKS):
        single = found.single(task)
        pairs = [
            Pair(words, cell, single, of=consistent)
            for words, commit in PAIRED_AT.items()
            if single and (cell := found.find(task, "slerp", commit))
        ]
        yield task_title(task), more_solved(pairs)


EXPERIMENT = Experiment(
    "consistent", "Consistency: answers that agree with themselves",
    "Beyond the paper: tokens committed together may contradict each other, even where the last number is right.",
    tables, cells=cells, benchmarks=BENCHMARKS,
    claims=(
        Claim("SLERP's answers are consistent more often than vanilla's at every rate",
              slerp_solves_more("consistent", BENCHMARKS, "vanilla", PAIRED_AT, consistent), "ours, consistency"),
        Claim("SLERP's answers are consistent less often than those of vanilla at one token a step", below_single,
              "ours, consistency"),
    ),
)  # fmt: skip
