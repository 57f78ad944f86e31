"""The network in eight bits beside the same one in the bench's own type."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from softdlm.bench.context import Bench, NotHere, SuiteResult, TableRow
from softdlm.bench.measure import interleave, time_calls
from softdlm.bench.passes import STEP, WHOLE, pass_times
from softdlm.bench.public_calls import PublicCall
from softdlm.bench.reference import plain_loop
from softdlm.bench.shapes import build_model
from softdlm.bench.targets import Check
from softdlm.bench.workload import nats, prompts
from softdlm.cache import Dual
from softdlm.errors import UsageError
from softdlm.models.denoiser import NetworkDenoiser
from softdlm.models.fp8 import Fp8, check_device
from softdlm.models.weights import Precision

RATE = 6
"""Tokens that the recommended decoding commits a pass on mini-math."""


def fp8(bench: Bench, kind: Fp8 = "fp8") -> SuiteResult:
    """Weights, passes and calls in eight bits."""
    if bench.model.fp8:
        raise NotHere("this bench runs in fp8 itself")
    if kind == "fp8":
        try:
            check_device(bench.model.device)
        except UsageError as error:
            raise NotHere(str(error)) from error
    eight = build_model(bench.shape, bench.model.device, Precision(bench.model.dtype, kind))
    models = {bench.model.precision: bench.model, kind: eight}
    rows = [{"what": "weights", "dtype": name, "GB": gigabytes(model)} for name, model in models.items()]
    checks = [Check("fp8 weights", gigabytes(eight))]
    passes, found = time_passes(bench, models)
    target = "fp8 mixture" if bench.dimensions.routed else "fp8 whole canvas"
    checks.append(Check(target, 1e3 * found[kind, WHOLE]))
    checks += [Check("fp8 step", 1e3 * found[kind, STEP])] if (kind, STEP) in found else []
    gain = [gain_row(bench, eight)]
    made, more = time_calls_of(bench, eight)
    checks += [Check("fp8 gain", gain[0]["x the plain loop"]), *more]
    return SuiteResult([*rows, *passes, *gain, *made], checks)


def gigabytes(model: NetworkDenoiser) -> float:
    """Of all weights, each tensor once."""
    return sum({each.data_ptr(): each.nbytes for each in model.weights()}.values()) / 1e9


def time_passes(
    bench: Bench, models: dict[str, NetworkDenoiser]
) -> tuple[list[TableRow], dict[tuple[str, str], float]]:
    """Captured passes of each network: over the whole canvas and, with the dual cache, between refreshes."""
    size, rate = bench.sizes.block, bench.sizes.rates[0]
    decodes = {"no cache": bench.decode.ending(bench.sizes.new, max(1, bench.sizes.new // 16))}
    if not bench.model.blocks_from_zero:
        dual = replace(bench.decode, block=size, cache=Dual())
        decodes["dual"] = dual.ending(min(4 * size, bench.sizes.new), rate)
    engine: Any = "compiled" if bench.model.device.type == "cuda" else "static"
    rows, found = [], {}
    for name, model in models.items():
        bench.say(f"passes in {name}")
        for cache, kinds in pass_times(model, decodes, engine, 2 * bench.sizes.repeats, bench.budget).items():
            for kind, times in kinds.items():
                found.setdefault((name, kind), times.median)
                rows.append({"what": f"a pass, {cache}, {kind}", "dtype": name, "ms a pass": 1e3 * times.median})
                rows[-1] |= {"spread, %": 100 * times.spread}
    return rows, found


def gain_row(bench: Bench, eight: NetworkDenoiser) -> TableRow:
    """The default call in eight bits beside the plain loop in the bench's type, in turn."""
    new, rate = max(bench.sizes.new // 4, bench.sizes.rates[0]), bench.sizes.rates[0]
    (prompt,) = prompts(bench.model, 1, bench.sizes.prompt + bench.sizes.new - new)
    eight.warm()
    works = {
        "ours": partial(bench.decode.ending(new, rate).run, eight),
        "loop": partial(plain_loop, bench.model, prompt, new, rate),
    }
    times = interleave(works, bench.model.device, 3, bench.budget)
    row = {"what": f"the last {new} tokens, no cache, beside the plain loop in {bench.model.precision}"}
    return row | {
        "dtype": eight.precision,
        "tokens/s": new / times["ours"].median,
        "x the plain loop": times["loop"].median / times["ours"].median,
    }


def time_calls_of(bench: Bench, eight: NetworkDenoiser) -> tuple[list[TableRow], list[Check]]:
    """`generate` in eight bits, without an engine."""
    sizes, rows, checks = bench.sizes, [], []
    for target, fields in wanted(bench).items():
        whole = {"max_new_tokens": sizes.new if "cache" in fields else sizes.batch_new, **fields}
        bench.say(f"in fp8, {fields}")
        call = PublicCall(bench, eight, whole)
        row = call.row(time_calls(call, bench.model.device, max(3, sizes.repeats - 2), bench.budget))
        rows.append({"what": row.pop("call"), "dtype": eight.precision} | row)
        checks += [Check(target, row["tokens/s"])] if target.startswith("fp8") else []
    return rows, checks


def wanted(bench: Bench) -> dict[str, dict[str, Any]]:
    """Target, or a name where there is none -> the arguments of a call."""
    first, second = bench.sizes.rates
    if bench.model.blocks_from_zero:
        return {"whole": {"tokens_per_step": first}}
    dual = {"block_length": bench.sizes.block, "cache": "dual"}
    adaptive = {"commit": f"entropy({nats(RATE)})", **dual}
    return {
        "whole": {"tokens_per_step": first},
        "fp8 dual first": {"tokens_per_step": first, **dual},
        "fp8 dual second": {"tokens_per_step": second, **dual},
        "renew first": {"tokens_per_step": first, **dual, "cache": "dual(renew=4)"},
        "renew second": {"tokens_per_step": second, **dual, "cache": "dual(renew=4)"},
        "fp8 adaptive": adaptive,
        "adaptive renew": {**adaptive, "cache": "dual(renew=4)"},
        "fp8 recommended": {**adaptive, "feedback": "alternate(slerp(k=1, lam=0.3))", "cache": "dual(renew=4)"},
    }
