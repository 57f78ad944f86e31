"""Speed and memory targets: a number, whether more or less is better, and for which networks and machines."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from softdlm.bench.workload import Decode


@dataclass(frozen=True)
class Target:
    what: str
    limit: float
    unit: str = ""
    at_least: bool = False
    shapes: tuple[str, ...] = ("llada-8b",)
    machine: str = ""
    """Part of the device's name if the target is for one machine; ratios apply to any GPU."""

    def applies_to(self, shape: str, device: str) -> bool:
        return shape in self.shapes and device != "cpu" and self.machine in device

    def verdict(self, value: float) -> str:
        """ "met", or by how many per cent of the limit it was missed."""
        short = self.limit - value if self.at_least else value - self.limit
        return "met" if short <= 0 else f"missed by {100 * short / self.limit:.3g} %"

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g} {self.unit}".rstrip()


_WRITTEN = tomllib.loads(Path(__file__).with_name("targets.toml").read_text(encoding="utf-8"))
TARGETS = {name: Target(**{**each, "shapes": tuple(each["shapes"])}) for name, each in _WRITTEN.items()}


class Check(NamedTuple):
    """A measured value to compare with a target."""

    target: str
    """Key of TARGETS."""
    value: float
    decode: Decode | None = None
    """The decode to profile if the target is missed."""
