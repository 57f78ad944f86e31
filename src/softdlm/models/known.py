"""The published checkpoints that are known by name: one table, known.toml beside this file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

TABLE = Path(__file__).with_name("known.toml")


@dataclass(frozen=True)
class KnownModel:
    """A published checkpoint, as far as it can be described without its files."""

    name: str
    """Its Hugging Face id."""
    model_type: str
    parameters: int
    """Of which tied ones count once."""
    layers: int
    width: int
    mlp: int
    """Width of the hidden layer of a dense MLP."""
    vocabulary: int
    attention: Literal["full", "block-causal"] = "full"
    """What it was trained with; LLaDA-2.0-mini can be run with either."""
    block_length: int | None = None
    """Of the blocks that it was trained to see."""

    def pass_elements(self, positions: int) -> int:
        """Numbers that the network holds at once in a pass, as the engine estimates them (NetworkDenoiser)."""
        return positions * (8 * self.width + 3 * self.mlp)


@cache
def known_models() -> tuple[KnownModel, ...]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(KnownModel(name, **entry) for name, entry in table.items())


def known_model(name: str) -> KnownModel | None:
    return next((each for each in known_models() if each.name == name), None)
