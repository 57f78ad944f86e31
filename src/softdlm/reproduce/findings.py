"""The paper's claims, each a function from data to findings; and a few claims of ours, marked as such.

Accuracies are compared on the same items by McNemar's exact test, corrected for the number of comparisons of a claim on
a task; means over prompts, items or completions by the bootstrap interval of their paired difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from softdlm.evaluate.cell import Rate
from softdlm.evaluate.metrics import resamples
from softdlm.evaluate.summary import Result
from softdlm.reproduce import grids
from softdlm.reproduce.data import Cells, Data
from softdlm.reproduce.evidence import Finding, Pair, Sign, finding, more_solved, positive
from softdlm.reproduce.mechanism import open_rows
from softdlm.reproduce.study import task_title

NEAR = 0.1
"""|cosine| below which we call two directions nearly orthogonal; the paper's largest is 0.074."""
Signs = Sequence[Sign]


@dataclass(frozen=True)
class Claim:
    experiment: str
    where: str
    words: str
    decide: Callable[[Data], Iterator[tuple[str, Signs]]]
    """Scope and comparisons, once for each scope that it is decided on."""

    def findings(self, data: Data) -> list[Finding]:
        made = [finding(self.words, self.where, scope, signs) for scope, signs in self.decide(data)]
        return made or [finding(self.words, self.where, "", [])]


def _at_rates(table: str, better: str, worse: str) -> Callable[[Data], Iterator[tuple[str, Signs]]]:
    """One method against another at 2, 4 and 8 tokens a step, by task; in Table 7 among what single tokens solve."""

    def decide(data: Data) -> Iterator[tuple[str, Signs]]:
        cells = data.cells[table]
        for task in data.study.places(*grids.MAIN):
            single = cells.single(task) if table == "table7" else None
            pairs = [
                Pair(f"at {n}", first, second, single)
                for n, rate in zip(grids.RATES, grids.per_step(*grids.RATES), strict=True)
                if (first := cells.find(task, worse, rate)) and (second := cells.find(task, better, rate))
            ]
            if table != "table7" or single is not None:
                yield task_title(task), more_solved(pairs)

    return decide


def _recovery_falls(data: Data) -> Iterator[tuple[str, Signs]]:
    cells = data.cells["table7"]
    for task in data.study.places(*grids.MAIN):
        pairs = []
        single = cells.single(task)
        for method in grids.PAPER_METHODS:
            found = [cells.find(task, method, rate) for rate in grids.per_step(*grids.RATES)]
            names = [f"{method}, {more} against {less}" for less, more in zip((2, 4), (4, 8), strict=True)]
            for name, slow, fast in zip(names, found[:-1], found[1:], strict=True):
                if slow and fast and single:
                    pairs.append(Pair(name, fast, slow, single))
        yield task_title(task), more_solved(pairs)


def _ablation(worse: str) -> Callable[[Data], Iterator[tuple[str, Signs]]]:
    def decide(data: Data) -> Iterator[tuple[str, Signs]]:
        (rate,) = grids.per_step(2)
        for task in data.study.places(*grids.ABLATED):
            first, second = (data.cells["table5"].find(task, method, rate) for method in (worse, "slerp"))
            yield task_title(task), more_solved([Pair("SLERP", first, second)] if first and second else [])

    return decide


def _adaptive(data: Data) -> Iterator[tuple[str, Signs]]:
    for task in data.study.places(*grids.ADAPTIVE):
        pairs = [Pair(str(rate), first, second) for rate, first, second in _adaptive_pairs(data.cells["table6"], task)]
        yield task_title(task), more_solved(pairs)


def _fewer_passes(data: Data) -> Iterator[tuple[str, Signs]]:
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


