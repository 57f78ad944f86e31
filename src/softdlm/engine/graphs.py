"""Passes captured as CUDA graphs: one per shape, each of which keeps alive everything that it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from softdlm.cache import Shape
from softdlm.types import Step

MOST_GRAPHS = 64
"""Graphs per slots; the least recently used one goes first."""


class Way(NamedTuple):
    """How a pass is run."""

    shape: Shape
    compiled: bool = False


@dataclass(frozen=True)
class Captured:
    """A graph, the Step that each replay overwrites, and the tensors that the graph reads.

    A graph holds addresses, not tensors: memory that was freed would be read all the same. `reads` aliases the storage
    of every tensor that existed before the pass, so none of it is freed while the graph lives, whatever becomes of the
    modules and parameters that named it.
    """

    graph: torch.cuda.CUDAGraph
    step: Step
    reads: tuple[Tensor, ...]

    def replay(self) -> Step:
        self.graph.replay()
        return self.step


class Graphs:
    """The pass of each way: run as it is the first time, which warms it up, and captured the second.

    So a shape that is met once, such as that of a rare Decoding, is never captured. Once a shape is compiled, the pass
    that was captured before goes.
    """

    def __init__(self, capture: bool) -> None:
        self.capture = capture
        self.met: set[Way] = set()
        self.captured: dict[Way, Captured] = {}
        self.pool = torch.cuda.graph_pool_handle() if capture else None
        self.bytes = 0
        """Device memory that captured passes hold for what they compute."""

    def run(self, way: Way, work: Callable[[Way], Step], reads: Callable[[Way], Sequence[Tensor]]) -> Step:
        if not self.capture or way not in self.met:
            self.met.add(way)
            self.captured.pop(Way(way.shape, not way.compiled), None)
            return work(way)
        found = self.captured.pop(way, None) or self._captured(way, work, reads)
        self.captured[way] = found
        if len(self.captured) > MOST_GRAPHS:
            del self.captured[next(iter(self.captured))]
        return found.replay()

    def _captured(self, way: Way, work: Callable[[Way], Step], reads: Callable[[Way], Sequence[Tensor]]) -> Captured:
        """Capturing runs nothing: the state is untouched until the first replay."""
        kept = tuple(tensor.detach() for tensor in reads(way))
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            step = work(way)
        self.bytes = pool_bytes(self.pool)
        return Captured(graph, step, kept)


def pool_bytes(pool: tuple[int, int] | None) -> int:
    """Device memory that a pool holds, read off the allocator: what it had in reserve before a capture counts too."""
    segments = torch.cuda.memory_snapshot()
    return sum(each["total_size"] for each in segments if tuple(each["segment_pool_id"]) == pool)
