"""Keys and values that outlive a pass, and the part of a canvas that one product computes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class KVMemory:
    """The last keys and values of every position, one tensor a layer, allocated once and written in place."""

    keys: tuple[Float[Tensor, "B heads L d"], ...]
    values: tuple[Float[Tensor, "B heads L d"], ...]

    @staticmethod
    def empty(like: Tensor, layers: int, shape: tuple[int, int, int, int]) -> KVMemory:
        """Zeros of the type and on the device of `like`; the shape is "B heads L d"."""
        return KVMemory(*(tuple(like.new_zeros(shape) for _ in range(layers)) for _ in range(2)))


@dataclass(frozen=True)
class Window:
    """What one product computes of some rows, and what it attends to.

    The computed positions of a row stand side by side and are as many in every row, so that shapes do not depend on
    where each row is. `written` are those whose keys and values are new; a position that is computed only because
    another row's block is longer, or because Dream predicts from it, keeps the ones it has.
    """

    rows: Int[Tensor, "G"]
    keys: Int[Tensor, "K"]
    """Columns of the canvas that are seen."""
    queries: Int[Tensor, "G Q"]
    """Places among `keys` that are computed."""
    columns: Int[Tensor, "G Q"]
    """The same as columns of the canvas."""
    written: Bool[Tensor, "G Q"] | None
    """None: all, and every key is computed."""

    @property
    def places(self) -> Int[Tensor, "G Q"]:
        """The computed positions by number, on a flattened canvas of all keys."""
        return self.rows[:, None] * len(self.keys) + self.columns

    def take(self, values: Tensor) -> Tensor:
        """Of something "B L ...", the computed positions, "G Q ..."; the thing itself where these are all."""
        return values if self.columns.shape == values.shape[:2] else values[self.rows[:, None], self.columns]

    def seen(self, values: Tensor) -> Tensor:
        """Of something "B L", the keys, "G K"; the thing itself where these are all."""
        everything = (len(self.rows), len(self.keys)) == values.shape
        return values if everything else values[self.rows[:, None], self.keys]

    def store(self, stored: Float[Tensor, "B heads L d"], new: Float[Tensor, "G heads Q d"]) -> None:
        """Write in place, without asking the device for any value: the step may be captured in a graph."""
        if self.written is None and new.shape == stored.shape:
            stored.copy_(new)
            return
        heads = torch.arange(stored.shape[1], device=stored.device)
        where = self.rows[:, None, None], heads[:, None], self.columns[:, None]
        stored[where] = new if self.written is None else torch.where(self.written[:, None, :, None], new, stored[where])

    def recall(self, stored: Float[Tensor, "B heads L d"]) -> Float[Tensor, "G heads K d"]:
        """All rows and all columns are the stored tensor itself; else a copy of those asked for."""
        if (len(self.rows), len(self.keys)) == (stored.shape[0], stored.shape[2]):
            return stored
        return stored.transpose(1, 2)[self.rows[:, None], self.keys].transpose(1, 2)
