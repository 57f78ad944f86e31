"""Prefix and dual cache: which positions a pass computes, and which it recalls (Fast-dLLM).

At the start of a block a pass computes everything and remembers the keys and values. The other passes of the block
compute `prefix`: the block and what comes after it, or `dual`: the block alone; everywhere else the network recalls
the keys and values of the last pass that computed them. Under full attention these go stale, because every state
depends on every token; `refresh=n` computes everything again after n passes. `renew=n` does so at the start of every
n-th block only: the other blocks begin with what changed, the block just closed and the new one in one window. Under
block-causal attention every block begins like that: a closed block depends on nothing that comes later, so nothing is
stale.

A pass predicts open positions that it computes, and an open position is the soft token of the last pass that
predicted it. So with `refresh=1` a decode is what it is without a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softdlm.blocks import Block, Blocks, Clock, first
from softdlm.errors import UsageError
from softdlm.models.denoiser import Denoiser
from softdlm.models.kv_memory import KVMemory, Window
from softdlm.registry import named
from softdlm.threads import rows_apart


@dataclass(frozen=True)
class CachePolicy:
    """When everything is computed anew: every `refresh` passes of a block, or at every `renew`-th block's start."""

    refresh: int | None = None
    renew: int = 1
    kind: ClassVar[Literal["prefix", "dual"]]

    def __post_init__(self) -> None:
        if self.refresh is not None and self.refresh < 1:
            raise UsageError(f"refresh must be at least 1 pass, not {self.refresh}; leave it out for each block start")
        if self.renew < 1:
            raise UsageError(f"renew must be at least 1 block, not {self.renew}; 1 computes everything at each start")
        if self.renew > 1 and self.refresh is not None:
            raise UsageError(
                f"renew {self.renew} and refresh {self.refresh} exclude each other: a refresh comes in every block; "
                "give one of them"
            )


@named("cache", "prefix")
@dataclass(frozen=True)
class Prefix(CachePolicy):
    """Compute the current block and what follows it; reuse the keys and values before the block."""

    kind = "prefix"


@named("cache", "dual")
@dataclass(frozen=True)
class Dual(CachePolicy):
    """Compute the current block alone; reuse the keys and values before and after it."""

    kind = "dual"


class Shape(NamedTuple):
    """Sizes of a pass that are rounded up, so that one captured graph serves all passes of a shape."""

    rows: int
    """Rows that are computed: the first so many."""
    width: int | None
    """Columns of the window that is computed in each row; None is the whole canvas of every row, and none waits."""
    room: int
    """Positions that go through the LM head, at least as many as are requested."""
    masked: bool
    """Whether some position of some row is padding."""
    reach: int
    """Blocks that a row of it computes at most, which decides who takes part; 0 is everything."""


class Part(NamedTuple):
    """What one run of the network computes, and which of it goes through the LM head."""

    window: Window
    order: Int[Tensor, "M"]
    """Positions of the window by number, the requested ones first."""
    places: Int[Tensor, "M"]
    """The same positions by number on the canvas."""
    masked: bool | None = None
    """Whether some key is padding; None: to be looked up."""

    def cut(self, shape: Shape) -> Part:
        """The part with so many positions for the LM head as the shape has room for."""
        return Part(self.window, self.order[: shape.room], self.places[: shape.room], shape.masked)


@dataclass(frozen=True)
class Scope:
    """What one pass sees, and what of it is computed."""

    visible: Bool[Tensor, "B L"]
    computed: Bool[Tensor, "B L"]
    attention: int | None
    """The block of the attention pattern."""

    def exact(self, requested: Bool[Tensor, "B L"], back: int) -> list[Part]:
        """Parts of exactly the requested size, which synchronises with the device.

        A GPU takes the rows that are computed whole at once, and the others. A CPU takes each by itself, without
        padding: the rounding of a matrix product depends on its size, so this is how a batch gives the bits that its
        rows give alone (docs/reproducibility.md has the cost).
        """
        rows = requested.any(1).nonzero().flatten()
        whole = (self.computed == self.visible).all(1)[rows]
        groups = rows.split(1) if rows_apart(rows.device) else (rows[whole], rows[~whole])
        return [self._exact_part(group, requested, back) for group in groups if len(group)]

    def _exact_part(self, rows: Int[Tensor, "G"], requested: Bool[Tensor, "B L"], back: int) -> Part:
        keys = self.visible[rows].any(0).nonzero().flatten()
        computed, width = self.computed[rows][:, keys], None
        if not torch.equal(computed, self.visible[rows][:, keys]):
            start = (first(computed) - back).clamp(min=0)
            width = len(keys) - int((start + first(computed.flip(1))).min())
        window = self.window(rows, keys, width, back)
        order = window.take(requested).flatten().nonzero().flatten()
        return Part(window, order, window.places(requested.shape[1]).flatten()[order])

    def rounded(self, requested: Bool[Tensor, "B L"], width: int | None, back: int) -> Part:
        """All rows in one part, so many columns wide, without synchronising."""
        rows, keys = (torch.arange(size, device=requested.device) for size in requested.shape)
        window = self.window(rows, keys, width, back)
        order = compact(window.take(requested).flatten())
        return Part(window, order, window.places(len(keys)).flatten()[order])

    def window(self, rows: Int[Tensor, "G"], keys: Int[Tensor, "K"], width: int | None, back: int) -> Window:
        """The computed positions of these rows and the `back` before them, from which the first are predicted.

        It is `width` columns wide wherever the rows are; None is all of them.
        """
        places = torch.arange(len(keys), device=keys.device)
        if width is None:
            return Window(rows, keys, places.expand(len(rows), -1), keys.expand(len(rows), -1), None)
        computed = self.computed[rows][:, keys]
        queries = (first(computed) - back).clamp(0, len(keys) - width) + places[:width]
        return Window(rows, keys, queries, keys[queries], computed.gather(1, queries))


