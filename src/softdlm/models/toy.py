"""A denoiser whose joint distribution is a table: it has no weights and every probability is exact."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.models.denoiser import Denoiser, Source


class JointDenoiser(Denoiser):
    """Predicts each answer position from the tokens at the other answer positions.

    A hard token conditions the joint distribution and [MASK] marginalises it. A soft token mixes the conditionals
    multiplicatively (section 5.1): the embedding is orthonormal, so its coordinates are the weights of [MASK] and the
    tokens. Ids number the words in order of appearance, [MASK] is the last. `smoothing` spreads a little mass over all
    sequences, so that every conditional is defined.
    """

    def __init__(self, prompt: str, joint: Mapping[str, float], smoothing: float = 1e-3) -> None:
        answers = [tuple(answer.split()) for answer in joint]
        self.words = list(dict.fromkeys([*prompt.split(), *itertools.chain(*answers), "[MASK]"]))
        self.prompt_ids = [self.words.index(word) for word in prompt.split()]
        self.choices = [self.words.index(word) for word in dict.fromkeys(itertools.chain(*answers))]
        self.masks = len(answers[0])
        shape = (len(self.choices),) * self.masks
        table = torch.full(shape, smoothing / len(self.choices) ** self.masks)
        for answer, share in zip(answers, joint.values(), strict=True):
            table[tuple(self.choices.index(self.words.index(word)) for word in answer)] += (1 - smoothing) * share
        self.joint = table / table.sum()
        super().__init__(
            torch.eye(len(self.words)), mask_id=len(self.words) - 1, source=Source("Harry Potter or Star Wars", "toy")
        )

    @property
    def canvas_ids(self) -> Int[Tensor, "1 L"]:
        return torch.tensor([[*self.prompt_ids, *[self.mask_id] * self.masks]])

    def hidden(
        self,
        embeds: Float[Tensor, "B L D"],
        *,
        attention_mask: Bool[Tensor, "B L"] | None = None,
        position_ids: Int[Tensor, "B L"] | None = None,
        block_length: int | None = None,
        block_start: Int[Tensor, "B 1"] | None = None,
    ) -> Float[Tensor, "B L H"]:
        weights = embeds[:, len(self.prompt_ids) :, [*self.choices, self.mask_id]]
        weights = weights / weights.sum(-1, keepdim=True)
        logits = embeds.new_full(embeds.shape, -1e9)
        for position in range(self.masks):
            place = len(self.prompt_ids) + position
            logits[:, place, self.choices] = self._mixture(weights, position)
        return logits

    def head(self, hidden: Float[Tensor, "*S H"]) -> Float[Tensor, "*S V"]:
        return hidden

    def _mixture(self, weights: Float[Tensor, "B M R"], position: int) -> Float[Tensor, "B C"]:
        """Weighted mean of log conditionals over all assignments of tokens or [MASK] to the other positions."""
        others = [other for other in range(self.masks) if other != position]
        mixture = torch.zeros(len(weights), len(self.choices))
        for reading in itertools.product(range(weights.shape[-1]), repeat=len(others)):
            weight = torch.ones(len(weights))
            for other, value in zip(others, reading, strict=True):
                weight = weight * weights[:, other, value]
            mixture += weight[:, None] * self.conditional(position, dict(zip(others, reading, strict=True))).log()
        return mixture

    def conditional(self, position: int, known: Mapping[int, int]) -> Float[Tensor, "C"]:
        """p(word at `position` | the known words); an index after the last choice means [MASK]."""
        hard = {other: value for other, value in known.items() if value < len(self.choices)}
        index = tuple(hard.get(other, slice(None)) for other in range(self.masks))
        kept = [other for other in range(self.masks) if other not in hard]
        marginal = self.joint[index].movedim(kept.index(position), 0).reshape(len(self.choices), -1).sum(1)
        return marginal / marginal.sum()


def harry_potter(shares: Sequence[float] = (0.55, 0.45)) -> JointDenoiser:
    """The prompt of Figure 1: two coherent answers, four combinations of their words."""
    return JointDenoiser(
        "Answer is either Harry Potter or Star Wars :", {"Harry Potter": shares[0], "Star Wars": shares[1]}
    )
