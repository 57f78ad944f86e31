"""Single passes under the clock: what soft tokens add to one, without the host's share."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial

from softdlm.bench.measure import WARM, Clock, Sample, seconds
from softdlm.bench.workload import Decode, prompts
from softdlm.decode import EngineKind, plan_decode
from softdlm.engine.captured import Slots, borrowed_slots
from softdlm.models.denoiser import Denoiser
from softdlm.types import Canvas

WHOLE, STEP = "whole canvas", "step"


def pass_times(
    model: Denoiser, decodes: Mapping[str, Decode], engine: EngineKind, rounds: int, clock: Clock
) -> dict[str, dict[str, Sample]]:
    """By name and kind of pass, the median of each round. The decodes run in turn, so a drift meets them alike."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in decodes}
    with ExitStack() as stack:
        slots = {name: stack.enter_context(_slots(model, decode, engine)) for name, decode in decodes.items()}
        for number in range(WARM + rounds):
            if number > WARM and clock.left <= 0:
                break
            for name, decode in decodes.items():
                times = timed(slots[name], start(model, decode))
                for kind, values in times.items() if number >= WARM else ():
                    found[name].setdefault(kind, []).append(statistics.median(values))
    return {name: {kind: Sample(tuple(values)) for kind, values in kinds.items()} for name, kinds in found.items()}


def timed(slots: Slots, canvas: Canvas) -> dict[str, list[float]]:
    """Every pass of a decode by itself. What the host reads and decides between two passes is left out."""
    slots.admit(range(len(canvas.ids)), canvas)
    times: dict[str, list[float]] = {}
    while slots.running:
        shape = slots.shape
        spent = seconds(partial(slots.passes, shape), slots.plan.model.device)
        times.setdefault(WHOLE if shape.width is None else STEP, []).append(spent)
        slots.read()
    return times


def start(model: Denoiser, decode: Decode) -> Canvas:
    texts = prompts(model, decode.batch, decode.prompt)
    return Canvas.pack(texts, [decode.length] * decode.batch, model.mask_id, 0)


def _slots(model: Denoiser, decode: Decode, engine: EngineKind) -> AbstractContextManager[Slots]:
    return borrowed_slots(plan_decode(model, **decode.options), decode.batch, decode.length, engine)
