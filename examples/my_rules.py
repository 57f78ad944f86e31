"""A feedback rule in a file of one's own; everything that takes a rule takes its spelling.

    softdlm eval --split test --limit 200 --commit "entropy(0.1)" --no-single \\
        --feedback "vanilla, slerp(k=1, lam=0.5), examples/my_rules.py:Unsure(bar=0.9, k=1, lam=0.5)"
"""

from dataclasses import dataclass

import torch
from torch import Tensor

import softdlm
from softdlm.feedback import aggregate, slerp


@dataclass(frozen=True)
class Unsure:
    """SLERP where the model is unsure; [MASK] where its best candidate reaches `bar`: sure guesses do not echo."""

    bar: float = 0.9
    k: int = 1
    lam: float = 0.5

    def __call__(
        self, prediction: softdlm.Prediction, embeddings: softdlm.Embeddings, context: softdlm.Context
    ) -> Tensor:
        soft = slerp(embeddings.mask, aggregate(prediction, embeddings, self.k), self.lam)
        return torch.where(prediction.topk_probs[:, :1] < self.bar, soft, embeddings.mask)
