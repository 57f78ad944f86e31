"""Passes of rounded shape: what `decode.passes` does, without synchronising with the device inside a pass.

The state lies in buffers that every pass reads and writes, so on a GPU a pass is captured once per shape as a CUDA
graph and replayed. Each pass leaves a census, seven numbers per row, and the host reads nothing else. The census says
which rows go on and how many positions are open at most, hence the shape of the next pass. Where the host can compute
the census itself (census.py), it reads the device's only now and then, and the device never waits.

With a cache there are passes over the whole canvas and passes over windows of it. A row that needs a whole pass waits,
untouched, until no row is within a block; then all such rows are computed together. Meanwhile no other row begins a
block, so that the wait ends. Each row has the passes that it has alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import count
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softdlm.cache import Aim, Dual, Shape
from softdlm.engine.census import Foresight, RowCensus, next_reach
from softdlm.engine.one_pass import PassView, State, check_idle, feed_on, settle, view_pass
from softdlm.engine.pick_engine import EngineKind
from softdlm.engine.plan import Plan
from softdlm.models.compiled import compile_fixed
from softdlm.predict import predict_fixed
from softdlm.trace import RowRecord
from softdlm.types import Canvas, Prediction, Step

Record = TypeVar("Record")
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
GRAIN = 64
"""Rooms, widths and lengths are rounded up to multiples of it."""
AHEAD = 8
"""Passes after which the host reads the census in any case: what it shows of a decode is no older than that."""
KEPT_BYTES = 4 * 2**30
"""Of buffers, keys and values that a model keeps between decodes, the last decode's in any case."""


