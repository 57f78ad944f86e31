"""The suites of a bench. They are independent, so a failure in one does not affect the others."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from softdlm.bench.builtin_tasks import problems
from softdlm.bench.context import Bench, NotHere, SuiteResult, TableRow, pass_row
from softdlm.bench.eight_bits import fp8
from softdlm.bench.growth import growth
from softdlm.bench.measure import FULL, Timings, allocations, interleave, time_calls
from softdlm.bench.passes import STEP, WHOLE, pass_times
from softdlm.bench.public_calls import public
from softdlm.bench.reference import plain_loop
from softdlm.bench.served_calls import evaluated, served
from softdlm.bench.shapes import SHAPES, build_model
from softdlm.bench.targets import Check
from softdlm.bench.workload import Decode, nats, prompts
from softdlm.cache import Dual, Prefix
from softdlm.commit import EntropyBound
from softdlm.feedback import Slerp
from softdlm.models.denoiser import NetworkDenoiser
from softdlm.registry import title
from softdlm.wrapped_feedback import Alternate

TWO = "vanilla", "slerp"
"""Methods whose decodes have as many passes as each other."""
ROUNDS = 3
"""Factor on the number of repeats where two methods differ by little."""
TURNS = Alternate(Slerp(1, 0.3))
METHODS: dict[str, Callable[[int], dict[str, Any]]] = {
    "vanilla": lambda rate: {},
    "slerp": lambda rate: {"feedback": Slerp()},
    "alternate": lambda rate: {"feedback": TURNS},
    "recommended": lambda rate: {"feedback": TURNS, "commit": EntropyBound(nats(rate))},
}
"""What a decode that commits `rate` tokens a pass changes. The last are the settings recommended for models that nobody
tuned, with a bound that commits as many: passes of other sizes could not be compared."""


def ceilings(bench: Bench) -> SuiteResult:
    """The device's highest rates, and the floors that follow from them."""
    (found, rows), decode = bench.measured, bench.decode
    cached = replace(decode, block=bench.sizes.block, cache=Dual())
    for name, work in {"whole canvas": decode.passes()[0], "dual-cache step": cached.passes()[1]}.items():
        parts = found.floors(bench.dimensions, work)
        split = ", ".join(f"{part} {1e3 * value:.3g}" for part, value in parts.items())
        bound = found.bound(bench.dimensions, work)
        rows = [*rows, {"ceiling": f"floor of a pass: {name} ({bound}: {split})", "ms": 1e3 * sum(parts.values())}]
    note = (
        "A floor is the sum over matrix products, attention and LM head, each the longer of its operations at the "
        "best rate above and its bytes (weights, keys and values, each read once) at the copy's bandwidth."
    )
    return SuiteResult(rows, notes=[note])


def identical(bench: Bench) -> SuiteResult:
    """Whether a small float32 network of the family gives the same tokens as the plain loop."""
    small = build_model(SHAPES[bench.shape.tiny], bench.model.device, torch.float32)
    batch, rate = 8, bench.sizes.rates[0]
    ours = [answer.canvas_ids for answer in Decode(24, 32, rate, batch=batch).run(small, bench.engine)]
    theirs = [plain_loop(small, each, 32, rate, precision=torch.float64) for each in prompts(small, batch, 24)]
    same = sum(mine == other.ids for mine, other in zip(ours, theirs, strict=True))
    row = {"tokens a step": rate, "decodes": batch, "identical": same}
    return SuiteResult([row], [Check("identical", 100 * same / batch)])


