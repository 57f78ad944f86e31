"""Table 3 and appendix B.1: where candidates, their aggregate, [MASK] and soft tokens lie (sections 4.1 and 6.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import fsum
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from softdlm.analysis.questions import Question, decode
from softdlm.analysis.spans import Rules
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.feedback import FeedbackRule, aggregate
from softdlm.models.denoiser import Denoiser
from softdlm.registry import needs_of
from softdlm.types import Context, Embeddings, Prediction, Step, first_memory


@dataclass(frozen=True)
class Shape:
    """Means over open positions; by rule where a soft token is involved."""

    positions: int
    candidate_cosine: float
    """The mean cosine between pairs of candidates (Table 3)."""
    aggregate_cosine: float
    """The absolute cosine between the candidates' aggregate and [MASK] (Table 3)."""
    angle: float
    """Degrees between aggregate and [MASK] (appendix B.1, which has its own number of candidates)."""
    norm: float
    """The norm of appendix B.1's aggregate, divided by the [MASK] norm."""
    angle_share: dict[str, float]
    """The angle between soft token and [MASK], divided by that between aggregate and [MASK]."""
    norm_ratio: dict[str, float]
    """The norm of the soft token, divided by the [MASK] norm."""
    below_both: dict[str, float]
    """The share of positions where the soft token is shorter than both [MASK] and the aggregate."""


@dataclass(frozen=True)
class Row:
    """One item: the open positions met while it was decoded."""

    task: str
    item: str
    shape: Shape


@dataclass(frozen=True)
class Summary:
    """All positions of a task's items, each counting the same."""

    task: str
    items: int
    shape: Shape


@dataclass(frozen=True)
class WithMean:
    """A rule that also has the full-vocabulary mean recorded, for rules that are looked at but not decoded with."""

    rule: FeedbackRule
    needs = "mean"

    @property
    def k(self) -> int:
        return self.rule.k

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Float[Tensor, "N D"]:
        return self.rule(prediction, embeddings, context)


def measure(
    model: Denoiser, batch: Sequence[Question], rules: Rules, decoding: Decoding, *, k: int = 3, line_k: int = 4
) -> list[Row]:
    """Decode and look at every position that a pass leaves open, where a soft token is made.

    `k` is Table 3's number of candidates, `line_k` appendix B.1's. The rules are the interpolations to be looked at;
    none of them need be the one that is decoded with. The model decodes in its own type; what is measured is computed
    in float32 at least, so that a soft token is not rounded to bfloat16.
    """
    if k < 2:
        raise UsageError(f"the cosine between candidates needs k >= 2, not {k}")
    if more := [name for name, rule in rules.items() if _remembers(rule) or "probs" in needs_of([rule])]:
        raise UsageError(f"geometry gives rules no memory and no full distribution: leave out {', '.join(more)}")
    embeddings = working_embeddings(model.embedding, model.mask_id)
    seen: list[list[Tensor]] = [[] for _ in batch]

    def look(step: Step, requests: Sequence[int]) -> None:
        still = step.requested & step.canvas.open
        for row, request in enumerate(requests):
            mine = torch.zeros_like(still)
            mine[row] = still[row]
            prediction, context = step.prediction.at(mine), step.context.at(mine)
            seen[request].append(look_at(prediction, embeddings, context, rules, k, line_k).cpu())

    settled = decoding.settled(model.own)
    watched = replace(settled, candidates=max([k, line_k, *(rule.k for rule in rules.values())]))
    if "mean" in needs_of(rules.values()):
        watched = replace(watched, feedback=WithMean(settled.rules[1]))
    decode(model, batch, watched, on_step=look)
    shapes = [_shape(torch.cat(values, 1), rules) for values in seen]
    return [Row(question.task, question.item, shape) for question, shape in zip(batch, shapes, strict=True)]


def working_embeddings(table: Float[Tensor, "V D"], mask_id: int) -> Embeddings:
    """The input table in float32 at least: a soft token rounded to bfloat16 has lost up to 0.4 % of its length."""
    wide = table.to(torch.promote_types(table.dtype, torch.float32))
    return Embeddings(wide, wide[mask_id])


def look_at(
    prediction: Prediction, embeddings: Embeddings, context: Context, rules: Rules, k: int, line_k: int
) -> Float[Tensor, "W N"]:
    """Every measure at every position: the four numbers of the endpoints, then three for each rule."""
    return torch.stack(list(_values(prediction, embeddings, context, rules, k, line_k)))


def _remembers(rule: FeedbackRule) -> bool:
    return bool(first_memory(rule, 1, 1, torch.device("meta"), 2))


def _values(
    prediction: Prediction, embeddings: Embeddings, context: Context, rules: Rules, k: int, line_k: int
) -> Iterator[Float[Tensor, "N"]]:
    """Per position: the four numbers of the endpoints, then three for each rule."""
    mask = embeddings.mask.double()
    mean = aggregate(prediction, embeddings, line_k).double()
    yield pairwise_cosine(embeddings.table[prediction.topk_ids[:, :k]].double())
    yield cosine_similarity(aggregate(prediction, embeddings, k).double(), mask[None]).abs()
    angle = degrees(mean, mask)
    yield angle
    yield mean.norm(dim=-1) / mask.norm()
    shorter = torch.minimum(mean.norm(dim=-1), mask.norm())
    rounding = 4 * torch.finfo(embeddings.table.dtype).eps
    for rule in rules.values():
        soft = rule(prediction, embeddings, context).double()
        length = soft.norm(dim=-1)
        yield degrees(soft, mask) / angle
        yield length / mask.norm()
        yield (length < (1 - rounding) * shorter).double()


def pairwise_cosine(vectors: Float[Tensor, "N K D"]) -> Float[Tensor, "N"]:
    """Mean over the pairs of different vectors."""
    unit = normalize(vectors, dim=-1)
    first, second = torch.triu_indices(vectors.shape[1], vectors.shape[1], offset=1, device=vectors.device)
    return (unit[:, first] * unit[:, second]).sum(-1).mean(-1)


def degrees(vectors: Float[Tensor, "N D"], axis: Float[Tensor, "D"]) -> Float[Tensor, "N"]:
    return cosine_similarity(vectors, axis[None]).clamp(-1, 1).arccos().rad2deg()


def _shape(values: Float[Tensor, "W N"], rules: Rules) -> Shape:
    means = (values.sum(1) / max(values.shape[1], 1)).tolist()
    shares, ratios, below = (dict(zip(rules, means[start::3], strict=True)) for start in (4, 5, 6))
    return Shape(values.shape[1], *means[:4], angle_share=shares, norm_ratio=ratios, below_both=below)


def summarise(rows: Sequence[Row]) -> list[Summary]:
    tasks = {task: [row.shape for row in rows if row.task == task] for task in dict.fromkeys(row.task for row in rows)}
    return [Summary(task, len(shapes), pool(shapes)) for task, shapes in tasks.items()]


def pool(shapes: Sequence[Shape]) -> Shape:
    """The means over all positions of several shapes."""
    positions = sum(shape.positions for shape in shapes)

    def mean(values: Iterable[float]) -> float:
        return fsum(value * shape.positions for value, shape in zip(values, shapes, strict=True)) / max(positions, 1)

    def pooled(values: Sequence[Any]) -> Any:
        by_rule = isinstance(values[0], dict)
        return {rule: mean(table[rule] for table in values) for rule in values[0]} if by_rule else mean(values)

    measures = [each.name for each in fields(Shape) if each.name != "positions"]
    return Shape(positions, *(pooled([getattr(shape, name) for shape in shapes]) for name in measures))
