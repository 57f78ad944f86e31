"""Figure 2: sensitivity of SLERP to lambda and k."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from softdlm.evaluate.metrics import resamples
from softdlm.evaluate.summary import Result
from softdlm.report.document import Drawing
from softdlm.report.table import Column, Row, Table, mark_best
from softdlm.reproduce.evidence import Decided, Pair, Sign, more_solved
from softdlm.reproduce.experiment import Claim, Experiment, ShareClaim
from softdlm.reproduce.leads import Lead, lead
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.study import MODELS, STAND_INS, Grids, Study, steps, task_title
from softdlm.reproduce.table_parts import accuracy, point


def tasks(study: Study) -> list[str]:
    """HumanEval; both of the built-in tasks, which are cheap."""
    both = study.places("gsm8k", "humaneval")
    return [task for task, name in both.items() if name == "humaneval" or task in STAND_INS]


def cells(study: Study) -> Grids:
    """SLERP over lambda at the task's k, over k at its lambda, and vanilla for comparison."""
    rates = steps(study.sensitivity_rate)
    return [
        *study.grids(tasks(study), ["vanilla"], rates),
        *study.grids(tasks(study), ["slerp"], rates, lams=study.scale.lams),
        *study.grids(tasks(study), ["slerp"], rates, ks=study.scale.ks),
    ]


def sweep(measured: Measurements, task: str, name: str) -> dict[float, Result]:
    """SLERP over one of its settings, the other as in the accuracy tables."""
    k, lam = measured.study.strength(task)
    fixed: dict[str, float] = {"k": k} if name == "lam" else {"lam": lam}
    return dict(measured.cells["figure2"].swept(task, "slerp", name, **fixed))


def tables(measured: Measurements) -> list[Table]:
    """The figure's numbers."""
    made = []
    for name, title in (("lam", "λ"), ("k", "k")):
        rows = []
        for task in tasks(measured.study):
            swept = sweep(measured, task, name)
            best = mark_best([accuracy(cell) for cell in swept.values()], higher=True)
            rows += [Row((task_title(task), f"{value:g}"), (cell,)) for value, cell in zip(swept, best, strict=True)]
        what = f"Figure 2. Sensitivity to {title}: SLERP at {measured.study.sensitivity_rate} tokens a step"
        notes = ("The rate of the paper's figure is not printed; its values are not either.",)
        columns, mark = (Column("accuracy, %"),), measured.study.scale.mark
        made.append(Table(f"figure2-{name}", what, ("task", title), columns, tuple(rows), notes, mark))
    return made


def drawings(measured: Measurements) -> list[Drawing]:
    made, rate = [], measured.study.sensitivity_rate
    for task in tasks(measured.study):
        k, lam = measured.study.strength(task)
        panels = {
            title: {"slerp": [point(cell, value) for value, cell in sweep(measured, task, name).items()]}
            for name, title in (("lam", f"k = {k}"), ("k", f"λ = {lam:g}"))
        }
        vanilla = measured.cells["figure2"].find(task, "vanilla", f"topn({rate})")
        held = None if vanilla is None else point(vanilla, 0.0)
        caption = f"{task_title(task)}: SLERP over λ and over k, {rate} tokens a step."
        labels = {"xlabels": ["λ", "k"], "ylabel": f"{task_title(task)} accuracy, %", "held": held}
        made.append(Drawing(f"figure2-{task}", caption, "curves", {"panels": panels, **labels}))
    return made


def best_lambda(measured: Measurements) -> Iterator[Lead]:
    """λ = 0.3 against the best of the others, on each task."""
    for _, swept in _over_lambda(measured):
        others = [each for lam, each in swept.items() if lam != 0.3]
        if others and 0.3 in swept:
            yield lead(swept[0.3], others)


def large_lambda(measured: Measurements) -> Decided:
    for task, swept in _over_lambda(measured):
        base, most = swept.get(0.3), swept.get(0.7)
        yield task_title(task), more_solved([Pair("0.3 against 0.7:", most, base)] if base and most else [])


def k_matters_less(measured: Measurements) -> Decided:
    """The spread of accuracies over lambda against that over k, on the same bootstrap samples of the items."""
    for task, by_lam in _over_lambda(measured):
        by_k = sweep(measured, task, "k")
        if len(by_lam) > 1 and len(by_k) > 1:
            gap = 100 * (_spread(list(by_lam.values())) - _spread(list(by_k.values())))
            low, high = gap.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
            words = f"spread over λ minus spread over k: between {low:+.1f} and {high:+.1f} points"
            yield task_title(task), [Sign((low > 0) - (high < 0), words)]


def _spread(cells: Sequence[Result]) -> torch.Tensor:
    """The difference of highest and lowest accuracy, for each bootstrap sample of the items."""
    ids = sorted(cells[0].samples)
    solved = torch.tensor([each.verdicts(ids) for each in cells], dtype=torch.float64)
    shares = torch.stack([row[resamples(len(ids))].mean(1) for row in solved])
    return shares.amax(0) - shares.amin(0)


def _over_lambda(measured: Measurements) -> Iterator[tuple[str, dict[float, Result]]]:
    return ((task, sweep(measured, task, "lam")) for task in tasks(measured.study))


EXPERIMENT = Experiment(
    "figure2", "Figure 2: sensitivity to λ and k",
    "SLERP's accuracy over interpolation strengths and numbers of candidates (appendix B.3).",
    tables, drawings, cells, benchmarks=("humaneval",), models=tuple(MODELS.values()),
    claims=(
        ShareClaim("λ = 0.3 has the highest accuracy on every model and task", best_lambda, "all"),
        Claim("Large λ lowers accuracy", large_lambda),
        Claim("Accuracy depends less on k than on λ", k_matters_less),
    ),
)  # fmt: skip