def takes_part(wanted: Any, reach: int) -> Any:
    """Whether a row takes part in a pass over `reach` blocks (0: everything) when its own wants `wanted`.

    One question for the device, which asks it of a tensor, and for the host, which asks it of a number.
    """
    return (wanted > 0) & (wanted <= reach) if reach else wanted == 0


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
    """How a decode reuses the keys and values of earlier passes; without a policy, not at all."""

    policy: CachePolicy | None
    blocks: Blocks

    @staticmethod
    def of(blocks: Blocks, policy: CachePolicy | None) -> Caching:
        if policy is not None and blocks.from_zero and blocks.length is None:
            raise UsageError(
                f"the {policy.kind} cache has nothing to reuse: without block_length this model decodes prompt and "
                "answer as one block; give a block_length"
            )
        renew = 1 if policy is None else policy.renew
        if renew > 1 and blocks.length is None:
            raise UsageError(f"renew {renew} counts blocks, and without block_length there is one: give a block_length")
        if renew > 1 and blocks.attention:
            raise UsageError(
                f"renew {renew} is for full attention: under block-causal attention no key or value goes stale, and "
                "every block begins with what changed; leave renew out"
            )
        return Caching(policy, blocks)

    def memory(self, model: Denoiser, batch: int, length: int) -> KVMemory | None:
        """Room for the keys and values of a batch, where they are reused."""
        return None if self.policy is None else model.memory(batch, length)

    def scope(self, block: Block, clock: Clock, turn: Bool[Tensor, "B 1"]) -> Scope:
        """In the rows whose turn it is: all that is visible at a refresh, else what `kind` says of it."""
        computed = block.visible & turn
        if self.policy is not None:
            computed = computed & (self._refreshed(clock) | self._near(block, clock))
        return Scope(block.visible, computed, self.blocks.attention)

    def reach(self, clock: Clock) -> Int[Tensor, "B 1"]:
        """Blocks that a row's pass computes: its own, or at its start also the one before; 0 is everything."""
        if self.policy is None:
            return torch.zeros_like(clock.passes)
        blocks = 1 + (clock.block_start != clock.last_start).long()
        return blocks.masked_fill(self._refreshed(clock), 0)

    def _refreshed(self, clock: Clock) -> Bool[Tensor, "B 1"]:
        again = torch.zeros_like(clock.passes, dtype=torch.bool)
        if self.policy is not None and self.policy.refresh is not None:
            again = clock.block_passes % self.policy.refresh == 0
        return again if self.blocks.attention else again | self._renewed(clock)

    def _renewed(self, clock: Clock) -> Bool[Tensor, "B 1"]:
        """Every n-th block a row is in, and one that does not follow on the last: a window of two would not hold it."""
        apart = clock.block_start - clock.last_start != (self.blocks.length or 0)
        renew = 1 if self.policy is None else self.policy.renew
        return (clock.block_passes == 0) & (apart | (clock.block % renew == 0))

    def _near(self, block: Block, clock: Clock) -> Bool[Tensor, "B L"]:
        """At the start of a block also the one before: its last tokens came after its last keys and values."""
        index = torch.arange(block.inside.shape[1], device=block.inside.device)
        onward = index >= clock.last_start
        beyond = (index >= block.start) & ~block.inside
        return onward & ~beyond if isinstance(self.policy, Dual) else onward
