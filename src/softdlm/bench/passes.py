"""Times of single captured passes: what soft tokens add to one, without the time of the host."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial

from softdlm.bench.measure import WARM, TimeBudget, Timings, seconds
from softdlm.bench.workload import Decode, prompts
from softdlm.engine.pick_engine import EngineKind
from softdlm.engine.plan import Plan
from softdlm.engine.slot_store import borrowed_slots
from softdlm.engine.slots import Slots
from softdlm.models.denoiser import Denoiser
from softdlm.types import Canvas

WHOLE, STEP = "whole canvas", "step"


def pass_times(
    model: Denoiser, decodes: Mapping[str, Decode], engine: EngineKind, rounds: int, budget: TimeBudget
) -> dict[str, dict[str, Timings]]:
    """Name -> kind of pass -> the median of each round.

    Decodes take turns, forwards and backwards, so that a drift in speed affects all, and so does what came before.
    """
    found: dict[str, dict[str, list[float]]] = {name: {} for name in decodes}
    with ExitStack() as stack:
        slots = {name: stack.enter_context(_slots(model, decode, engine)) for name, decode in decodes.items()}
        for number in range(WARM + rounds):
            if number > WARM and budget.left <= 0:
                break
            for name, decode in list(decodes.items())[:: -1 if number % 2 else 1]:
                times = timed(slots[name], start(model, decode))
                for kind, values in times.items() if number >= WARM else ():
                    found[name].setdefault(kind, []).append(statistics.median(values))
    return {name: {kind: Timings(tuple(values)) for kind, values in kinds.items()} for name, kinds in found.items()}


def timed(slots: Slots, canvas: Canvas) -> dict[str, list[float]]:
    """Times of each pass of a decode, without what the host does between passes."""
    slots.clear()
    slots.admit(canvas)
    times: dict[str, list[float]] = {}
    while slots.running:
        shape = slots.shape
        assert shape is not None
        spent = seconds(partial(slots.replay, shape), slots.plan.model.device)
        times.setdefault(WHOLE if shape.width is None else STEP, []).append(spent)
        slots.read()
    return times


def start(model: Denoiser, decode: Decode) -> Canvas:
    texts = prompts(model, decode.batch, decode.prompt)
    return Canvas.pack(texts, [decode.length] * decode.batch, model.mask_id, 0)


def _slots(model: Denoiser, decode: Decode, engine: EngineKind) -> AbstractContextManager[Slots]:
    return borrowed_slots(Plan.of(model, decode.decoding), decode.batch, decode.length, engine)
