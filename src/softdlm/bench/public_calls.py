"""The calls that a user writes, timed as they stand: what the other suites prove must be what everybody gets."""

from __future__ import annotations

from functools import partial
from typing import Any

from softdlm.bench.context import Bench, SuiteResult, TableRow
from softdlm.bench.measure import Timings, interleave
from softdlm.bench.targets import Check
from softdlm.bench.workload import prompts
from softdlm.generation import Generation, generate
from softdlm.models.denoiser import Denoiser

ENGINES = (None, "static", "compiled")
"""None: as a call has it that names no engine."""


def public(bench: Bench) -> SuiteResult:
    """`generate` without an engine, after `model.warm()`, beside the engines by name."""
    model, rows, worst = bench.model, [], 0.0
    engines = ENGINES if model.device.type == "cuda" else (None, "dynamic")
    patience, _ = model.compile_after, model.warm()
    for fields in calls(bench):
        bench.say(f"generate(model, prompt, {words(fields)})")
        works = {engine: partial(answer, bench, engine, fields) for engine in engines}
        times = interleave(works, model.device, max(3, bench.sizes.repeats - 2), bench.budget)
        rows += [call_row(bench, model, engine or "default", fields, times[engine]) for engine in engines]
        worst = max(worst, times[None].median / min(each.median for each in times.values()))
    model.compile_after = patience
    note = f"A call is generate(model, prompt, ...) with a prompt of {bench.sizes.prompt} ids; the rest is as always."
    return SuiteResult(rows, [Check("public", worst)], [note])


def calls(bench: Bench) -> list[dict[str, Any]]:
    """The arguments of each call."""
    plain = [{"max_new_tokens": bench.sizes.new, "tokens_per_step": rate} for rate in bench.sizes.rates]
    if bench.model.blocks_from_zero:
        return plain
    return [*plain, *({**each, "block_length": bench.sizes.block, "cache": "dual"} for each in plain)]


def words(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())


def answer(bench: Bench, engine: Any, fields: dict[str, Any], model: Denoiser | None = None) -> Generation:
    (prompt,) = prompts(bench.model, 1, bench.sizes.prompt)
    return generate(model or bench.model, prompt, engine=engine, **fields)


def call_row(bench: Bench, model: Denoiser, engine: str, fields: dict[str, Any], times: Timings) -> TableRow:
    passes = answer(bench, None if engine == "default" else engine, fields, model).forwards
    return {
        "call": words(fields),
        "engine": engine,
        "tokens/s": bench.sizes.new / times.median,
        "passes": passes,
        "ms a pass": 1e3 * times.median / passes,
        "spread, %": 100 * times.spread,
        "first run, s": times.first,
    }
