"""The loop: predict, commit, feed back, until closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from softdlm.decoding import Decoding, settle
from softdlm.engine.captured import captured_passes
from softdlm.engine.one_pass import State, advance, check_idle
from softdlm.engine.pick_engine import EngineKind, check_capture
from softdlm.engine.plan import Plan, check_length, check_start
from softdlm.models.denoiser import Denoiser
from softdlm.types import Canvas, Step

Until = Callable[[Step], Bool[Tensor, "B"]]


def denoise(
    model: Denoiser,
    canvas: Canvas,
    *,
    decoding: Decoding | None = None,
    until: Until | None = None,
    engine: EngineKind = "dynamic",
    requests: Sequence[int] | None = None,
    **fields: Any,
) -> Iterator[Step]:
    """Decode a canvas, one Step per forward pass.

    How is said by a Decoding, or by fields of one (`commit=TopN(4)`); what is left out is filled from the model's own
    settings, except that a row is decoded to its end (early_finish=False) unless told otherwise. `until` stops rows on
    a condition of your own. `requests` numbers the rows for sampling. The engine decides how passes are run, not what
    they do.
    """
    chosen = settle(model, decoding, fields, {"early_finish": False})
    return run_plan(Plan.of(model, chosen, requests), canvas, until, engine)


def run_plan(plan: Plan, canvas: Canvas, until: Until | None, engine: EngineKind) -> Iterator[Step]:
    """`denoise` for a Decoding that is already bound to a model."""
    model = plan.model
    check_start(model, int(canvas.positions[canvas.open].min()) if canvas.open.any() else model.first_open)
    check_length(model, int(canvas.real.sum(1).max()))
    if engine == "dynamic":
        return passes(plan.with_memory(*canvas.ids.shape), canvas.to(model.device), until)
    check_capture(plan)
    return captured_passes(plan, canvas.to(model.device), until, engine)


@torch.no_grad()
def passes(plan: Plan, canvas: Canvas, until: Until | None) -> Iterator[Step]:
    """The loop with exact shapes: they follow what is open, so each pass synchronises with the device."""
    state = State.start(plan, canvas)
    for index in count(1):
        if not state.running.any():
            return
        state, step = advance(plan, state, index)
        check_idle(plan, int(state.idle.max()))
        yield step
        if until:
            state = replace(state, running=state.running & ~until(step)[:, None])
