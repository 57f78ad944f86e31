"""The model under the clock, and what a part finds out about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from softdlm.bench.ceilings import Ceilings, Geometry, measure_ceilings
from softdlm.bench.measure import Clock, Sample, sample
from softdlm.bench.shapes import Shape, Sizes
from softdlm.bench.targets import Check
from softdlm.bench.workload import Decode
from softdlm.models.denoiser import NetworkDenoiser

Row = dict[str, Any]


class NotHere(Exception):
    """A part that means nothing on this device."""


@dataclass
class Found:
    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Bench:
    """A model on a device, and the time there is to measure it."""

    shape: Shape
    model: NetworkDenoiser
    engine: str
    clock: Clock
    say: Callable[[str], None] = lambda text: None

    @property
    def sizes(self) -> Sizes:
        return self.shape.sizes

    @property
    def decode(self) -> Decode:
        """The whole canvas at the first rate; the other decodes are variants of it."""
        return Decode(self.sizes.prompt, self.sizes.new, self.sizes.rates[0])

    @cached_property
    def geometry(self) -> Geometry:
        return Geometry.of(self.model)

    @cached_property
    def measured(self) -> tuple[Ceilings, list[Row]]:
        return measure_ceilings(self.model, self.decode.length, self.decode.new, self.clock)

    def floor(self, decode: Decode, skip: int = 0) -> float:
        """Seconds of the decode's passes, the first `skip` left out."""
        return self.measured[0].floor(self.geometry, decode.works(self.model.first_open)[skip:])

    def call(self, decode: Decode) -> Callable[[], Any]:
        return partial(decode.run, self.model, self.engine)

    def time(self, decode: Decode, repeats: int | None = None) -> Sample:
        self.say(str(decode))
        return sample(self.call(decode), self.model.device, repeats or self.sizes.repeats, self.clock)

    def row(self, decode: Decode, times: Sample) -> Row:
        """What is told of a decode in every table."""
        count = len(decode.works())
        return {
            "tokens/s": decode.tokens / times.median,
            "passes": count,
            "ms a pass": 1e3 * times.median / count,
            "floor, ms": 1e3 * self.floor(decode) / count,
            "x floor": times.median / self.floor(decode),
            "spread, %": 100 * times.spread,
            "runs": len(times.seconds),
            "first run, s": times.first,
        }
