"""Slots: rows of one plan and one length that decode together, each at its own place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from softdlm.cache import Shape
from softdlm.commit import wait_of
from softdlm.engine import one_pass
from softdlm.engine.census import Foresight, RowCensus, next_shape
from softdlm.engine.graphs import Graphs, Way
from softdlm.engine.plan import Plan
from softdlm.engine.state import Buffers, State
from softdlm.engine.tensor_records import tensors
from softdlm.errors import PassError, SoftDLMError, UsageError
from softdlm.registry import spell
from softdlm.trace import RowRecord
from softdlm.types import Canvas, Step

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
AHEAD = 8
"""Passes after which the host reads the census in any case: what it shows of a decode is no older than that."""


class Slots:
    """Requests occupy the first rows: a new one takes the next row, and when one leaves the last takes its place."""

    def __init__(
        self,
        plan: Plan,
        batch: int,
        length: int,
        *,
        exact: bool = False,
        capture: bool | None = None,
        compile: Compile | None = None,
        upgrade: Compile | None = None,
    ) -> None:
        """Passes have exact shapes, or rounded ones that are captured (None: where the model is on a GPU).

        `compile` is for what surrounds the network. With `upgrade`, which stands for the same, each shape is compiled
        after as many passes as the model says.
        """
        self.plan, self.exact, self.shrinks = plan, exact, compile is None
        capture = plan.model.device.type == "cuda" if capture is None else capture
        if capture and not exact:
            plan.model.settle_weights()
        self.graphs = Graphs(capture and not exact)
        self.begin, self.end = (compile or _as_it_is)(one_pass.begin), (compile or _as_it_is)(one_pass.end)
        self.upgrade, self.compiled = upgrade, {}
        self.note: Note | None = None
        self.foresight = Foresight(None, 0) if exact else Foresight.of(plan)
        self.weights = plan.model.weight_addresses()
        self._hold(Buffers.empty(plan, batch, length))
        self.rows: list[RowCensus] = [RowCensus()] * batch
        self.padded = [False] * batch
        self.used = self.unread = 0

    def _hold(self, buffers: Buffers) -> None:
        self.buffers, self.state, self.census = buffers, buffers.state, buffers.census

    @property
    def batch(self) -> int:
        return len(self.census)

    @property
    def length(self) -> int:
        return self.state.canvas.ids.shape[1]

    @property
    def bytes(self) -> int:
        return self.buffers.bytes + self.graphs.bytes

    @property
    def running(self) -> bool:
        return any(row.running for row in self.rows)

    @torch.no_grad()
    def admit(self, canvas: Canvas, seeds: Sequence[int] = (), requests: Sequence[int] = ()) -> None:
        """New canvases into the next rows, at any time: a cached decode takes them up at its next whole pass."""
        count, plan = len(canvas.ids), self.plan
        counts = torch.stack([canvas.open.sum(1), self.length - canvas.real.sum(1)], 1).tolist()
        canvas = canvas.widen(self.length, next(iter(plan.model.eos_ids), 0)).to(plan.model.device)
        fresh = State.start(plan, canvas, seeds or [0] * count, requests or range(count))
        where = slice(self.used, self.used + count)
        for buffer, value in zip(tensors(self.state), tensors(fresh), strict=True):
            buffer[where] = value
        for buffer in tensors(self.buffers.history):
            buffer[where] = 0
        for row, (open, padding) in enumerate(counts, self.used):
            self.rows[row] = RowCensus(open > 0, open=open)
            self.padded[row] = padding > 0
        self.used += count

    def grow(self, batch: int, length: int) -> None:
        """Room for more rows and longer canvases; captured passes are of the old buffers and go."""
        self.padded = [padded or length > self.length for padded in self.padded]
        more = batch - self.batch
        self._hold(self.buffers.grown(self.plan, batch, length))
        self.rows, self.padded = [*self.rows, *[RowCensus()] * more], [*self.padded, *[False] * more]
        self.graphs = Graphs(self.graphs.capture)

    def leave(self, row: int) -> None:
        """The request of this row is over; the last one in use moves into the row."""
        self.used -= 1
        if row != self.used:
            self.buffers.move(self.used, row)
            self.rows[row], self.padded[row] = self.rows[self.used], self.padded[self.used]
        self.state.running[self.used] = False
        self.rows[self.used], self.padded[self.used] = RowCensus(), False

    def clear(self) -> None:
        for row in reversed(range(self.used)):
            self.leave(row)

    def stop(self, rows: Sequence[bool]) -> None:
        """End these rows where they are; they keep their places."""
        for row, stopped in enumerate(rows):
            if stopped and self.rows[row].running:
                self.state.running[row] = False
                self.rows[row] = RowCensus(passes=self.rows[row].passes)

    @property
    def shape(self) -> Shape | None:
        """Of the next pass; None: exact."""
        if self.exact:
            return None
        computed = min(1 << (self.used - 1).bit_length(), self.batch) if self.shrinks else self.batch
        return next_shape(self.plan, self.rows, computed, self.length, any(self.padded))

    def step(self, read: bool = False) -> Step:
        """One pass. What it returns lies in buffers: the next pass overwrites it. `read`: know the rows for certain."""
        shape = self.shape
        step = self.run(None) if shape is None else self.replay(shape)
        self.unread += 1
        foreseen = None if shape is None or read or self.unread >= AHEAD else self.foresight(self.rows, shape.reach)
        if self.note is not None and self.note.ended():
            self.read()  # a row was over before this pass, which did nothing for it
            return step
        before = self.rows
        if foreseen is None:
            self.read()
        else:
            self.rows = foreseen
            self.note = Note.of(self.census[: self.used], self.rows) if self.foresight.may_end else None
        if all(now.passes == then.passes for now, then in zip(self.rows, before, strict=True) if then.running):
            raise RuntimeError(f"no row took part in a pass, which would never end: {before}")
        return step

    def replay(self, shape: Shape) -> Step:
        """A pass of rounded shape, captured or compiled where it is due."""
        return self.graphs.run(Way(shape, self._worth_compiling(shape)), self._run, self.reads)

    def _worth_compiling(self, shape: Shape) -> bool:
        size = self.plan.key, shape.rows, shape.width, shape.masked, self.length
        return self.upgrade is not None and self.plan.model.count_pass(size)

    @torch.no_grad()
    def run(self, shape: Shape | None) -> Step:
        buffers = self.buffers if shape is None else self.buffers.first(shape.rows)
        return one_pass.run_pass(self.plan, buffers, shape, self.begin, self.end)

    @torch.no_grad()
    def _run(self, way: Way) -> Step:
        if not way.compiled or self.upgrade is None:
            return self.run(way.shape)
        begin, end = (self._compiled(work) for work in (one_pass.begin, one_pass.end))
        return one_pass.run_pass(self._plan_of(way), self.buffers.first(way.shape.rows), way.shape, begin, end)

    def _compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        assert self.upgrade is not None
        if work not in self.compiled:
            self.compiled[work] = self.upgrade(work)
        return self.compiled[work]

    def _plan_of(self, way: Way) -> Plan:
        return replace(self.plan, model=self.plan.model.compiled()) if way.compiled else self.plan

    def reads(self, way: Way | None = None) -> list[Tensor]:
        """Every tensor that a pass reads and that existed before it."""
        plan = self.plan if way is None else self._plan_of(way)
        return [*tensors(self.buffers), *plan.model.reads()]

    def read(self) -> None:
        """What the last pass left in the census."""
        self.unread, self.note = 0, None
        used = [RowCensus(bool(running), *rest) for running, *rest in self.census[: self.used].tolist()]
        self.rows = [*used, *[RowCensus()] * (self.batch - self.used)]

    def fault(self, row: int) -> SoftDLMError | None:
        """Why this row cannot go on, as of the last reading."""
        census, rule = self.rows[row], self.plan.commit
        if census.broken:
            return PassError(
                f"the network gave NaN or infinity in pass {census.passes} or shortly before: check the weights, or "
                "load them in a wider dtype"
            )
        if census.idle > wait_of(rule):
            return UsageError(
                f"the commit rule {spell(rule)} committed nothing in {census.idle} "
                f"{'pass' if census.idle == 1 else 'passes in a row'} and declares may_wait = {wait_of(rule)}: "
                "commit at least one open position, or declare how long the rule may wait"
            )
        return None

    def read_ids(self, rows: Sequence[int]) -> dict[int, list[int]]:
        """The canvases of these rows as they are now, read at once."""
        canvases = self.state.canvas.ids[: max(rows, default=-1) + 1].tolist()
        return {row: canvases[row] for row in rows}

    def read_row(self, row: int) -> RowRecord:
        history = self.buffers.history
        return RowRecord(
            self.state.canvas.ids[row].tolist(),
            history.committed_in[row].tolist(),
            history.log_confidence[row].exp().tolist(),
            self.rows[row].passes,
        )


@dataclass(frozen=True)
class Note:
    """Which rows go on after a pass, on its way to the host while the next pass runs."""

    running: Tensor
    expected: list[bool]
    there: torch.cuda.Event | None

    @staticmethod
    def of(census: Tensor, rows: Sequence[RowCensus]) -> Note:
        """Of the pass that was launched last."""
        expected = [row.running for row in rows[: len(census)]]
        if not census.is_cuda:
            return Note(census[:, 0].clone(), expected, None)
        running = torch.empty(len(census), dtype=census.dtype, pin_memory=True)
        running.copy_(census[:, 0], non_blocking=True)
        there = torch.cuda.Event()
        there.record()
        return Note(running, expected, there)

    def ended(self) -> bool:
        """Whether a row that was expected to go on is over."""
        if self.there is not None:
            self.there.synchronize()
        return [bool(each) for each in self.running.tolist()] != self.expected


def _as_it_is(work: Callable[..., Any]) -> Callable[..., Any]:
    return work
