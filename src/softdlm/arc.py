"""The plane of [MASK] and the candidates' mean, where most feedback rules place their soft tokens.

A rule names its point by two weights (x, y): x e_MASK + y tangent. They are functions of numbers alone, written in
arithmetic, comparisons, `if` on the norm, and where, cos, sin, sqrt, so that one formula serves tensors here and a
program of a GPU in kernels/soft.py, which compiles the same source.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, cos, sin, sqrt, where

DEGENERATE = 1e-4
"""Below this sine of the angle (and for an aggregate this much shorter than [MASK]) the arc has no direction."""


class Ends(NamedTuple):
    """[MASK] and a mean: their norms, the angle between them, and the tangent at [MASK] towards the mean."""

    mask: Float[Tensor, "D"]
    tangent: Float[Tensor, "N D"]
    """m / |m| - cos(theta) e / |e|, of norm sin(theta)."""
    numbers: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
    """|e_MASK|, |m|, cos(theta), sin(theta), theta."""

    @staticmethod
    def of(mask: Float[Tensor, "D"], mean: Float[Tensor, "N D"]) -> Ends:
        """The sine is the tangent's norm, not that of 1 - cos^2, which is rounded away below 3e-4."""
        tiny = torch.finfo(mean.dtype).tiny
        mask_norm, mean_norm = norm_of(mask).clamp(min=tiny), norm_of(mean).clamp(min=tiny)
        toward, start = mean / mean_norm, mask / mask_norm
        cosine = (toward * start).sum(-1, keepdim=True)
        tangent = toward - cosine * start
        sine = norm_of(tangent)
        return Ends(mask, tangent, (mask_norm, mean_norm, cosine, sine, angle_of(sine, cosine)))

    def point(self, along: Tensor, across: Tensor) -> Float[Tensor, "N D"]:
        return along * self.mask + across * self.tangent


@no_type_check
def line_weights(lam, norm, mask_norm, mean_norm, cosine, sine, angle):
    """The point at lam on the straight line from [MASK] to the mean."""
    along = (1 - lam) + lam * mean_norm * cosine / mask_norm
    across = lam * mean_norm
    if norm == "mask":
        length = sqrt(along * along * mask_norm * mask_norm + across * across * sine * sine)
        long = length > mask_norm * DEGENERATE
        along = where(long, along * (mask_norm / length), 1.0)
        across = where(long, across * (mask_norm / length), 0.0)
    return along, across


@no_type_check
def arc_weights(lam, norm, mask_norm, mean_norm, cosine, sine, angle):
    """cos(lam theta) e_MASK + sin(lam theta) |e_MASK| w, w the unit tangent at [MASK] towards the mean.

    The same point as the quotient-of-sines form, but nothing large is subtracted: the norm is exact at every angle and
    lam = 0 is [MASK] to the bit. Parallel ends have no tangent: the line between the unit vectors, at the same norm;
    an opposite or vanishing mean gives no direction to go: [MASK].
    """
    line_along = (1 - lam) + lam * cosine
    line_norm = sqrt(line_along * line_along + lam * lam * sine * sine)
    bent = sine > DEGENERATE
    parallel = cosine > 0
    along = where(bent, cos(lam * angle), where(parallel, line_along / line_norm, 1.0))
    across = where(bent, sin(lam * angle) / sine, where(parallel, lam / line_norm, 0.0)) * mask_norm
    there = mean_norm > mask_norm * DEGENERATE
    along = where(there, along, 1.0)
    across = where(there, across, 0.0)
    if norm == "candidate":
        along = along * (mean_norm / mask_norm)
        across = across * (mean_norm / mask_norm)
    return along, across


def angle_of(sine: Float[Tensor, "N 1"], cosine: Float[Tensor, "N 1"]) -> Float[Tensor, "N 1"]:
    """atan2 by the half angle: torch.atan2 rounds differently with the number of rows, and batches must agree."""
    half = torch.atan(sine / (1 + cosine.abs()))
    return torch.where(cosine >= 0, 2 * half, torch.pi - 2 * half)


def norm_of(value: Float[Tensor, "*S D"]) -> Float[Tensor, "*S 1"]:
    return value.norm(dim=-1, keepdim=True)
