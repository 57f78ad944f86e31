"""What the analyses are held against: closed forms over a table, and naive loops over a model's own logits.

Nothing here imports softdlm.analysis' arithmetic: plain Python, one formula at a time, as the paper prints them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from softdlm.analysis.prompts import Case
from softdlm.analysis.spans import Span
from softdlm.models.toy import JointDenoiser
from tests.conftest import tiny

PROMPT = "say"
_LIKELY = {"a p x": 37.0, "b q y": 26.0, "a q z": 16.0, "c p y": 12.0, "b r x": 9.0}
_WEIGHTS = {
    " ".join(answer): _LIKELY.get(" ".join(answer), 0.0) + 1 / (7 + index)
    for index, answer in enumerate(itertools.product("abc", "pqr", "xyz"))
}
SHARES = {answer: weight / sum(_WEIGHTS.values()) for answer, weight in _WEIGHTS.items()}
"""No two alike, so that no choice among the three words of a place is a tie."""
SMOOTHING = 0.1
Distribution = dict[int, float]


def toy() -> JointDenoiser:
    """Three dependent positions over nine words, nothing symmetric."""
    return JointDenoiser(PROMPT, SHARES, SMOOTHING)


def toy_case(a: str = "a p x", b: str = "b q y") -> Case:
    model = toy()
    first, second = (tuple(model.words.index(word) for word in answer.split()) for answer in (a, b))
    return Case(PROMPT, Span.after(model.prompt_ids, 3, model.mask_id), first, second)


class Table:
    """The same joint as a dictionary, built again from its shares."""

    def __init__(self) -> None:
        words = list(dict.fromkeys(itertools.chain(*(answer.split() for answer in SHARES))))
        self.ids = {word: 1 + index for index, word in enumerate(words)}
        every = list(itertools.product(self.ids.values(), repeat=3))
        self.joint = {answer: SMOOTHING / len(every) for answer in every}
        for answer, share in SHARES.items():
            self.joint[tuple(self.ids[word] for word in answer.split())] += (1 - SMOOTHING) * share

    def __call__(self, position: int, filling: Sequence[int | None]) -> Distribution:
        """p(token at a position | what the *other* positions show)."""
        known = {place: token for place, token in enumerate(filling) if token is not None and place != position}
        found = dict.fromkeys(self.ids.values(), 0.0)
        for answer, share in self.joint.items():
            if all(answer[place] == token for place, token in known.items()):
                found[answer[position]] += share
        total = sum(found.values())
        return {token: share / total for token, share in found.items()}


Predict = Callable[[int, Sequence[int | None]], Distribution]


def network(family: str, span: Span) -> Predict:
    """The same question put to a network, one unbatched forward pass each time."""
    model = tiny(family, torch.float64)

    def predict(position: int, filling: Sequence[int | None]) -> Distribution:
        row = list(span.ids)
        for place, token in zip(span.places, filling, strict=True):
            row[place] = model.mask_id if token is None else token
        return spread(model.logits(torch.tensor([row]))[0, span.places[position]])

    return predict


def soft_network(family: str, span: Span, vectors: Sequence[torch.Tensor]) -> list[Distribution]:
    """A network's predictions with these vectors at the masks."""
    model = tiny(family, torch.float64)
    embeds = model.embedding[torch.tensor([list(span.ids)])].clone()
    for place, vector in zip(span.places, vectors, strict=True):
        embeds[0, place] = vector
    logits = model.logits(embeds=embeds)[0]
    return [spread(logits[place]) for place in span.places]


def spread(logits: torch.Tensor) -> Distribution:
    values = [math.exp(value - float(logits.max())) for value in logits.tolist()]
    return {token: value / sum(values) for token, value in enumerate(values)}


def network_case(family: str, masks: int = 3) -> Case:
    """Some context, masks, and two alternatives that share their last token."""
    mask_id = tiny(family).mask_id
    a, b = (11, 23, 35, 47)[: masks - 1], (14, 26, 38, 50)[: masks - 1]
    return Case("ids", Span.after((5, 8, 13, 21, 34), masks, mask_id), (*a, 60), (*b, 60))


def top(distribution: Mapping[int, float], k: int, without: Sequence[int] = ()) -> list[tuple[int, float]]:
    ranked = sorted(distribution.items(), key=lambda item: -item[1])
    return [(token, share) for token, share in ranked if token not in without][:k]


def kl(p: Mapping[Any, float], q: Mapping[Any, float]) -> float:
    return sum(share * math.log(share / q[key]) for key, share in p.items() if share > 0)


def js(p: Mapping[int, float], q: Mapping[int, float]) -> float:
    keys = {*p, *q}
    m = {key: (p.get(key, 0.0) + q.get(key, 0.0)) / 2 for key in keys}
    return 0.5 * kl(p, m) + 0.5 * kl(q, m)


def normalise(weights: Mapping[Any, float]) -> dict[Any, float]:
    total = sum(weights.values())
    return {key: weight / total for key, weight in weights.items()}


def reverse_kl(q: Mapping[Any, float], reference: Mapping[Any, float]) -> float:
    return kl(normalise(q), normalise(reference))


def product(marginals: Sequence[Distribution], answers: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    return {
        answer: math.prod(marginal[token] for marginal, token in zip(marginals, answer, strict=True))
        for answer in answers
    }


def order_averaged(predict: Predict, answer: tuple[int, ...]) -> float:
    """Appendix D.3 as printed: every order by itself, every step a pass of its own."""
    orders = list(itertools.permutations(range(len(answer))))
    total = 0.0
    for order in orders:
        filling: list[int | None] = [None] * len(answer)
        chain = 1.0
        for position in order:
            chain *= predict(position, filling)[answer[position]]
            filling[position] = answer[position]
        total += chain
    return total / len(orders)


def surest(predict: Predict, filling: list[int | None], mask_id: int) -> int:
    """The open position with the highest maximum token probability."""
    open = [position for position, token in enumerate(filling) if token is None]
    return max(open, key=lambda position: top(predict(position, filling), 1, [mask_id])[0][1])


def confidence_ordered(predict: Predict, answer: tuple[int, ...], mask_id: int) -> float:
    filling: list[int | None] = [None] * len(answer)
    chain = 1.0
    while None in filling:
        position = surest(predict, filling, mask_id)
        chain *= predict(position, filling)[answer[position]]
        filling[position] = answer[position]
    return chain
