"""The paper's claims about mechanism and geometry, decided from the rows of the analyses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from softdlm.reproduce.evidence import Decide, Sign, Signs, positive
from softdlm.reproduce.measurements import Data
from softdlm.reproduce.mechanism import open_rows
from softdlm.reproduce.study import task_title

NEAR = 0.1
"""|cosine| below which we call two directions nearly orthogonal; the paper's largest is 0.074."""


def coherent(data: Data) -> Iterator[tuple[str, Signs]]:
    """One prompt: a fact, not a sample."""
    for row in data.rows("joint"):
        whole = {method: sum(row.probability[method]) for method in ("vanilla", "slerp")}
        before, after = ((row.probability[name][0] + row.probability[name][-1]) / whole[name] for name in whole)
        best = row.probability["slerp"].index(max(row.probability["slerp"]))
        yield (
            "one prompt",
            [
                Sign(_sign(after - before), f"coherent share {before:.3f} to {after:.3f}"),
                Sign(1 if best in (0, len(row.combinations) - 1) else -1, f"most likely: {row.combinations[best]}"),
            ],
        )


def multiplicative(data: Data) -> Iterator[tuple[str, Signs]]:
    rows = data.rows("mixtures")
    if rows:
        gaps = [fmean(row.additive["slerp"]) - fmean(row.multiplicative["slerp"]) for row in rows]
        yield f"{len(rows)} prompts", [positive(gaps, "JS to additive less JS to multiplicative, nats:", 4)]


def aligned(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, rows in open_rows(data).items():
        gaps = [row.shape.candidate_cosine - row.shape.aggregate_cosine for row in rows]
        words = "cosine of candidates less |cosine| of aggregate and [MASK]:"
        yield task_title(task), [positive(gaps, words, 3, _positions(rows))]


def orthogonal(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, rows in open_rows(data).items():
        gaps = [NEAR - row.shape.aggregate_cosine for row in rows]
        yield task_title(task), [positive(gaps, f"{NEAR} less |cosine| of aggregate and [MASK]:", 3, _positions(rows))]


def shrinks(data: Data) -> Iterator[tuple[str, Signs]]:
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


def off_the_midpoint(data: Data) -> Iterator[tuple[str, Signs]]:
    """Either side of one half will do."""
    for task, rows in open_rows(data).items():
        gaps = [row.shape.angle_share["euclidean"] - 0.5 for row in rows]
        found = positive(gaps, "share of the angle covered, less one half:", 3, _positions(rows))
        yield task_title(task), [Sign(abs(found.sign), found.words)]


def _positions(rows: Sequence[Any]) -> list[float]:
    return [row.shape.positions for row in rows]


def closer(better: str, worse: str) -> Decide:
    """Table 4: lower reverse KL, prompt by prompt."""

    def decide(data: Data) -> Iterator[tuple[str, Signs]]:
        rows = data.rows("consistency")
        if rows:
            gaps = [row.reverse_kl[worse] - row.reverse_kl[better] for row in rows]
            yield f"{len(rows)} prompts", [positive(gaps, "reverse KL lower by, nats:")]

    return decide


def closer_on_spans(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, rows in data.by_task("completions").items():
        long = [row for row in rows if row.lengths]
        if long:
            signs = []
            for other in ("vanilla", "euclidean"):
                gaps = [fmean(row.reverse_kl[other]) - fmean(row.reverse_kl["slerp"]) for row in long]
                signs.append(positive(gaps, f"lower than {other} by, nats:", 4))
            yield task_title(task), signs


def settles(data: Data) -> Iterator[tuple[str, Signs]]:
    for task, rows in data.by_task("agreement").items():
        gaps = [
            _settled(row.course["slerp"]) - _settled(row.course["vanilla"])
            for row in rows
            if sum(row.course["slerp"].waiting) and sum(row.course["vanilla"].waiting)
        ]
        words = "share of open positions already settled, SLERP less vanilla:"
        yield task_title(task), [positive(gaps, words)] if gaps else []


def _settled(course: Any) -> float:
    return sum(course.settled) / sum(course.waiting)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
