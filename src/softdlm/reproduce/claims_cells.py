"""The paper's claims about accuracy and recovery, decided from cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch

from softdlm.evaluate.cell import Rate
from softdlm.evaluate.metrics import resamples
from softdlm.evaluate.summary import Result
from softdlm.reproduce import grids
from softdlm.reproduce.evidence import Decide, Pair, Sign, Signs, more_solved, positive
from softdlm.reproduce.measurements import Cells, Data
from softdlm.reproduce.study import task_title


def at_rates(better: str, worse: str) -> Decide:
    """One method against another at 2, 4 and 8 tokens a step, by task."""

    def decide(data: Data) -> Iterator[tuple[str, Signs]]:
        for task in data.study.places(*grids.MAIN):
            yield task_title(task), more_solved(_pairs(data.cells["table2"], task, better, worse))

    return decide


def more_recovered(data: Data) -> Iterator[tuple[str, Signs]]:
    """SLERP against vanilla on the items that single tokens solve."""
    cells = data.cells["table7"]
    for task in data.study.places(*grids.MAIN):
        if (single := cells.single(task)) is not None:
            yield task_title(task), more_solved(_pairs(cells, task, "slerp", "vanilla", single))


def _pairs(cells: Cells, task: str, better: str, worse: str, among: Result | None = None) -> list[Pair]:
    return [
        Pair(f"at {n}", first, second, among)
        for n, rate in zip(grids.RATES, grids.per_step(*grids.RATES), strict=True)
        if (first := cells.find(task, worse, rate)) and (second := cells.find(task, better, rate))
    ]


def recovery_falls(data: Data) -> Iterator[tuple[str, Signs]]:
    """Each rate against the next faster one, for every method."""
    cells, rates = data.cells["table7"], grids.per_step(*grids.RATES)
    for task in data.study.places(*grids.MAIN):
        single = cells.single(task)
        pairs = [
            Pair(f"{method}, {slow.value:g} against {fast.value:g}:", second, first, single)
            for method in grids.PAPER_METHODS
            for slow, fast in pairwise(rates)
            if (first := cells.find(task, method, slow)) and (second := cells.find(task, method, fast))
        ]
        yield task_title(task), more_solved(pairs if single else [])


def ablation(worse: str) -> Decide:
    def decide(data: Data) -> Iterator[tuple[str, Signs]]:
        (rate,) = grids.per_step(2)
        for task in data.study.places(*grids.ABLATED):
            first, second = (data.cells["table5"].find(task, method, rate) for method in (worse, "slerp"))
            yield task_title(task), more_solved([Pair("SLERP", first, second)] if first and second else [])

    return decide


def adaptive(data: Data) -> Iterator[tuple[str, Signs]]:
    for task in data.study.places(*grids.ADAPTIVE):
        pairs = [Pair(str(rate), first, second) for rate, first, second in _adaptive_pairs(data.cells["table6"], task)]
        yield task_title(task), more_solved(pairs)


def fewer_passes(data: Data) -> Iterator[tuple[str, Signs]]:
    for task in data.study.places(*grids.ADAPTIVE):
        signs = [
            positive([-more for more in _differences(first, second)], f"{rate}: passes saved", 1)
            for rate, first, second in _adaptive_pairs(data.cells["table6"], task)
        ]
        yield task_title(task), signs


def _adaptive_pairs(cells: Cells, task: str) -> list[tuple[Rate, Result, Result]]:
    return [
        (rate, first, second)
        for rate in (Rate("threshold", grids.THRESHOLD), Rate("entropy_bound", grids.BOUND))
        if (first := cells.find(task, "vanilla", rate)) and (second := cells.find(task, "slerp", rate))
    ]


def _differences(first: Result, second: Result) -> list[float]:
    """Passes of the second less those of the first, by item."""
    return [second.samples[item].forwards - sample.forwards for item, sample in first.samples.items()]


def best_lambda(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, swept in _sweeps(data, "lam"):
        best = swept.get(0.3)
        pairs = [Pair(f"0.3 against {lam:g}:", each, best) for lam, each in swept.items() if best and lam != 0.3]
        yield task_title(task), more_solved(pairs)


def large_lambda(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, swept in _sweeps(data, "lam"):
        base, most = swept.get(0.3), swept.get(0.7)
        yield task_title(task), more_solved([Pair("0.3 against 0.7:", most, base)] if base and most else [])


def k_matters_less(data: Data) -> Iterator[tuple[str, Signs]]:
    """The spread of accuracies over k against that over lambda, items drawn again together."""
    by_k = dict(_sweeps(data, "k"))
    for task, by_lam in _sweeps(data, "lam"):
        if len(by_lam) > 1 and len(by_k.get(task, {})) > 1:
            spreads = [_spread(list(by_lam.values())), _spread(list(by_k[task].values()))]
            gap = 100 * (spreads[0] - spreads[1])
            low, high = gap.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
            sign = 1 if low > 0 else -1 if high < 0 else 0
            words = f"spread over λ less spread over k, points: between {low:+.1f} and {high:+.1f}"
            yield task_title(task), [Sign(sign, words)]


def _spread(cells: Sequence[Result]) -> torch.Tensor:
    """Highest accuracy less lowest, for each bootstrap sample of the items."""
    ids = sorted(cells[0].samples)
    solved = torch.tensor([each.verdicts(ids) for each in cells], dtype=torch.float64)
    shares = torch.stack([row[resamples(len(ids))].mean(1) for row in solved])
    return shares.amax(0) - shares.amin(0)


def _sweeps(data: Data, name: str) -> Iterator[tuple[str, dict[float, Result]]]:
    for task in grids.sensitivity_tasks(data.study):
        k, lam = data.study.strength(task)
        fixed: dict[str, float] = {"k": k} if name == "lam" else {"lam": lam}
        yield task, dict(data.cells["figure2"].swept(task, "slerp", name, **fixed))
