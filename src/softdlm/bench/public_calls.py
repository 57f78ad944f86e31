"""The calls that a user writes, timed as they stand: what the other suites prove must be what everybody gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softdlm.bench.context import Bench, SuiteResult, TableRow
from softdlm.bench.measure import Timings, interleave
from softdlm.bench.targets import Check
from softdlm.bench.workload import prompts
from softdlm.generation import generate
from softdlm.models.denoiser import Denoiser


def public(bench: Bench) -> SuiteResult:
    """`generate` without an engine, after `model.warm()`, beside the fastest engine by name."""
    model, rows, worst = bench.model, [], 0.0
    best = "compiled" if model.device.type == "cuda" else "dynamic"
    model.warm()
    for fields in calls(bench):
        bench.say(f"generate(model, prompt, {words(fields)})")
        timed = {engine: PublicCall(bench, model, fields, engine) for engine in (None, best)}
        times = interleave(timed, model.device, max(3, bench.sizes.repeats - 2), bench.budget)
        rows += [timed[engine].row(times[engine]) for engine in timed]
        worst = max(worst, times[None].median / times[best].median)
    note = f"A call is generate(model, prompt, ...) with {bench.decode.length} positions in all and nothing else given."
    return SuiteResult(rows, [Check("public", worst)], [note])


def calls(bench: Bench) -> list[dict[str, Any]]:
    """The arguments of each call. Without a cache all passes are alike, so an eighth to a half of the answer does."""
    sizes = bench.sizes
    plain = [{"max_new_tokens": sizes.batch_new, "tokens_per_step": rate} for rate in sizes.rates]
    if bench.model.blocks_from_zero:
        return plain
    dual = {"max_new_tokens": sizes.new, "block_length": sizes.block, "cache": "dual"}
    return [*plain, *({**dual, "tokens_per_step": rate} for rate in sizes.rates)]


def words(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())


@dataclass
class PublicCall:
    """`generate` with some arguments; it notes how many passes it took."""

    bench: Bench
    model: Denoiser
    fields: dict[str, Any]
    engine: Any = None
    passes: int = 0

    def __call__(self) -> None:
        new = self.fields["max_new_tokens"]
        (prompt,) = prompts(self.model, 1, self.bench.decode.length - new)
        self.passes = generate(self.model, prompt, engine=self.engine, **self.fields).forwards

    def row(self, times: Timings) -> TableRow:
        return {
            "call": words(self.fields),
            "engine": self.engine or "default",
            "tokens/s": self.fields["max_new_tokens"] / times.median,
            "passes": self.passes,
            "ms a pass": 1e3 * times.median / self.passes,
            "spread, %": 100 * times.spread,
            "first run, s": times.first,
        }
