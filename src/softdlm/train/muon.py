"""The Muon optimiser, with matrices of equal shape updated together."""

# torch._foreach_* functions need one launch for all matrices of a group
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.optimizer import Optimizer

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of Jordan's quintic iteration, as in torch.optim.Muon: five rounds bring singular values near 1."""
ROUNDS = 5
MOMENTUM = 0.95


class Muon(Optimizer):
    """torch.optim.Muon with "match_rms_adamw", which makes learning rates comparable with AdamW's.

    A group holds matrices of one shape and is updated by batched products. torch's Muon updates one matrix at a time:
    about 1,200 launches per step for 56 small matrices, which take a GPU longer than the network does.
    """

    def __init__(
        self, groups: Sequence[Sequence[Tensor]], lr: float, weight_decay: float, momentum: float = MOMENTUM
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__([{"params": list(group)} for group in groups], defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            weights, lr, momentum = group["params"], group["lr"], group["momentum"]
            grads = [weight.grad for weight in weights]
            for weight in weights:
                self.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))
            moments = [self.state[weight]["momentum_buffer"] for weight in weights]
            torch._foreach_lerp_(moments, grads, 1 - momentum)
            ahead = torch.stack(torch._foreach_lerp(grads, moments, momentum))
            updates = orthogonalised(ahead).to(ahead.dtype).unbind()
            torch._foreach_mul_(weights, 1 - lr * group["weight_decay"])
            torch._foreach_add_(weights, updates, alpha=-lr * 0.2 * sqrt(max(ahead.shape[1:])))


def orthogonalised(matrices: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """Each matrix with its singular values brought near 1 by Newton-Schulz iterations, in bfloat16."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
