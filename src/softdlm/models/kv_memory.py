"""Keys and values that are kept between passes, and the window of the canvas that one pass computes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class KVMemory:
    """Latest keys and values of every position: one tensor per layer, allocated once and written in place."""

    keys: tuple[Float[Tensor, "B heads L d"], ...]
    values: tuple[Float[Tensor, "B heads L d"], ...]

    @staticmethod
    def empty(like: Tensor, layers: int, shape: tuple[int, int, int, int]) -> KVMemory:
        """Zeros with the dtype and device of `like`; `shape` is (B, heads, L, d)."""
        return KVMemory(*(tuple(like.new_zeros(shape) for _ in range(layers)) for _ in range(2)))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return *self.keys, *self.values


@dataclass(frozen=True)
class Window:
    """The positions of some rows that one pass computes, and the keys they attend to.

    Computed positions are contiguous and equally many in every row, so shapes do not depend on how far each row is.
    `written` marks those whose keys and values are stored. A position that is computed only because another row's
    block is longer, or because Dream predicts from it, keeps its old ones.
    """

    rows: Int[Tensor, "G"]
    keys: Int[Tensor, "K"]
    """Columns of the canvas that are attended to."""
    queries: Int[Tensor, "G Q"]
    """Computed positions, as indices into `keys`."""
    columns: Int[Tensor, "G Q"]
    """Computed positions, as columns of the canvas."""
    written: Bool[Tensor, "G Q"] | None
    """Which computed positions are stored; None means that all keys are computed and stored."""

    def places(self, length: int) -> Int[Tensor, "G Q"]:
        """The computed positions, as indices into a flattened canvas of this length."""
        return self.rows[:, None] * length + self.columns

    def take(self, values: Tensor) -> Tensor:
        """Select the computed positions: "B L ..." -> "G Q ..."; no copy where they are all positions."""
        return values if self.columns.shape == values.shape[:2] else values[self.rows[:, None], self.columns]

    def seen(self, values: Tensor) -> Tensor:
        """Select the keys: "B L" -> "G K"; no copy where they are all columns."""
        everything = (len(self.rows), len(self.keys)) == values.shape
        return values if everything else values[self.rows[:, None], self.keys]

    def store(self, stored: Float[Tensor, "B heads L d"], new: Float[Tensor, "G heads Q d"]) -> None:
        """Write in place and without synchronising, so that the pass can be captured in a CUDA graph."""
        if self.written is None and new.shape == stored.shape:
            stored.copy_(new)
            return
        heads = torch.arange(stored.shape[1], device=stored.device)
        where = self.rows[:, None, None], heads[:, None], self.columns[:, None]
        stored[where] = new if self.written is None else torch.where(self.written[:, None, :, None], new, stored[where])

    def recall(self, stored: Float[Tensor, "B heads L d"]) -> Float[Tensor, "G heads K d"]:
        """Stored values of the window's rows and keys; no copy where these are all rows and columns."""
        if (len(self.rows), len(self.keys)) == (stored.shape[0], stored.shape[2]):
            return stored
        return stored.transpose(1, 2)[self.rows[:, None], self.keys].transpose(1, 2)