def memory(bench: Bench) -> SuiteResult:
    """Memory allocated beyond weights, keys and values, for one row with soft tokens."""
    if bench.model.device.type != "cuda":
        raise NotHere("memory is measured on a GPU only")
    table = bench.sizes.new * bench.dimensions.vocabulary * 4
    whole = replace(bench.decode, feedback=Slerp()).ending(bench.sizes.new, bench.sizes.new // 8)
    rows = []
    for decode in (whole, replace(whole, block=bench.sizes.block, cache=Dual(), rate=bench.sizes.rates[0])):
        kept = bench.dimensions.memory_bytes(1, decode.length) if decode.cache else 0
        taken = allocations(partial(decode.run, fresh(bench.model), bench.engine))
        rows.append(
            {
                "decode": title(decode.cache) if decode.cache else "no cache",
                "keys and values, GiB": kept / 2**30,
                "beyond them, GiB": (taken.peak - kept) / 2**30,
                "largest allocation, MiB": taken.largest / 2**20,
                "rows x vocabulary in float32, MiB": table / 2**20,
            }
        )
    own = [row["largest allocation, MiB"] for row in rows]
    beyond = max(row["beyond them, GiB"] for row in rows)
    return SuiteResult(rows, [Check("memory", beyond), Check("allocation", max(own) * 2**20 / table)])


def fresh(model: NetworkDenoiser) -> NetworkDenoiser:
    """The same network in a new denoiser, without buffers and graphs of earlier decodes."""
    return type(model)(
        model.network,
        attention=model.attention,
        mask_id=model.mask_id,
        eos_ids=model.eos_ids,
        max_length=model.max_length,
        source=model.source,
    )


def feedback(bench: Bench) -> SuiteResult:
    """What soft tokens cost: the methods take turns and are compared with vanilla round by round."""
    return _by_decodes(bench) if bench.model.device.type == "cpu" else _by_passes(bench)


def _by_passes(bench: Bench) -> SuiteResult:
    """Compare captured passes only: the host does the same for all methods, but its times vary."""
    engine = "static" if bench.engine == "static" else "compiled"
    modes = {"no cache": bench.decode.ending(bench.sizes.new, max(1, bench.sizes.new // 8))}
    if not bench.model.blocks_from_zero:
        block, few = replace(bench.decode, block=bench.sizes.block), min(4 * bench.sizes.block, bench.sizes.new)
        cached = {"dual cache": Dual(), "prefix cache": Prefix()}
        modes |= {
            name: replace(block, cache=policy).ending(few, bench.sizes.rates[0]) for name, policy in cached.items()
        }
    rows, most = [], {WHOLE: ("feedback", -math.inf), STEP: ("feedback cached", -math.inf)}
    for mode, decode in modes.items():
        bench.say(f"passes of {decode}, all methods in turn")
        found = pass_times(bench.model, _by_method(decode), engine, ROUNDS * bench.sizes.repeats, bench.budget)
        for name, kind in ((name, kind) for name, kinds in found.items() for kind in kinds):
            times = found[name][kind]
            more = _more(found["vanilla"][kind].seconds, times.seconds)
            rows.append({"method": name, "cache": mode, "pass": kind, "ms a pass": 1e3 * times.median, "more, %": more})
            rows[-1] |= {"spread, %": 100 * times.spread, "rounds": len(times.seconds)}
            most[kind] = most[kind][0], max(most[kind][1], more if name != "vanilla" else -math.inf)
    checks = [Check(*each) for each in most.values() if each[1] > -math.inf]
    return SuiteResult(rows, checks, ["Captured passes timed by CUDA events; each round is the median over a decode."])


def _by_decodes(bench: Bench) -> SuiteResult:
    whole = bench.decode.ending(bench.sizes.new, max(1, bench.sizes.new // 16))
    bench.say("whole canvas, vanilla and SLERP in turn")
    methods = _by_method(whole, TWO)
    calls = {name: bench.call(decode) for name, decode in methods.items()}
    times = interleave(calls, bench.model.device, ROUNDS * bench.sizes.repeats, bench.budget)
    rows = [{"method": name, "decode": "no cache"} | bench.row(methods[name], times[name]) for name in methods]
    checks = [Check("feedback", _more(times["vanilla"].seconds, times["slerp"].seconds))]
    if bench.model.blocks_from_zero:
        return SuiteResult(rows, checks)
    steps = cached_steps(bench, _by_method(replace(bench.decode, cache=Dual()), TWO))
    rows += [{"method": name, "decode": "dual-cache step"} | row for name, (row, _) in steps.items()]
    return SuiteResult(rows, [*checks, Check("feedback cached", _more(steps["vanilla"][1], steps["slerp"][1]))])


def _by_method(decode: Decode, methods: Sequence[str] = tuple(METHODS)) -> dict[str, Decode]:
    return {name: replace(decode, **METHODS[name](decode.rate)) for name in methods}


def _more(vanilla: Sequence[float], slerp: Sequence[float]) -> float:
    """How much longer the second takes, in %: the median over rounds, as a drift in speed affects both of a round."""
    return 100 * (statistics.median(b / a for a, b in zip(vanilla, slerp, strict=True)) - 1)


def cached_steps(bench: Bench, decodes: Mapping[str, Decode]) -> dict[str, tuple[TableRow, list[float]]]:
    """Time of a pass between refreshes, from two decodes of one block that differ only in the number of passes.

    For each decode: its table row, and the seconds of a pass in each round.
    """
    block = bench.sizes.block
    ends = {name: replace(decode, block=block) for name, decode in decodes.items()}
    pairs = {name: (each.ending(block, 1), each.ending(block, bench.sizes.rates[-1])) for name, each in ends.items()}
    bench.say(f"steps of {', '.join(str(slow) for slow, _ in pairs.values())}")
    calls = {(name, n): bench.call(decode) for name, pair in pairs.items() for n, decode in enumerate(pair)}
    times = interleave(calls, bench.model.device, ROUNDS * bench.sizes.repeats, bench.budget)
    return {name: _cached_step(bench, *pair, times[name, 0], times[name, 1]) for name, pair in pairs.items()}


def _cached_step(
    bench: Bench, slow: Decode, quick: Decode, longer: Timings, shorter: Timings
) -> tuple[TableRow, list[float]]:
    more = len(slow.passes()) - len(quick.passes())
    steps = [(a - b) / more for a, b in zip(longer.seconds, shorter.seconds, strict=True)]
    floor = bench.floor(slow, skip=1) / (len(slow.passes()) - 1)
    return pass_row(more, statistics.median(steps), floor, longer), steps


def whole(bench: Bench) -> SuiteResult:
    """Decoding that computes the whole canvas in every pass, compared with the plain loop on the same network."""
    decode, device = bench.decode, bench.model.device
    (prompt,) = prompts(bench.model, 1, decode.prompt)
    times = {"ours": bench.time(decode, 2)}
    plain_loop(bench.model, prompt, decode.new, decode.new, precision=torch.float64)  # one pass as a warm-up
    for name, precision in {"plain loop": None, "plain loop, float64 softmax": torch.float64}.items():
        bench.say(name)
        loop = partial(plain_loop, bench.model, prompt, decode.new, decode.rate, precision=precision)
        times[name] = time_calls(loop, device, 1, bench.budget, warm=False)
    rows: list[TableRow] = [{"loop": name} | bench.row(decode, each) for name, each in times.items()]
    ours = rows[0]
    checks = [
        Check("whole floor", ours["x floor"], decode),
        Check("whole gain", ours["tokens/s"] / rows[1]["tokens/s"]),
    ]
    if bench.dimensions.routed:
        checks.append(Check("whole step", ours["ms a pass"], decode))
    return SuiteResult(rows, checks)


def caches(bench: Bench) -> SuiteResult:
    """Whole decodes with a cache, and single passes between refreshes."""
    second = bench.sizes.rates[1]
    dual = replace(bench.decode, block=bench.sizes.block, cache=Dual())
    decodes = {
        "dual first": dual,
        "dual second": replace(dual, rate=second),
        "prefix first": replace(dual, cache=Prefix()),
        "": replace(dual, feedback=Slerp()),
    }
    rows, checks = [], []
    for target, each in decodes.items():
        row = bench.row(each, bench.time(each, 3))
        rows.append({"cache": title(each.cache), "tokens a step": each.rate, "method": title(each.feedback)} | row)
        checks += [Check(target, row["tokens/s"], each)] if target else []
    ((step, _),) = cached_steps(bench, {"": dual}).values()
    rows.append({"cache": "dual", "tokens a step": "a pass between refreshes", "method": "vanilla"} | step)
    return SuiteResult(rows, [Check("cached floor", step["x floor"], dual), *checks])


def refresh(bench: Bench) -> SuiteResult:
    """Fewer full passes: larger blocks, or `renew`, where only every n-th block starts with the whole canvas."""
    size, new, rates = bench.sizes.block, bench.sizes.new, bench.sizes.rates
    larger = [(size * times, 1) for times in (1, 2, 4, 8) if size * times <= new]
    rarer = [(size, renew) for renew in dict.fromkeys((2, 4, new // size)) if size * renew <= new]
    wanted = [(Dual, *each, rate) for each in (*larger, *rarer) for rate in rates]
    wanted += [(Prefix, *each, rates[0]) for each in rarer]
    rows = []
    for policy, block, renew, rate in wanted:
        decode = replace(bench.decode, rate=rate, block=block, cache=policy(renew=renew))
        once = block * renew >= new  # its one full pass is captured in the second run
        row = bench.row(decode, bench.time(decode, 3 if once else 1))
        rows.append({"cache": policy.kind, "block": block, "renew": renew, "tokens a step": rate} | row)
    note = (
        "renew = n: the whole canvas is computed at the start of every n-th block only. The largest n is once per "
        "decode; its spread includes a capture. docs/caches.md has what this costs in accuracy."
    )
    return SuiteResult(rows, notes=[note])


def batches(bench: Bench) -> SuiteResult:
    """The dual cache in batches: with more rows, passes go from memory-bound to compute-bound."""
    rows, worst = [], None
    for batch in bench.sizes.batches:
        new = bench.sizes.batch_new
        decode = replace(bench.decode, new=new, block=bench.sizes.block, cache=Dual(), batch=batch)
        repeats = max(1, FULL // batch)
        rows.append({"batch": batch} | bench.row(decode, bench.time(decode, repeats)))
        if worst is None or rows[-1]["x floor"] > worst.value:
            worst = Check("batches", rows[-1]["x floor"], decode)
    return SuiteResult(rows, [worst] if worst else [])


SUITES: dict[str, Callable[[Bench], SuiteResult]] = {
    part.__name__: part
    for part in (
        *(ceilings, identical, memory, feedback, whole, caches, public, served, evaluated, fp8, refresh, batches),
        *(problems, growth),
    )
}
