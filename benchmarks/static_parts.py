"""What static_step.py measures: LLaDA-8B's shape with random bfloat16 weights, batch 1."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from gpu_check import DATA, IDS, LLADA_8B
from gpu_timing import graph as graph_time
from torch import Tensor

import softdlm
from softdlm import Additive, Canvas, EntropyBound, Mask, Slerp, Threshold, TopN
from softdlm.decode import denoise, plan_decode
from softdlm.engine.captured import Slots
from softdlm.models import llada
from softdlm.models.compiled import compile_fixed
from softdlm.models.denoiser import NetworkDenoiser

PROMPT, NEW, BLOCK = 1024, 512, 32
RULES = {"vanilla": Mask(), "slerp": Slerp(k=3, lam=0.3)}
WAYS = ("dynamic", "static, eager", "captured", "captured, layers compiled", "captured, all compiled")
DEVICE = "cuda"


@cache
def model() -> NetworkDenoiser:
    """LLaDA-8B's shape, initialised on the device."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(DEVICE):
            network = llada.network(LLADA_8B)
    finally:
        torch.set_default_dtype(torch.float32)
    ids = {"mask_id": LLADA_8B["mask_token_id"], "eos_ids": (LLADA_8B["eos_token_id"],)}
    return NetworkDenoiser(network, max_length=4096, **ids)


@cache
def compiled() -> Any:
    return model().compiled()


def prompt(length: int = PROMPT) -> list[int]:
    return torch.randint(0, 126_000, (length,), generator=torch.Generator().manual_seed(length)).tolist()


def canvas() -> Canvas:
    return Canvas.pack([prompt()], [PROMPT + NEW], model().mask_id, 0).to(DEVICE)


def slots(way: str, **options: Any) -> Slots:
    plan = plan_decode(model(), **options)
    plan = replace(plan, model=compiled()) if "compiled" in way else plan
    around = compile_fixed if "all compiled" in way else None
    made = Slots(plan, 1, PROMPT + NEW, capture=way.startswith("captured"), compile=around)
    made.admit([0], canvas())
    return made


def tokens() -> dict[str, Any]:
    """On tiny checkpoints: answers whose tokens and passes are those of the dynamic engine, a ragged queue each time.

    All of them in float64; in float32 soft tokens of a random network soon enlarge a difference in rounding.
    """
    slerp, plain, mean = (Threshold(0.5), Slerp()), (TopN(2), Mask()), (EntropyBound(0.4), Additive())
    double = [("llada", rules, kind) for rules in (slerp, plain, mean) for kind in (None, "dual")]
    double += [("llada", slerp, "prefix"), ("dream", slerp, None), ("dream", slerp, "prefix"), ("dream", mean, "dual")]
    single = [("llada", plain, None), ("llada", plain, "dual"), ("llada", slerp, None), ("dream", plain, "dual")]
    found = {_label("float64", *case): _agreement("float64", *case) for case in double}
    return found | {_label("float32", *case): _agreement("float32", *case) for case in single}


def _label(dtype: str, family: str, rules: Any, kind: str | None) -> str:
    return f"{dtype} {family} {type(rules[0]).__name__} {type(rules[1]).__name__} {kind or 'no cache'}"


def _agreement(dtype: str, family: str, rules: Any, kind: Any) -> str:
    tiny = softdlm.load(DATA / family, device=DEVICE, dtype=dtype, **IDS[family])
    prompts = [[token % 140 + 3 for token in prompt(length)] for length in (9, 16, 12, 14, 14)]
    options: Any = {"commit": rules[0], "feedback": rules[1], "block_length": 16, "cache": kind}
    options |= {"max_new_tokens": 48, "batch_size": 3}
    ways = [softdlm.generate(tiny, prompts, engine=way, **options) for way in ("dynamic", "static")]
    same = [(a.canvas_ids, a.forwards) == (b.canvas_ids, b.forwards) for a, b in zip(*ways, strict=True)]
    return f"{sum(same)} of {len(same)}"


def waits() -> dict[str, Any]:
    """Passes that make the host wait are errors here."""
    found: dict[str, Any] = {}
    for name, rule in RULES.items():
        for kind in (None, "prefix", "dual"):
            made = slots("static, eager", commit=TopN(1), feedback=rule, block_length=BLOCK, cache=kind)
            for _ in range(2):
                made.step()
            try:
                torch.cuda.set_sync_debug_mode("error")
                made._pass(made.shape)
                found[f"{name} {kind}"] = "none"
            except RuntimeError as error:
                found[f"{name} {kind}"] = str(error).splitlines()[0]
            finally:
                torch.cuda.set_sync_debug_mode("default")
    return found