def _best_lambda(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, swept in _sweeps(data, "lam"):
        best = swept.get(0.3)
        pairs = [Pair(f"0.3 against {lam:g}:", each, best) for lam, each in swept.items() if best and lam != 0.3]
        yield task_title(task), more_solved(pairs)


def _large_lambda(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, swept in _sweeps(data, "lam"):
        base, most = swept.get(0.3), swept.get(0.7)
        yield task_title(task), more_solved([Pair("0.3 against 0.7:", most, base)] if base and most else [])


def _k_matters_less(data: Data) -> Iterator[tuple[str, Signs]]:
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


def _coherent(data: Data) -> Iterator[tuple[str, Signs]]:
    """One prompt: a fact, not a sample."""
    for row in data.rows("joint"):
        first, last = {}, {}
        for method in ("vanilla", "slerp"):
            values = row.probability[method]
            first[method], last[method] = (values[0] + values[-1]) / sum(values), values.index(max(values))
        gain = first["slerp"] - first["vanilla"]
        yield (
            "one prompt",
            [
                Sign(_sign(gain), f"coherent share {first['vanilla']:.3f} to {first['slerp']:.3f}"),
                Sign(
                    1 if last["slerp"] in (0, len(row.combinations) - 1) else -1,
                    f"most likely: {row.combinations[last['slerp']]}",
                ),
            ],
        )


def _multiplicative(data: Data) -> Iterator[tuple[str, Signs]]:
    rows = data.rows("mixtures")
    if rows:
        gaps = [fmean(row.additive["slerp"]) - fmean(row.multiplicative["slerp"]) for row in rows]
        yield f"{len(rows)} prompts", [positive(gaps, "JS to additive less JS to multiplicative, nats:", 4)]


def _aligned(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, rows in open_rows(data).items():
        gaps = [row.shape.candidate_cosine - row.shape.aggregate_cosine for row in rows]
        words = "cosine of candidates less |cosine| of aggregate and [MASK]:"
        yield task_title(task), [positive(gaps, words, 3, _positions(rows))]


def _orthogonal(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, rows in open_rows(data).items():
        gaps = [NEAR - row.shape.aggregate_cosine for row in rows]
        yield task_title(task), [positive(gaps, f"{NEAR} less |cosine| of aggregate and [MASK]:", 3, _positions(rows))]


def _shrinks(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, rows in open_rows(data).items():
        norms = [1 - row.shape.norm_ratio["euclidean"] for row in rows]
        below = [row.shape.below_both["euclidean"] - 0.5 for row in rows]
        yield (
            task_title(task),
            [
                positive(norms, "[MASK] norm less that of the soft token, in [MASK] norms:", 3, _positions(rows)),
                positive(below, "share below both norms, less one half:", 3, _positions(rows)),
            ],
        )


def _off_the_midpoint(data: Data) -> Iterator[tuple[str, Signs]]:
    """Either side of one half will do."""
    for task, rows in open_rows(data).items():
        gaps = [row.shape.angle_share["euclidean"] - 0.5 for row in rows]
        found = positive(gaps, "share of the angle covered, less one half:", 3, _positions(rows))
        yield task_title(task), [Sign(abs(found.sign), found.words)]


def _positions(rows: Sequence[Any]) -> list[float]:
    return [row.shape.positions for row in rows]


def _closer(better: str, worse: str) -> Callable[[Data], Iterator[tuple[str, Signs]]]:
    """Table 4: lower reverse KL, prompt by prompt."""

    def decide(data: Data) -> Iterator[tuple[str, Signs]]:
        rows = data.rows("consistency")
        if rows:
            gaps = [row.reverse_kl[worse] - row.reverse_kl[better] for row in rows]
            yield f"{len(rows)} prompts", [positive(gaps, "reverse KL lower by, nats:")]

    return decide


def _closer_on_spans(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, rows in data.by_task("completions").items():
        long = [row for row in rows if row.lengths]
        if long:
            signs = []
            for other in ("vanilla", "euclidean"):
                gaps = [fmean(row.reverse_kl[other]) - fmean(row.reverse_kl["slerp"]) for row in long]
                signs.append(positive(gaps, f"lower than {other} by, nats:", 4))
            yield task_title(task), signs


def _settles(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, rows in data.by_task("agreement").items():
        gaps = [
            _settled(row.course["slerp"]) - _settled(row.course["vanilla"])
            for row in rows
            if sum(row.course["slerp"].waiting) and sum(row.course["vanilla"].waiting)
        ]
        yield task_title(task), [positive(gaps, "share of open positions already settled, SLERP less vanilla:")] if gaps else []


def _settled(course: Any) -> float:
    return sum(course.settled) / sum(course.waiting)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


CLAIMS = (
    Claim("figure1", "Figure 1", "Soft tokens move probability to coherent answers, and one of them becomes the most likely", _coherent),
    Claim("table1", "Table 1", "SLERP's predictions are closer to the multiplicative than to the additive mixture", _multiplicative),
    Claim("table2", "Table 2", "SLERP solves more than vanilla at every rate", _at_rates("table2", "slerp", "vanilla")),
    Claim("table2", "Table 2", "SLERP solves more than Euclidean soft tokens at every rate", _at_rates("table2", "slerp", "euclidean")),
    Claim("table3", "Table 3", "Candidates are better aligned with one another than their aggregate with [MASK]", _aligned),
    Claim("table3", "Table 3", f"The aggregate is nearly orthogonal to [MASK] (|cosine| below {NEAR})", _orthogonal),
    Claim("table4", "Table 4", "SLERP is closer to the sequential reference than vanilla", _closer("slerp", "vanilla")),
    Claim("table4", "Table 4", "SLERP is closer to the sequential reference than Euclidean soft tokens", _closer("slerp", "euclidean")),
    Claim("table4", "Table 4", "Euclidean soft tokens are closer to the sequential reference than vanilla", _closer("euclidean", "vanilla")),
    Claim("b1", "Appendix B.1", "Linear interpolation shortens the soft token, at most positions below both ends", _shrinks),
    Claim("b1", "Appendix B.1", "Linear interpolation at one half does not reach the middle of the angle", _off_the_midpoint),
    Claim("table5", "Table 5", "The [MASK] norm solves more than the candidates' norm", _ablation("slerp-candidate-norm")),
    Claim("table5", "Table 5", "SLERP solves more than linear interpolation at the same norm", _ablation("euclidean-mask-norm")),
    Claim("figure2", "Figure 2", "λ = 0.3 solves more than any other λ", _best_lambda),
    Claim("figure2", "Figure 2", "Large λ lowers accuracy", _large_lambda),
    Claim("figure2", "Figure 2", "Accuracy depends less on k than on λ", _k_matters_less),
    Claim("table6", "Table 6", "SLERP improves adaptive samplers", _adaptive),
    Claim("table6", "ours, with Table 6", "Adaptive samplers take fewer passes with SLERP", _fewer_passes),
    Claim("table7", "Table 7", "SLERP recovers more than vanilla of what single tokens solve, at every rate", _at_rates("table7", "slerp", "vanilla")),
    Claim("table7", "Table 7", "Recovery falls as more tokens are committed a step", _recovery_falls),
    Claim("table8", "Table 8", "On its own answers SLERP is closer to the sequential reference than vanilla and Euclidean", _closer_on_spans),
    Claim("extras", "ours, agreement", "With SLERP open positions settle earlier than with vanilla", _settles),
)  # fmt: skip


def findings(data: Data, experiments: Sequence[str]) -> list[Finding]:
    """Of the experiments that were run, in the paper's order."""
    return [found for claim in CLAIMS if claim.experiment in experiments for found in claim.findings(data)]
