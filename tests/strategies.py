"""Random predictions and canvases for property tests, all drawn from one seed so that failures replay."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from softdlm.predict import Sampling, reduce_logits
from softdlm.types import Context, Prediction

VOCABULARY, MASK_ID = 24, 23


@dataclass(frozen=True)
class Scene:
    """One prediction over a canvas, with what a commit rule is told of it."""

    prediction: Prediction
    open: Tensor
    context: Context


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_logits(seed: int, rows: int, scale: float) -> Tensor:
    return torch.randn(rows, VOCABULARY, generator=generator(seed)) * scale


@st.composite
def scenes(draw: st.DrawFn, last: bool = False) -> Scene:
    """Peaked and flat predictions alike; every row has at least one open position."""
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    seed = draw(st.integers(0, 2**31))
    logits = random_logits(seed, batch * length, draw(st.sampled_from([0.1, 1.0, 4.0, 30.0])))
    open = torch.rand(batch, length, generator=generator(seed + 1)) < draw(st.sampled_from([0.3, 0.7, 1.0]))
    open[:, 0] |= ~open.any(1)
    sampling = Sampling(mask_id=MASK_ID, k=3, last=(1, 2, 3, 4) if last else ())
    flat = reduce_logits(logits[open.flatten()], sampling)
    left = open.sum(1, keepdim=True)
    passes = torch.randint(0, 12, (batch, 1), generator=generator(seed + 2))
    masks = left + torch.randint(0, 5, (batch, 1), generator=generator(seed + 3))
    context = Context(passes, passes, torch.full_like(left, length).clamp(min=1), masks, left)
    return Scene(flat.on(open), open, context)
