"""Slots that a model keeps between decodes, with their captured passes.

While they are kept they hold no reference to the model, so they are freed together with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from softdlm.engine.pick_engine import EngineKind
from softdlm.engine.plan import Plan
from softdlm.engine.slots import Slots
from softdlm.models.compiled import compile_fixed
from softdlm.models.denoiser import Denoiser

KEPT_BYTES = 4 * 2**30
"""Of buffers and captured passes that a model keeps between decodes, those of the last decode in any case."""


def take_slots(plan: Plan, batch: int, length: int, engine: EngineKind, most: int | None = None) -> Slots:
    """Slots for this plan: those of an earlier decode where the model still keeps them, else new ones.

    They have `batch` rows, or up to `most`.
    """
    kept = plan.model.slot_cache
    now = plan.model.weight_addresses()
    kept[:] = [each for each in kept if each[1].weights == now]
    for place, (key, slots) in enumerate(kept):
        if key == (engine, plan.key) and slots.length == length and batch <= slots.batch <= (most or batch):
            del kept[place]
            slots.plan = _bound(plan, engine)
            return slots
    compile = compile_fixed if engine == "compiled" else None
    upgrade = compile_fixed if engine == "auto" else None
    return Slots(_bound(plan, engine), batch, length, exact=engine == "dynamic", compile=compile, upgrade=upgrade)


def give_back(model: Denoiser, slots: Slots, engine: EngineKind) -> None:
    """Keep slots for the next decode; those of exact shapes have nothing worth keeping."""
    if engine == "dynamic":
        return
    slots.clear()
    key, slots.plan = (engine, slots.plan.key), None  # type: ignore[assignment]
    model.slot_cache.append((key, slots))
    shrink_kept(model, KEPT_BYTES, spared=1)


def shrink_kept(model: Denoiser, limit: int, spared: int = 0) -> None:
    """Free kept slots, the least recently used first, until they take no more than `limit` bytes."""
    kept = model.slot_cache
    while len(kept) > spared and kept_bytes(model) > limit:
        del kept[0]


def kept_bytes(model: Denoiser) -> int:
    return sum(slots.bytes for _, slots in model.slot_cache)


@contextmanager
def borrowed_slots(plan: Plan, batch: int, length: int, engine: EngineKind) -> Iterator[Slots]:
    """Slots that go back to the model when the decode ends or its iterator is closed early; an error drops them."""
    slots = take_slots(plan, batch, length, engine)
    try:
        yield slots
    except GeneratorExit:
        give_back(plan.model, slots, engine)
        raise
    give_back(plan.model, slots, engine)


def _bound(plan: Plan, engine: EngineKind) -> Plan:
    model: Any = plan.model.compiled() if engine == "compiled" else plan.model
    return replace(plan, model=model)
