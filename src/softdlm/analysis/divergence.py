"""Divergences in nats, from log-probabilities."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def kl(log_p: Float[Tensor, "*S V"], log_q: Float[Tensor, "*S V"]) -> Float[Tensor, "*S"]:
    """KL(p || q), where 0 log 0 = 0."""
    p = log_p.exp()
    return torch.where(p > 0, p * (log_p - log_q), 0).sum(-1)


def jensen_shannon(log_p: Float[Tensor, "*S V"], log_q: Float[Tensor, "*S V"]) -> Float[Tensor, "*S"]:
    """JS(p, q) = (KL(p || m) + KL(q || m)) / 2 with m = (p + q) / 2 (appendix D.2)."""
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return (kl(log_p, log_m) + kl(log_q, log_m)) / 2


def conditional(log_p: Float[Tensor, "C"]) -> Float[Tensor, "C"]:
    """p_S of appendix D.3: p normalised over a support."""
    return log_p - log_p.logsumexp(0)


def conditional_reverse_kl(log_q: Float[Tensor, "C"], log_reference: Float[Tensor, "C"]) -> float:
    """KL(q_S || p_ref,S): both are normalised over the shared support first (appendices D.3, D.4)."""
    return float(kl(conditional(log_q), conditional(log_reference)))
