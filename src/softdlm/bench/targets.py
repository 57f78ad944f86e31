"""Speed and memory targets: a number, whether more or less is better, and for which networks and machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from softdlm.bench.workload import Decode

H200 = "H200"
BOTH = ("llada-8b", "dream-7b")


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


TARGETS = {
    "feedback": Target("SLERP step minus vanilla step, whole canvas", 1, "% of the vanilla step", shapes=BOTH),
    "feedback cached": Target("SLERP step minus vanilla step, dual cache", 1, "% of the vanilla step", shapes=BOTH),
    "whole floor": Target("whole-canvas step, no cache", 1.3, "x the floor", shapes=BOTH),
    "whole gain": Target(
        "tokens a second, whole canvas, beside the plain loop", 1.3, "x the plain loop", at_least=True, shapes=BOTH
    ),
    "whole step": Target(
        "whole-canvas step, no cache, of a mixture of experts", 14, "ms", shapes=("llada2-mini",), machine=H200
    ),
    "identical": Target(
        "decodes of a small float32 network equal to the plain loop's",
        100,
        "%",
        at_least=True,
        shapes=(*BOTH, "llada2-mini"),
    ),
    "cached floor": Target("dual-cache step", 1.35, "x the floor", shapes=BOTH),
    "dual first": Target("dual cache, 4 a step", 400, "tokens/s", at_least=True, machine=H200),
    "dual second": Target("dual cache, 8 a step", 550, "tokens/s", at_least=True, machine=H200),
    "prefix first": Target("prefix cache, 4 a step", 280, "tokens/s", at_least=True, machine=H200),
    "batches": Target("dual cache in batches, the worst of them", 1.35, "x the floor", shapes=BOTH),
    "memory": Target("memory beyond weights, keys and values, one row", 1, "GiB", shapes=BOTH),
    "allocation": Target(
        "largest single allocation, relative to a float32 table of open rows x vocabulary", 0.99, "of it", shapes=BOTH
    ),
    "growth": Target(
        "steepest growth of a step, attention aside, over the last doubling (1 is linear)",
        1.15,
        "as exponent",
        shapes=(*BOTH, "llada2-mini"),
    ),
}


class Check(NamedTuple):
    """A measured value to compare with a target."""

    target: str
    """Key of TARGETS."""
    value: float
    decode: Decode | None = None
    """The decode to profile if the target is missed."""
