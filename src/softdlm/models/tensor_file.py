"""A safetensors file, read by ourselves: the header is checked before anything is allocated, and the digest is of the
bytes that were loaded.

Tensors are read, not mapped into memory: a file that is cut while it is read is an error and does not end the process.
"""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from softdlm.errors import CheckpointError
from softdlm.models.folder import CheckpointFolder, about_pointer
from softdlm.records.files import parse_json

HEADER_LIMIT = 100_000_000
"""Bytes of a header, by the format's own rule."""
BLOCK = 4 << 20
"""Bytes that are read at a time: they are checked and copied while a core's cache still has most of them."""
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Types that weights may have: integers and truth values are no weights, narrower floats need scales."""


@dataclass(frozen=True)
class Stored:
    """A tensor as the header describes it; its bytes lie from start to end behind the header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def rows(self) -> int:
        """Along the first dimension."""
        return math.prod(self.shape[:1]) if self.end > self.start else 0

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return (self.end - self.start) // max(1, self.rows)


class Block(NamedTuple):
    """Rows of a tensor, along its first dimension, that are read together."""

    name: str
    first: int
    last: int
    """The row after the last one."""


class TensorFile(AbstractContextManager["TensorFile"]):
    """One file, held open from the check of its header to its last tensor, so that no other can take its place."""

    def __init__(self, folder: CheckpointFolder, name: str) -> None:
        self.name, self.place = name, folder.path / name
        self._file = folder.open(name)
        try:
            self.head = self._read_head()
            self.stored = self._stored()
        except BaseException:
            self._file.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def blocks(self) -> list[Block]:
        """All rows of all tensors, in the order in which they lie, in blocks of at most BLOCK bytes or one row."""
        made = []
        for name, each in self.stored.items():
            step = max(1, BLOCK // max(1, each.row))
            made += [Block(name, first, min(first + step, each.rows)) for first in range(0, each.rows, step)]
        return made

    def buffer(self) -> bytearray:
        """Memory for any one of the blocks."""
        sizes = ((block.last - block.first) * self.stored[block.name].row for block in self.blocks())
        return bytearray(max(sizes, default=0))

    def read(self, block: Block, buffer: bytearray) -> tuple[memoryview, Tensor]:
        """The bytes of a block, and the rows that they are, both in the buffer."""
        each = self.stored[block.name]
        place = memoryview(buffer)[: each.row * (block.last - block.first)]
        self._fill(place, len(self.head) + each.start + each.row * block.first)
        return place, torch.frombuffer(place, dtype=each.dtype).reshape(-1, *each.shape[1:])

    def top(self, block: Block, place: memoryview) -> Tensor:
        """The largest magnitude in a block; values that are not finite are refused."""
        dtype = self.stored[block.name].dtype
        bits = largest(place, dtype).to_bytes(dtype.itemsize, "little")
        top = torch.frombuffer(bytearray(bits), dtype=dtype)[0]
        if not top.isfinite():
            raise CheckpointError(f"{self.place}: {block.name} holds values that are not finite: it is no network")
        return top

    def digest(self) -> str:
        """The SHA-256 of the file as it is now."""
        whole = sha256(self.head)
        self._file.seek(len(self.head))
        while block := self._file.read(BLOCK):
            whole.update(block)
        return whole.hexdigest()

    def damaged(self, why: str) -> CheckpointError:
        return CheckpointError(f"{self.place} is damaged: {why}; get the file again")

    def _fill(self, place: memoryview, start: int) -> None:
        """From a byte of the file on; several threads may do it at once."""
        while place:
            try:
                count = os.preadv(self._file.fileno(), [place], start)
            except OSError as error:
                raise CheckpointError(f"{self.place} cannot be read: {error.strerror}") from error
            if not count:
                raise self.damaged("it ends too early")
            place, start = place[count:], start + count

    def _read_head(self) -> bytes:
        """The length of the header and the header itself."""
        first = self._file.read(8)
        length = int.from_bytes(first, "little")
        if why := about_pointer(first + self._file.read(32)):
            raise CheckpointError(f"{self.place} is no safetensors file: {why}")
        if len(first) < 8 or not 2 <= length <= HEADER_LIMIT:
            raise self.damaged("it does not begin like a safetensors file")
        head = bytearray(length)
        self._fill(memoryview(head), 8)
        return first + bytes(head)

    def _stored(self) -> dict[str, Stored]:
        """What the header says, in the order of the bytes: without gaps, up to the end of the file."""
        try:
            header = parse_json(self.head[8:])
        except ValueError as error:
            raise self.damaged(f"its header is not JSON ({error})") from error
        if not isinstance(header, dict):
            raise self.damaged("its header is no JSON object")
        header.pop("__metadata__", None)
        found = {name: self._entry(name, about) for name, about in header.items()}
        found = dict(sorted(found.items(), key=lambda item: (item[1].start, item[1].end)))
        place = 0
        for name, each in found.items():
            if each.start != place:
                raise self.damaged(f"{name} begins at byte {each.start}, the one before ends at {place}")
            place = each.end
        size = self._file.seek(0, 2) - len(self.head)
        if size != place:
            raise self.damaged(f"its header describes {place} bytes of tensors, it holds {size}")
        return found

    def _entry(self, name: str, about: Any) -> Stored:
        try:
            kind, shape, (start, end) = about["dtype"], about["shape"], about["data_offsets"]
        except (TypeError, KeyError, ValueError) as error:
            raise self.damaged(f"its header lacks the type, shape or place of {name}") from error
        if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in [*shape, start, end]):
            raise self.damaged(f"{name} has the shape {shape} and lies at {start} to {end}")
        if not isinstance(kind, str) or kind not in FLOATS:
            raise CheckpointError(f"{self.place}: {name} is of type {kind}; weights must be {', '.join(FLOATS)}")
        if end - start != math.prod(shape) * FLOATS[kind].itemsize:
            raise self.damaged(f"{name} is {kind} {shape}, but takes {end - start} bytes")
        return Stored(FLOATS[kind], tuple(shape), start, end)


def largest(block: memoryview, dtype: torch.dtype) -> int:
    """The bits of the value with the largest magnitude, without its sign; of one that is not finite if there is any.

    Floats of one sign are ordered as their bits are, and infinity and NaN come last. So of the values without a sign
    the largest signed number counts, of those with one the largest unsigned number. Exact, and quicker than sums.
    """
    width = 8 * dtype.itemsize
    signed, unsigned = (int(np.maximum.reduce(np.frombuffer(block, f"<{kind}{dtype.itemsize}"))) for kind in "iu")
    return max(signed, unsigned - (1 << width - 1), 0)
