"""A feedback rule and a commit rule of one's own; docs/own-rule.md says what came of them.

    softdlm eval --split validation --limit 200 --no-single --commit "entropy(0.1)" \\
        --feedback "vanilla, slerp(k=1, lam=0.5), examples/my_rules.py:Unsure(bar=0.9, k=1, lam=0.5)"
"""

from dataclasses import dataclass

import torch

from softdlm.commit import scores
from softdlm.feedback import aggregate, slerp


@dataclass(frozen=True)
class Unsure:
    """SLERP where the model is unsure; [MASK] where its best candidate reaches `bar`: sure guesses do not echo."""

    bar: float = 0.9
    k: int = 1
    lam: float = 0.5

    def __call__(self, prediction, embeddings, context):
        soft = slerp(embeddings.mask, aggregate(prediction, embeddings, self.k), self.lam)
        return torch.where(prediction.topk_probs[:, :1] < self.bar, soft, embeddings.mask)


@dataclass(frozen=True)
class Apart:
    """The n surest positions of which no two are neighbours: neighbours depend on each other most."""

    n: int = 4

    def __call__(self, prediction, open, context):
        place = torch.arange(open.shape[1], device=open.device)
        score = scores(prediction, open, "confidence")
        chosen = torch.zeros_like(open)
        for _ in range(self.n):
            best = score.argmax(1, keepdim=True)
            chosen |= (place == best) & ~score.isneginf()
            score = score.masked_fill((place - best).abs() <= 1, float("-inf"))
        return chosen
