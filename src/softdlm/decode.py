"""The loop: predict, commit, feed back, until closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from softdlm.decoding import Decoding, settle
from softdlm.engine.pick_engine import EngineKind, pick_engine
from softdlm.engine.plan import Plan, check_length, check_start
from softdlm.engine.slot_store import borrowed_slots
from softdlm.engine.tensor_records import copied
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
    plan = Plan.of(model, chosen)
    check_start(model, int(canvas.positions[canvas.open].min()) if canvas.open.any() else model.first_open)
    check_length(model, int(canvas.real.sum(1).max()))
    engine = pick_engine(plan, engine)
    rows = len(canvas.ids)
    return passes(plan, canvas, until, engine, [chosen.seed or 0] * rows, requests or range(rows))


def passes(
    plan: Plan, canvas: Canvas, until: Until | None, engine: EngineKind, seeds: Sequence[int], requests: Sequence[int]
) -> Iterator[Step]:
    """Each pass predicts, commits and feeds back (engine/one_pass.py); the Steps have tensors of their own."""
    batch, length = canvas.ids.shape
    with borrowed_slots(plan, batch, length, engine) as slots:
        slots.admit(canvas, seeds, requests)
        for index in count(1):
            if not slots.running:
                return
            step = replace(copied(slots.step(read=slots.foresight.may_end)), index=index)
            for fault in filter(None, map(slots.fault, range(slots.used))):
                raise fault
            yield step
            if until:
                slots.stop(until(step).tolist())
