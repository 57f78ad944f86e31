"""What a suite works with: the model, its time budget and table rows; and what a suite returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from softdlm.bench.ceilings import Ceilings, Dimensions, measure_ceilings
from softdlm.bench.measure import TimeBudget, Timings, time_calls
from softdlm.bench.shapes import NetworkShape, Sizes
from softdlm.bench.targets import Check
from softdlm.bench.workload import Decode
from softdlm.engine.pick_engine import EngineKind
from softdlm.models.denoiser import NetworkDenoiser

TableRow = dict[str, Any]


class NotHere(Exception):
    """Raised by a suite that cannot run on this device."""


@dataclass
class SuiteResult:
    rows: list[TableRow] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Bench:
    """A model on a device, and the time budget to measure it."""

    shape: NetworkShape
    model: NetworkDenoiser
    engine: EngineKind
    budget: TimeBudget
    say: Callable[[str], None] = lambda text: None

    @property
    def sizes(self) -> Sizes:
        return self.shape.sizes

    @property
    def decode(self) -> Decode:
        """A decode of the whole canvas at the first rate; suites vary it."""
        return Decode(self.sizes.prompt, self.sizes.new, self.sizes.rates[0])

    @cached_property
    def dimensions(self) -> Dimensions:
        return Dimensions.of(self.model)

    @cached_property
    def measured(self) -> tuple[Ceilings, list[TableRow]]:
        """The device's ceilings and their table, measured on first use."""
        return measure_ceilings(self.model, self.decode.length, self.decode.new, self.budget)

    def floor(self, decode: Decode, skip: int = 0) -> float:
        """Shortest possible time of the decode's passes without the first `skip`, in seconds."""
        return self.measured[0].floor(self.dimensions, decode.passes(self.model.first_open)[skip:])

    def call(self, decode: Decode) -> Callable[[], Any]:
        return partial(decode.run, self.model, self.engine)

    def time(self, decode: Decode, repeats: int | None = None) -> Timings:
        self.say(str(decode))
        return time_calls(self.call(decode), self.model.device, repeats or self.sizes.repeats, self.budget)

    def row(self, decode: Decode, times: Timings) -> TableRow:
        """The columns that every table has for a decode."""
        count = len(decode.passes())
        return pass_row(count, times.median / count, self.floor(decode) / count, times, decode.tokens / times.median)


def pass_row(passes: int, seconds: float, floor: float, times: Timings, rate: float | None = None) -> TableRow:
    """Table columns for passes that take `seconds` each, with the shortest possible time `floor`."""
    return {
        "tokens/s": rate,
        "passes": passes,
        "ms a pass": 1e3 * seconds,
        "floor, ms": 1e3 * floor,
        "x floor": seconds / floor,
        "spread, %": 100 * times.spread,
        "runs": len(times.seconds),
        "first run, s": times.first,
    }
