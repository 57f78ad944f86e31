"""Where each row is: its current block, and the passes it has had."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.models.denoiser import Denoiser
from softdlm.types import Canvas, Context


class Block(NamedTuple):
    """Each row's current block."""

    start: Int[Tensor, "B 1"]
    inside: Bool[Tensor, "B L"]
    visible: Bool[Tensor, "B L"]
    """Positions the model may see: all, or under block-causal attention those up to the end of the block."""


@dataclass(frozen=True)
class Blocks:
    """Left-to-right blocks; the current one is that of the row's first open position."""

    length: int | None
    attention: int | None
    from_zero: bool

    @staticmethod
    def of(model: Denoiser, length: int | None) -> Blocks:
        return Blocks(length, model.attention_block(length), model.blocks_from_zero)

    def current(self, canvas: Canvas) -> Block:
        index = torch.arange(canvas.ids.shape[1], device=canvas.ids.device)
        origin = first(canvas.real if self.from_zero else canvas.free)
        length = self.length or canvas.ids.shape[1]
        start = origin + (first(canvas.open) - origin).clamp(min=0) // length * length
        before_end = canvas.real & (index < start + length)
        visible = before_end if self.attention and self.length else canvas.real
        return Block(start, before_end & (index >= start), visible)


@dataclass(frozen=True)
class Clock:
    """Passes per row, in all and within the current block."""

    passes: Int[Tensor, "B 1"]
    block_passes: Int[Tensor, "B 1"]
    block_start: Int[Tensor, "B 1"]
    last_start: Int[Tensor, "B 1"]
    """Start of the block that the pass before this one was in; -1 before the first."""
    block: Int[Tensor, "B 1"]
    """Blocks that the row has left behind."""

    @staticmethod
    def start(canvas: Canvas) -> Clock:
        none = torch.full_like(canvas.ids[:, :1], -1)
        return Clock(none, none, none, none, none)

    def tick(self, block_start: Int[Tensor, "B 1"]) -> Clock:
        stays = block_start == self.block_start
        again = torch.where(stays, self.block_passes + 1, 0)
        return Clock(self.passes + 1, again, block_start, self.block_start, self.block + ~stays)

    def only(self, rows: Bool[Tensor, "B 1"], before: Clock) -> Clock:
        """This clock in the given rows, `before` in the others."""
        return Clock(*(torch.where(rows, getattr(self, name), getattr(before, name)) for name in COUNTED))

    def context(self, canvas: Canvas, block: Block, active: Bool[Tensor, "B L"], soft: Bool[Tensor, "B L"]) -> Context:
        return Context(
            self.passes,
            self.block_passes,
            _per_row(block.inside),
            _per_row(canvas.free & block.inside),
            _per_row(active),
            index=torch.arange(canvas.ids.shape[1], device=canvas.ids.device) - first(canvas.free),
            soft=soft,
            in_block=block.inside,
        )


COUNTED = tuple(each.name for each in fields(Clock))
"""Names of a clock's values: torch 2.11 cannot compile a loop over `vars`."""


def _per_row(where: Bool[Tensor, "B L"]) -> Int[Tensor, "B 1"]:
    return where.sum(1, keepdim=True)


def first(where: Bool[Tensor, "B L"]) -> Int[Tensor, "B 1"]:
    """Index of each row's first True (0 where there is none)."""
    return where.int().argmax(1, keepdim=True)


def check_block_length(block_length: int | None) -> None:
    if block_length is not None and block_length < 1:
        raise UsageError(f"block_length must be at least 1, or None for the whole canvas, not {block_length}")
