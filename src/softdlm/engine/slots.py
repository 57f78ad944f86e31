"""Slots: rows of one plan and one length that decode together, each at its own place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from softdlm.cache import Shape
from softdlm.commit import wait_of
from softdlm.engine import one_pass
from softdlm.engine.census import Foresight, RowCensus, next_shape
from softdlm.engine.graphs import Graphs
from softdlm.engine.plan import Plan
from softdlm.engine.state import Buffers, State, tensors
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
    ) -> None:
        """Passes have exact shapes, or rounded ones that are captured (None: where the model is on a GPU).

        `compile` is for what surrounds the network.
        """
        self.plan, self.exact, self.shrinks = plan, exact, compile is None
        capture = plan.model.device.type == "cuda" if capture is None else capture
        if capture and not exact:
            plan.model.settle_weights()
        self.graphs = Graphs(capture and not exact)
        self.begin, self.end = (compile or _as_it_is)(one_pass.begin), (compile or _as_it_is)(one_pass.end)
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
        step = self.run(None) if shape is None else self.graphs.run(shape, self.run, self.reads)
        self.unread += 1
        foreseen = None if shape is None or read or self.unread >= AHEAD else self.foresight(self.rows, shape.reach)
        before = self.rows
        if foreseen is None:
            self.read()
        else:
            self.rows = foreseen
        if all(now.passes == then.passes for now, then in zip(self.rows, before, strict=True) if then.running):
            raise RuntimeError(f"no row took part in a pass, which would never end: {before}")
        return step

    @torch.no_grad()
    def run(self, shape: Shape | None) -> Step:
        buffers = self.buffers if shape is None else self.buffers.first(shape.rows)
        return one_pass.run_pass(self.plan, buffers, shape, self.begin, self.end)

    def reads(self) -> list[Tensor]:
        """Every tensor that a pass reads and that existed before it."""
        return [*tensors(self.buffers), *self.plan.model.reads()]

    def read(self) -> None:
        """What the last pass left in the census."""
        self.unread = 0
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


def _as_it_is(work: Callable[..., Any]) -> Callable[..., Any]:
    return work