def rounded(size: int) -> int:
    """Up to a multiple of GRAIN and, beyond 512, of an eighth of the next power of two: few sizes, little waste."""
    grain = max(GRAIN, (1 << (size - 1).bit_length()) // 8)
    return -(-size // grain) * grain


@dataclass(frozen=True)
class History:
    """Per position, the row's pass that committed it (from 1; 0 is none) and the log-confidence then."""

    committed_in: Int[Tensor, "B L"]
    log_confidence: Float[Tensor, "B L"]

    def note(self, step: Step) -> None:
        now = torch.where(step.committed, step.context.passes + 1, self.committed_in)
        self.committed_in.copy_(now)
        sure = torch.where(step.committed, step.prediction.log_confidence, self.log_confidence)
        self.log_confidence.copy_(sure)


class Slots:
    """Rows of one canvas length that decode together, each at its own place."""

    def __init__(
        self, plan: Plan, batch: int, length: int, capture: bool | None = None, compile: Compile | None = None
    ) -> None:
        """`capture` None: as CUDA graphs where the model is on a GPU. `compile` is for what surrounds the network."""
        self.plan = plan.with_memory(batch, length)
        device = plan.model.device
        closed = torch.zeros(batch, length, dtype=torch.bool, device=device)
        self.state = copied(State.start(plan, Canvas(closed.long(), closed, closed, ~closed)))
        working = torch.promote_types(plan.model.dtype, torch.float32)
        self.history = History(closed.long(), torch.zeros_like(closed, dtype=working))
        self.census = torch.zeros(batch, len(RowCensus._fields), dtype=torch.long, device=device)
        self.rows = [RowCensus()] * batch
        self.foresight = Foresight.of(plan)
        self.unread = 0
        self.padded = [False] * batch
        self.begin, self.end = (begin, end) if compile is None else (compile(begin), compile(end))
        self.passes = Passes(self._pass, device.type == "cuda" if capture is None else capture)

    @property
    def bytes(self) -> int:
        memory = self.plan.caching.memory
        held = [*tensors(self.state), *tensors(self.history), *((*memory.keys, *memory.values) if memory else ())]
        return sum(tensor.nbytes for tensor in held)

    @property
    def running(self) -> bool:
        return any(row.running for row in self.rows)

    @property
    def free(self) -> list[int]:
        return [index for index, row in enumerate(self.rows) if not row.running]

    @torch.no_grad()
    def admit(self, rows: Sequence[int], canvas: Canvas) -> None:
        """New canvases into free rows, at any time: a cached decode takes them up at its next whole pass."""
        model = self.plan.model
        where, fresh = torch.tensor(rows, device=model.device), State.start(self.plan, canvas.to(model.device))
        for buffer, value in zip(tensors(self.state), tensors(fresh), strict=True):
            buffer[where] = value
        for buffer in tensors(self.history):
            buffer[where] = 0
        counts = torch.stack([canvas.open.sum(1), (~canvas.real).sum(1)], 1).tolist()
        for row, (open, padding) in zip(rows, counts, strict=True):
            self.rows[row], self.padded[row] = RowCensus(open > 0, open=open), padding > 0

    def step(self) -> Step:
        """One pass. What it returns lies in buffers: the next pass overwrites it."""
        shape = self.shape
        step = self.passes(shape)
        self.unread += 1
        foreseen = self.foresight(self.rows, shape.reach) if self.unread < AHEAD else None
        if foreseen is None:
            self.read()
        else:
            self.rows = foreseen
        return step

    def read(self) -> None:
        """What the last pass left in the census."""
        before, self.unread = self.rows, 0
        self.rows = [RowCensus(bool(running), *rest) for running, *rest in self.census.tolist()]
        if all(now.passes == then.passes for now, then in zip(self.rows, before, strict=True) if then.running):
            raise RuntimeError(f"no row took part in a pass, which would never end: {before}")
        check_idle(self.plan, max(row.idle for row in self.rows))

    def stop(self, rows: Sequence[bool]) -> None:
        for index, stopped in enumerate(rows):
            if stopped and self.rows[index].running:
                self.state.running[index] = False
                self.rows[index] = RowCensus(passes=self.rows[index].passes)

    def read_row(self, row: int) -> RowRecord:
        return RowRecord(
            self.state.canvas.ids[row].tolist(),
            self.history.committed_in[row].tolist(),
            self.history.log_confidence[row].exp().tolist(),
            self.rows[row].passes,
        )

    @property
    def shape(self) -> Shape:
        """Of the next pass."""
        batch, length = self.state.canvas.ids.shape
        plan, reach = self.plan, next_reach({row.reach for row in self.rows if row.running})
        near, dual = min(plan.blocks.length or length, length), isinstance(plan.caching.policy, Dual)
        due = [row for row in self.rows if row.due(reach)]
        width = None if len(due) == sum(row.running for row in self.rows) else length
        if reach:
            begun = min(row.start - (row.reach - 1) * near for row in due)
            columns = reach * near if dual else rounded(length - begun)
            width = min(columns + plan.model.first_open, length)
        in_block = plan.vanilla or (reach and dual)
        open = sum(row.open for row in due)
        room = min(rounded(open), batch * (near if in_block else width or length))
        return Shape(width, room, any(self.padded), reach)

    @torch.no_grad()
    def _pass(self, shape: Shape) -> Step:
        plan, state = self.plan, self.state
        view, aim = self.begin(plan, state, shape.width, shape.reach)
        made = predict_fixed(plan.model, state.embeds, state.canvas, plan.sampling, view.scope, aim, shape)
        places = aim.places[: shape.room]
        step = self.end(plan, state, view, made.lay(places, view.requested), self.history, self.census)
        feed_on(plan, state, step, places)
        return step


def begin(plan: Plan, state: State, width: int | None, reach: int) -> tuple[PassView, Aim]:
    """What comes before the network."""
    view = view_pass(plan, state, reach)
    return view, Aim.at(view.requested, view.scope, width, plan.model.first_open)


def end(
    plan: Plan, state: State, view: PassView, prediction: Prediction, history: History, census: Int[Tensor, "B 7"]
) -> Step:
    """What comes after it, except for the soft tokens: all is written to the buffers."""
    after, step = settle(plan, state, view, prediction.only(view.requested), 0)
    history.note(step)
    for buffer, value in zip(tensors(state), tensors(after), strict=True):
        if buffer is not value:
            buffer.copy_(value)
    census.copy_(count_rows(plan, after))
    return step


def count_rows(plan: Plan, state: State) -> Int[Tensor, "B 7"]:
    """The census: a `RowCensus` for each."""
    clock, block, open = state.clock, plan.blocks.current(state.canvas), state.canvas.open & state.running
    reach = plan.caching.reach(clock.tick(block.start))
    left = [each.sum(1, keepdim=True) for each in (open, open & block.inside)]
    return torch.cat([state.running, reach, *left, block.start, clock.passes + 1, state.idle], 1)


class Passes:
    """The pass of each shape: run as it is the first time, which warms it up, and captured the second."""

    def __init__(self, work: Callable[[Shape], Step], capture: bool) -> None:
        self.work, self.capture = work, capture
        self.met: set[Shape] = set()
        self.graphs: dict[Shape, tuple[torch.cuda.CUDAGraph, Step]] = {}
        self.pool = torch.cuda.graph_pool_handle() if capture else None

    def __call__(self, shape: Shape) -> Step:
        if not self.capture or shape not in self.met:
            self.met.add(shape)
            return self.work(shape)
        if shape not in self.graphs:
            self.graphs[shape] = self._captured(shape)
        graph, step = self.graphs[shape]
        graph.replay()
        return step

    def _captured(self, shape: Shape) -> tuple[torch.cuda.CUDAGraph, Step]:
        """Graphs share their memory: only the Step that each returns, and is kept here, outlives a pass."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            step = self.work(shape)
        return graph, step


def captured_passes(
    plan: Plan, canvas: Canvas, until: Callable[[Step], Any] | None, engine: EngineKind
) -> Iterator[Step]:
    """`decode.passes` with rounded shapes: the same Steps, except that a row may wait in some of them."""
    batch, length = canvas.ids.shape
    with borrowed_slots(plan, batch, length, engine) as slots:
        slots.admit(range(batch), canvas)
        for index in count(1):
            if not slots.running:
                return
            step = replace(copied(slots.step()), index=index)
            yield step
            if until:
                slots.stop(until(step).tolist())


@contextmanager
def borrowed_slots(plan: Plan, batch: int, length: int, engine: EngineKind) -> Iterator[Slots]:
    """Slots for this plan: those of an earlier decode, with their captured passes, where the model still keeps them.

    They are given back when the decode ends or its iterator is closed early; after an error they are dropped.
    """
    kept, key = plan.model.slot_cache, (batch, length, engine, plan.key)
    slots = kept.pop(key, None) if _hashable(key) else None
    if slots is None:
        compiled = engine == "compiled"
        plan = replace(plan, model=plan.model.compiled()) if compiled else plan
        slots = Slots(plan, batch, length, compile=compile_fixed if compiled else None)
    closed: GeneratorExit | None = None
    try:
        yield slots
    except GeneratorExit as early:
        closed = early
    slots.stop([True] * batch)
    if _hashable(key):
        kept[key] = slots
    while len(kept) > 1 and sum(each.bytes for each in kept.values()) > KEPT_BYTES:
        kept.pop(next(iter(kept)))
    if closed is not None:
        raise closed


def _hashable(key: Any) -> bool:
    """Whether captured passes can be found again: a user's rule may have no hash, and is then captured anew."""
    try:
        hash(key)
    except TypeError:
        return False
    return True


def tensors(record: Any) -> list[Tensor]:
    """The tensors of a record, in order, those of records and dictionaries inside it included."""
    if isinstance(record, Tensor):
        return [record]
    values = record.values() if isinstance(record, dict) else [getattr(record, field.name) for field in fields(record)]
    return [tensor for value in values for tensor in tensors(value)]


def copied(record: Record) -> Record:
    """A record with tensors of its own."""

    def copy(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: copy(each) for name, each in value.items()}
        return value.clone() if isinstance(value, Tensor) else copied(value) if is_dataclass(value) else value

    assert is_dataclass(record)
    return type(record)(**{field.name: copy(getattr(record, field.name)) for field in fields(record)})
