"""Prefix and dual cache: which positions a pass computes, and which it recalls (Fast-dLLM).

At the start of a block a pass computes everything and remembers the keys and values. The other passes of the block
compute `prefix`: the block and what comes after it, or `dual`: the block alone; everywhere else the network recalls
the keys and values of the last pass that computed them. Under full attention these go stale, because every state
depends on every token; `refresh=n` computes everything again after n passes. Under block-causal attention a closed
block depends on nothing that comes later: a pass computes what changed since the one before it, and nothing is stale.

A pass predicts open positions that it computes, and an open position is the soft token of the last pass that
predicted it. So with `refresh=1` a decode is what it is without a cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softdlm.blocks import Block, Blocks, Clock, first
from softdlm.errors import UsageError
from softdlm.models.denoiser import Denoiser
from softdlm.models.memory import Memory, Window

CacheKind = Literal["prefix", "dual"]


class Shape(NamedTuple):
    """What fixes the shapes of a pass, so that one captured graph serves all passes of a shape."""

    width: int | None
    """Columns of the window that is computed in each row; None is the whole canvas."""
    room: int
    """Positions that go through the LM head, at least as many as are requested."""
    masked: bool
    """Whether some position of some row is padding."""


@dataclass(frozen=True)
class Scope:
    """What one pass sees, and what of it is computed."""

    visible: Bool[Tensor, "B L"]
    computed: Bool[Tensor, "B L"]
    attention: int | None
    """The block of the attention pattern."""
    memory: Memory | None = None

    @property
    def whole(self) -> Bool[Tensor, "B"]:
        """Rows of which everything visible is computed."""
        return (self.computed == self.visible).all(1)

    def groups(self, rows: Int[Tensor, "N"]) -> list[Int[Tensor, "_"]]:
        """Rows that a GPU computes together: those that are computed whole, and the others."""
        if self.memory is None:
            return [rows]
        whole = self.whole[rows]
        return [group for group in (rows[whole], rows[~whole]) if len(group)]

    def window(self, rows: Int[Tensor, "G"], back: int) -> Window:
        """The computed positions of these rows and the `back` before them, from which the first are predicted."""
        keys = self.visible[rows].any(0).nonzero().flatten()
        places = torch.arange(len(keys), device=keys.device)
        if self.memory is None or bool(self.whole[rows].all()):
            return Window(rows, keys, places.expand(len(rows), -1), keys.expand(len(rows), -1), None)
        computed = self.computed[rows][:, keys]
        start = (first(computed) - back).clamp(min=0)
        width = len(keys) - int((start + first(computed.flip(1))).min())
        queries = start.clamp(max=len(keys) - width) + places[:width]
        return Window(rows, keys, queries, keys[queries], computed.gather(1, queries))

    def fixed_window(self, width: int | None, back: int) -> Window:
        """`window` of all rows and columns, so many columns wide wherever the rows are; None is all of them."""
        rows, keys = (torch.arange(size, device=self.visible.device) for size in self.visible.shape)
        if width is None:
            every = keys.expand(len(rows), -1)
            return Window(rows, keys, every, every, None)
        start = (first(self.computed) - back).clamp(0, len(keys) - width)
        queries = start + keys[:width]
        return Window(rows, keys, queries, queries, self.computed.gather(1, queries))


class Aim(NamedTuple):
    """Where a pass of fixed shape looks."""

    window: Window
    order: Int[Tensor, "M"]
    """The window's positions by number, the requested ones first."""
    places: Int[Tensor, "M"]
    """The same positions by number on the canvas."""

    @staticmethod
    def at(requested: Bool[Tensor, "B L"], scope: Scope, width: int | None, back: int) -> Aim:
        window = scope.fixed_window(width, back)
        order = compact(window.take(requested).flatten())
        return Aim(window, order, window.places.flatten()[order])


def compact(wanted: Bool[Tensor, "M"]) -> Int[Tensor, "M"]:
    """The numbers of the wanted places in order, then those of the others.

    torch.nonzero asks the device for their count. A permutation has no place twice, and any number of it may be taken:
    whoever writes by number then writes each once.
    """
    number = torch.arange(len(wanted), device=wanted.device)
    through = wanted.cumsum(0)
    rank = torch.where(wanted, through - 1, through[-1] + number - through)
    return torch.empty_like(number).scatter_(0, rank, number)


@dataclass(frozen=True)
class Caching:
    """How a decode uses the keys and values of earlier passes; kind None not at all."""

    kind: CacheKind | None
    refresh: int | None
    attention: int | None
    memory: Memory | None = None

    @staticmethod
    def of(blocks: Blocks, kind: CacheKind | None, refresh: int | None) -> Caching:
        check_cache(kind, refresh)
        if kind is None:
            return Caching(None, None, blocks.attention)
        if blocks.from_zero and blocks.length is None:
            raise UsageError(
                f"cache {kind!r} has nothing to recall: without block_length this model decodes prompt and answer "
                "as one block; give a block_length"
            )
        return Caching(kind, refresh, blocks.attention)

    def with_memory(self, model: Denoiser, batch: int, length: int) -> Caching:
        return self if self.kind is None else replace(self, memory=model.memory(batch, length))

    def scope(self, block: Block, clock: Clock, turn: Bool[Tensor, "B 1"]) -> Scope:
        """In the rows whose turn it is: all that is visible at a refresh, else what `kind` says of it."""
        computed = block.visible & turn
        if self.kind is not None:
            computed = computed & (self._refreshed(clock) | self._near(block, clock))
        return Scope(block.visible, computed, self.attention, self.memory)

    def due(self, clock: Clock, whole: bool) -> Bool[Tensor, "B 1"]:
        """Rows that take part in a pass over the whole canvas, or in one over windows of it."""
        if self.kind is None:
            return torch.full_like(clock.passes, whole, dtype=torch.bool)
        refreshed = self._refreshed(clock)
        return refreshed if whole else ~refreshed

    def midway(self, clock: Clock, closed: Bool[Tensor, "B 1"]) -> Bool[Tensor, "B 1"]:
        """Rows whose next pass is one over a window: their block is open and no refresh is due."""
        if self.kind is None:
            return torch.zeros_like(closed)
        return ~closed & ~self._refreshed(clock.tick(clock.block_start))

    def _refreshed(self, clock: Clock) -> Bool[Tensor, "B 1"]:
        again = torch.zeros_like(clock.passes, dtype=torch.bool)
        if self.refresh is not None:
            again = clock.block_passes % self.refresh == 0
        return again if self.attention else again | (clock.block_passes == 0)

    def _near(self, block: Block, clock: Clock) -> Bool[Tensor, "B L"]:
        """Under block-causal attention also the block before: its last tokens came after its last keys and values."""
        index = torch.arange(block.inside.shape[1], device=block.inside.device)
        if self.attention:
            return index >= clock.last_start
        return block.inside if self.kind == "dual" else index >= block.start


def check_cache(kind: str | None, refresh: int | None) -> None:
    if kind not in (None, *get_args(CacheKind)):
        raise UsageError(f"cache must be one of {', '.join(get_args(CacheKind))}, or None, not {kind!r}")
    if refresh is not None and kind is None:
        raise UsageError(f"refresh {refresh} is of a cache: give cache as well, or leave it out")
    if refresh is not None and refresh < 1:
        raise UsageError(f"refresh must be at least 1 pass, or None for the start of each block, not {refresh}")
