"""Muon for many matrices at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.optimizer import Optimizer

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of Jordan's quintic, as in torch.optim.Muon: five rounds bring singular values near 1."""
ROUNDS = 5
MOMENTUM = 0.95


class Muon(Optimizer):
    """torch.optim.Muon with "match_rms_adamw", so that learning rates are of the size of AdamW's.

    A group holds matrices of one shape and is updated by products over all of them: torch's own goes from matrix to
    matrix, with some 1,200 launches a step for 56 small ones, which take a GPU longer than the network does.
    """

    def __init__(
        self, groups: Sequence[Sequence[Tensor]], lr: float, weight_decay: float, momentum: float = MOMENTUM
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__([{"params": list(group)} for group in groups], defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
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
    """Each with its singular values brought near 1, in bfloat16."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
