"""What passes read and write: the state of every row, its history, the census, keys and values.

All of it lies in buffers that are allocated once and written in place, so that a captured pass finds it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.blocks import Clock
from softdlm.engine.census import RowCensus
from softdlm.engine.plan import Plan
from softdlm.engine.tensor_records import copied, mapped, tensors
from softdlm.models.kv_memory import KVMemory
from softdlm.predict import int64
from softdlm.types import Canvas, RuleState, Step, first_memory


@dataclass(frozen=True)
class State:
    """What one pass leaves to the next."""

    canvas: Canvas
    embeds: Float[Tensor, "B L D"]
    running: Bool[Tensor, "B 1"]
    clock: Clock
    idle: Int[Tensor, "B 1"]
    """Passes in a row in which the row took part and committed nothing."""
    broken: Bool[Tensor, "B 1"]
    """Whether the network gave NaN or infinity for a requested position of the row, in this pass or an earlier one."""
    seeds: Int[Tensor, "B 1"]
    requests: Int[Tensor, "B 1"]
    """Seed and number of the row's request: with pass and position they decide its random draws."""
    commit: RuleState = field(default_factory=dict)
    """The commit rule's memory."""
    feedback: RuleState = field(default_factory=dict)
    """The feedback rule's memory."""

    @staticmethod
    def start(plan: Plan, canvas: Canvas, seeds: Sequence[int], requests: Sequence[int]) -> State:
        """Before the first pass, which sees hard masks."""
        running = canvas.open.any(1, keepdim=True)
        seed, number = (torch.tensor([[int64(n)] for n in each]).to(running.device) for each in (seeds, requests))
        (rows, length), device, vocabulary = canvas.ids.shape, canvas.ids.device, len(plan.model.embedding)
        memories = [first_memory(rule, rows, length, device, vocabulary) for rule in (plan.commit, plan.feedback)]
        embeds, idle = plan.model.embed(canvas.ids), torch.zeros_like(running, dtype=torch.long)
        broken = torch.zeros_like(running)
        return State(canvas, embeds, running, Clock.start(canvas), idle, broken, seed, number, *memories)


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


@dataclass(frozen=True)
class Buffers:
    """Everything that passes write, for a number of rows of one length."""

    state: State
    history: History
    census: Int[Tensor, "B C"]
    """A `RowCensus` for each row."""
    memory: KVMemory | None

    @staticmethod
    @torch.no_grad()
    def empty(plan: Plan, batch: int, length: int) -> Buffers:
        """Rows without a request: nothing in them is open, all is padding."""
        closed = torch.zeros(batch, length, dtype=torch.bool, device=plan.model.device)
        state = State.start(plan, Canvas(closed.long(), closed, closed, closed), [0] * batch, [0] * batch)
        working = torch.promote_types(plan.model.dtype, torch.float32)
        history = History(closed.long(), torch.zeros_like(closed, dtype=working))
        census = torch.zeros(batch, len(RowCensus._fields), dtype=torch.long, device=closed.device)
        return Buffers(copied(state), history, census, plan.caching.memory(plan.model, batch, length))

    def first(self, rows: int) -> Buffers:
        """The same buffers for the first rows alone."""
        return self if rows == len(self.census) else mapped(self, lambda tensor: tensor[:rows])

    def grown(self, plan: Plan, batch: int, length: int) -> Buffers:
        """Larger buffers with the same content; new positions are padding, new rows empty."""
        larger = Buffers.empty(plan, batch, length)
        for new, old in zip(tensors(larger), tensors(self), strict=True):
            new[tuple(slice(size) for size in old.shape)] = old
        return larger

    def move(self, source: int, target: int) -> None:
        """Copy one row over another."""
        for tensor in tensors(self):
            tensor[target] = tensor[source]

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in tensors(self))
