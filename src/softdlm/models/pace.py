"""How the passes of a model are run where a decode does not say, and when their shapes are compiled."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Literal

EngineKind = Literal["auto", "dynamic", "static", "compiled"]
"""How passes are run (docs/engines.md)."""
WORTH = 500
"""Passes of one shape after which `engine="auto"` compiles it, for a network as large as LLaDA-8B. On an H200 compiling
takes 2 to 12 s a shape, less where the cache on disk has it, and gains 4 to 10 ms a pass with LLaDA-8B's shape."""
LARGE = 8_000_000_000
"""Weights of LLaDA-8B."""
MOST_COUNTED, MOST_COMPILED = 4096, 512
"""Shapes whose passes are counted, and that `auto` compiles: every Decoding brings shapes of its own."""


def passes_worth(weights: int) -> int:
    """Passes of one shape after which compiling it pays: a smaller network's passes are shorter, and gain less each."""
    return round(WORTH * max(1.0, LARGE / max(weights, 1)))


class Paced:
    """Part of every model."""

    engine: EngineKind = "auto"
    """The engine of decodes that name none."""
    compile_after = WORTH
    """Passes of one shape that `engine="auto"` runs before it compiles the shape."""
    passes: dict[Hashable, int]
    """Passes of each shape so far; the shape that was met last stands last."""
    due: set[Hashable]
    """Shapes that are compiled, or will be in their next pass."""
    compiles = False
    """Whether it has layers to compile."""

    def warm(self) -> None:
        """From now on, `engine="auto"` compiles each shape of a pass when it first meets it.

        Without this it does so after `compile_after` passes of the shape. On a CPU nothing is compiled.
        """
        self.compile_after = 0

    @contextmanager
    def expecting(self, passes: float) -> Iterator[None]:
        """So many passes are to come in this context: where that pays, it is warm there. What it compiles stays."""
        before = self.compile_after
        if passes >= 2 * before:
            self.warm()
        try:
            yield
        finally:
            self.compile_after = before

    def count_pass(self, shape: Hashable) -> bool:
        """Count a pass of this shape; whether it is to be compiled."""
        self.passes[shape] = met = self.passes.pop(shape, 0) + 1
        if len(self.passes) > MOST_COUNTED:
            del self.passes[next(iter(self.passes))]
        if met > self.compile_after and len(self.due) < MOST_COMPILED:
            self.due.add(shape)
        return shape in self.due