def floor(rows: int, head_rows: int) -> float:
    """Milliseconds of the network's matrix products alone, in a captured graph."""
    network = model().network
    inputs = {width: torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16) for width in (4096, 12288)}
    head = inputs[4096][:1].expand(head_rows, -1).contiguous()
    linear = [part for part in network.model.modules() if isinstance(part, torch.nn.Linear)]

    def products() -> list[Tensor]:
        for part in linear:
            part(inputs[part.in_features])
        return [network.lm_head(head)]

    return graph_time([products], repeats=5) / 1000


def floors() -> dict[str, float]:
    return {"whole": floor(PROMPT + NEW, NEW), "block": floor(BLOCK, BLOCK)}


def step_times(way: str, kind: Any, rule: Any, repeats: int) -> dict[str, Any]:
    """Median milliseconds by kind of pass. With a cache, refresh=2 makes every other pass a whole one."""
    options: Any = {"commit": TopN(1), "feedback": rule, "cache": kind}
    options |= {"block_length": BLOCK, "refresh": 2} if kind else {}
    begun = time.perf_counter()
    times: dict[str, list[float]] = {"whole": [], "block": []}
    for number, (label, milliseconds) in enumerate(timed(way, options, (6 + repeats) * (2 if kind else 1))):
        if number >= (12 if kind else 6):
            times[label].append(milliseconds)
    found: dict[str, Any] = {label: statistics.median(each) for label, each in times.items() if each}
    return found | {"warm-up and all, seconds": round(time.perf_counter() - begun, 1)}


def timed(way: str, options: Any, count: int) -> Iterator[tuple[str, float]]:
    def clock(work: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1000

    if way == "dynamic":
        steps = denoise(model(), canvas(), **options)
        for number in range(count):
            yield "block" if options["cache"] and number % 2 else "whole", clock(lambda: next(steps))
        return
    made = slots(way, **options)
    for _ in range(count):
        yield "whole" if made.shape.width is None else "block", clock(made.step)


def steps(way: str, repeats: int = 8) -> dict[str, Any]:
    return {
        f"{rule} {kind or 'no cache'}": step_times(way, kind, RULES[rule], repeats)
        for kind in (None, "dual")
        for rule in RULES
    }


def memory() -> dict[str, Any]:
    """MiB at most, beyond the weights and the keys and values, while passes are warmed up, captured and replayed."""
    found: dict[str, Any] = {}
    weights = sum(parameter.nbytes for parameter in model().network.parameters())
    for kind in (None, "dual"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() - weights
        made = slots("captured", commit=TopN(16), feedback=RULES["slerp"], cache=kind, block_length=BLOCK)
        kept = made.plan.caching.memory
        recalled = sum(tensor.nbytes for tensor in (*kept.keys, *kept.values)) if kept else 0
        while made.running:
            made.step()
        beyond = weights + recalled + before
        found[kind or "no cache"] = {
            "allocated": (torch.cuda.max_memory_allocated() - beyond) / 2**20,
            "reserved": (torch.cuda.max_memory_reserved() - beyond) / 2**20,
            "graphs": len(made.passes.graphs),
            "keys and values": recalled / 2**20,
        }
        del made, kept
    return found


def decodes(engine: Any) -> dict[str, Any]:
    """Tokens per second of whole answers; a static engine's second run finds its passes captured."""
    found: dict[str, Any] = {}
    for kind in ("dual", None):
        for count in (8, 4):
            options: Any = {"commit": TopN(count), "feedback": RULES["slerp"], "cache": kind, "eos": "forbid"}
            options |= {"block_length": BLOCK if kind else None, "max_new_tokens": NEW}
            for run in ("once",) if engine == "dynamic" else ("first", "second"):
                begun = time.perf_counter()
                answer = softdlm.generate(model(), prompt(), engine=engine, **options)
                assert len(answer.ids) == NEW
                found[f"{kind or 'no cache'}, {count} a step, {answer.forwards} passes, {run}"] = _rate(begun)
    model().kept.clear()
    return found


def _rate(begun: float) -> dict[str, float]:
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    return {"seconds": round(seconds, 2), "tokens per second": round(NEW / seconds, 1)}


def queues() -> dict[str, Any]:
    """Twelve ragged prompts through four slots, beside batches of four."""
    prompts = [prompt(length) for length in (200, 220, 240, 210, 230, 250, 205, 225, 245, 215, 235, 255)]
    options: Any = {"commit": Threshold(0.0001), "feedback": RULES["slerp"], "cache": "dual", "block_length": BLOCK}
    found = {}
    for engine in ("dynamic", "static"):
        begun = time.perf_counter()
        answers = softdlm.generate(model(), prompts, engine=engine, batch_size=4, max_new_tokens=128, **options)
        torch.cuda.synchronize()
        forwards = sum(answer.forwards for answer in answers)
        found[engine] = {"seconds": round(time.perf_counter() - begun, 2), "passes of rows": forwards}
    model().kept.clear()
    return found
