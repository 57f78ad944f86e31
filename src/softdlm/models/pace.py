"""How the passes of a model are run where a decode does not say, and when their shapes are compiled."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

EngineKind = Literal["auto", "dynamic", "static", "compiled"]
"""How passes are run (docs/engines.md)."""
WORTH = 500
"""Passes of one shape after which `engine="auto"` compiles it. On an H200 compiling takes 2 to 12 s a shape, less where
the cache on disk has it, and gains 4 to 10 ms a pass with LLaDA-8B's shape."""


class Paced:
    """Part of every model."""

    engine: EngineKind = "auto"
    """The engine of decodes that name none."""
    compile_after = WORTH
    """Passes of one shape that `engine="auto"` runs before it compiles the shape."""
    passes: Counter[Any]
    """Passes of each shape so far."""
    compiles = False
    """Whether it has layers to compile."""

    def warm(self) -> None:
        """From now on, `engine="auto"` compiles each shape of a pass when it first meets it.

        Without this it does so after `compile_after` passes of the shape. On a CPU nothing is compiled.
        """
        self.compile_after = 0
