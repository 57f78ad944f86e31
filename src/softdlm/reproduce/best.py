"""Both soft methods at their best: the paper's search over lambda and k, for Euclidean soft tokens and for SLERP.

The paper searches both methods (appendix A) and does not print what it chose for the Euclidean ones. Tables 2 and 7
take SLERP's printed settings for both; here each has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from softdlm.report.table import Cell, Column, Row, Table, mark_best
from softdlm.reproduce import table2
from softdlm.reproduce.experiment import Experiment, ShareClaim
from softdlm.reproduce.leads import Lead, lead
from softdlm.reproduce.measurements import Cells, Measurements
from softdlm.reproduce.search import KS, LAMS, Choice, choice_note, choose, paper_grid, search_grids
from softdlm.reproduce.study import Grids, Study, rate_title, strength_words, task_title
from softdlm.reproduce.table_parts import accuracy, cell_table, method_title

SEARCHED = ("euclidean", "slerp")


def search(study: Study) -> Grids:
    settings = [setting for method in SEARCHED for setting in paper_grid(method)]
    return search_grids(study, study.places(*table2.BENCHMARKS), settings, study.scale.search_rates)


def choices(study: Study, searched: Cells, task: str) -> dict[str, Choice | None]:
    """Method -> its best setting on a task."""
    return {method: choose(searched, task, paper_grid(method), study.scale.search_rates) for method in SEARCHED}


def cells(study: Study) -> Grids:
    return study.grids(study.places(*table2.BENCHMARKS), table2.METHODS, tuple(table2.RATES.values()))


def follow(study: Study, searched: Cells) -> Grids:
    """The chosen settings on the items of Table 2."""
    return [
        grid
        for task in study.places(*table2.BENCHMARKS)
        for choice in choices(study, searched, task).values()
        if choice is not None
        for grid in study.grids([task], [choice.feedback], tuple(table2.RATES.values()))
    ]


def tables(measured: Measurements) -> list[Table]:
    """Vanilla, both methods at SLERP's settings, and both at their own."""
    study, found = measured.study, measured.cells["best"]
    rows, notes = {}, []
    for task in study.places(*table2.BENCHMARKS):
        chosen = choices(study, measured.searched("best"), task)
        notes.append(choice_note(task, chosen, study.scale.search_rates))
        strength = dict(zip(("k", "lam"), study.strength(task), strict=True))
        for n, commit in table2.RATES.items():
            base = found.find(task, "vanilla", commit)
            usual = [base, *(found.find(task, method, commit, **strength) for method in SEARCHED)]
            best = [None if each is None else found.spelled(task, each.feedback, commit) for each in chosen.values()]
            rows[task_title(task), str(n)] = mark_best([accuracy(each, base) for each in [*usual, *best]], higher=True)
    columns = ("vanilla", *SEARCHED, "euclidean-best", "slerp-best")
    title, heads = "Best. Each soft method at its best setting: accuracy in per cent", ("task", "tokens a step")
    soft = f"Not named best: {strength_words(study, study.places(*table2.BENCHMARKS))}."
    made = cell_table(measured, "best", title, heads, columns, rows, None, last=notes, soft=soft)
    return [made, grid_table(measured)]


def grid_table(measured: Measurements) -> Table:
    """The search itself: the mean accuracy of every setting over its commit rules."""
    study, found, rows = measured.study, measured.searched("best"), []
    for task, method, k in product(study.places(*table2.BENCHMARKS), SEARCHED, KS):
        line = [choose(found, task, [f"{method}(k={k}, lam={lam})"], study.scale.search_rates) for lam in LAMS]
        cells = tuple(Cell(None if each is None else each.accuracy) for each in line)
        rows.append(Row((task_title(task), method_title(method), str(k)), cells))
    title = f"The paper's search for k and λ: accuracy in per cent, {study.title}"
    notes = (f"Mean over {', '.join(map(rate_title, study.scale.search_rates))}.",)
    columns = tuple(Column(f"λ = {lam:g}") for lam in LAMS)
    return Table("search", title, ("task", "method", "k"), columns, tuple(rows), notes, study.scale.mark)


def ahead(measured: Measurements) -> Iterator[Lead]:
    """SLERP at its best against Euclidean soft tokens at theirs, at each rate."""
    found = measured.cells["best"]
    for task in measured.study.places(*table2.BENCHMARKS):
        chosen = choices(measured.study, measured.searched("best"), task)
        for commit in table2.RATES.values():
            cells = [found.spelled(task, each.feedback, commit) for each in chosen.values() if each is not None]
            if len(cells) == len(SEARCHED) and cells[0] and cells[1]:
                yield lead(cells[1], [cells[0]])


EXPERIMENT = Experiment(
    "best", "Best: each soft method at its best setting",
    "Euclidean soft tokens and SLERP, each with the k and λ that the paper's search chooses for it (appendix A).",
    tables, cells=cells, search=search, follow=follow, benchmarks=table2.BENCHMARKS,
    strength="each method at its own best k and λ",
    claims=(ShareClaim("SLERP outperforms Euclidean soft tokens in most settings, each at its best", ahead),),
)  # fmt: skip
