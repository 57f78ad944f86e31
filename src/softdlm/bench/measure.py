"""Times, memory, and where the time goes."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

Call = Callable[[], Any]
Name = TypeVar("Name")

GROUPS = {
    "attention": r"flash|fmha|attention|sdpa|^_attend\b",
    "matrix products": r"^_(project|add|gate|gate_up|down|score)\b"
    r"|gem[mv]|cutlass|nvjet|xmma|bmm|::(add)?mm$|mkldnn|linear|grouped|splitk|triton_(tem|mm)",
    "vocabulary and soft tokens": r"^_(scan|finish|soft)\b|topk|softmax|sort|argmax",
    "copies and indexing": r"^(?!triton_).*(copy|memcpy|memset|index|gather|scatter|::cat|catarray|where|fill)",
    "routing of experts": r"^_(route|arrange|total)\b",
    "norms, rotations, activations": r"triton_|elementwise|reduce|norm|silu|::(mul|add|neg|mean|rsqrt|pow|sub|div)",
}
"""Kernels and operators by name, the first that fits; the rest is "other"."""


FULL = 16
"""Rows that are timed at least where sizes are compared: a short decode after its compilation finds a GPU at rest."""
WARM = 2
"""Decodes after which every pass is compiled and captured: a shape runs as it is once, then it is captured."""


@dataclass
class Clock:
    """Time that may be spent; what it ends stays a result."""

    seconds: float
    began: float = 0.0

    def __post_init__(self) -> None:
        self.began = time.monotonic()

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.began)


@dataclass(frozen=True)
class Sample:
    """Seconds of equal calls."""

    seconds: tuple[float, ...]
    first: float | None = None
    """Of the call that warmed up: compilation and capture are in it."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Largest minus smallest, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median


def sample(work: Call, device: torch.device, repeats: int, clock: Clock, warm: bool = True) -> Sample:
    return interleave({"": work}, device, repeats, clock, warm)[""]


def interleave(
    works: Mapping[Name, Call], device: torch.device, repeats: int, clock: Clock, warm: bool = True
) -> dict[Name, Sample]:
    """Time several works in turn, so that a drift of the machine meets them alike; at least once each."""
    first = {name: seconds(work, device) for name, work in works.items()} if warm else {}
    times: dict[Name, list[float]] = {name: [] for name in works}
    for number in range(repeats):
        if number and clock.left <= 0:
            break
        for name, work in works.items():
            times[name].append(seconds(work, device))
    return {name: Sample(tuple(values), first.get(name)) for name, values in times.items()}


def seconds(work: Call, device: torch.device) -> float:
    """Of one call: by events on a GPU's stream, by the clock elsewhere."""
    if device.type != "cuda":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    start.record()
    work()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / 1e3


@dataclass(frozen=True)
class Allocation:
    """Bytes that a call took on a GPU beyond what was there."""

    peak: int
    largest: int
    """Of a single allocation."""


def allocations(work: Call) -> Allocation:
    """By torch's allocator, whose record of events is the only place that knows single allocations."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.cuda.memory._record_memory_history("all", context=None, stacks="python", clear_history=True)
    try:
        work()
        torch.cuda.synchronize()
        traces = torch.cuda.memory._snapshot().get("device_traces", [])
    finally:
        torch.cuda.memory._record_memory_history(None)
    sizes = [event["size"] for trace in traces for event in trace if event["action"] == "alloc"]
    return Allocation(torch.cuda.max_memory_allocated() - before, max(sizes, default=0))


def profile(work: Call, device: torch.device) -> list[dict[str, Any]]:
    """Share of the time of one call by group of kernels (on a CPU: of operators), the waiting last."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it tells standard error that it starts and stops
    from torch.profiler import ProfilerActivity

    for _ in range(WARM):
        work()
    gpu = device.type == "cuda"
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]) as seen:
        total = seconds(work, device)
    spent = dict.fromkeys([*GROUPS, "other"], 0.0)
    for event in seen.key_averages():
        if ("CUDA" in str(event.device_type)) == gpu and not getattr(event, "is_user_annotation", False):
            spent[group(event.key)] += (event.self_device_time_total if gpu else event.self_cpu_time_total) / 1e6
    spent["host, launches and waiting"] = max(0.0, total - sum(spent.values()))
    return [{"where": name, "ms": 1e3 * value, "share, %": 100 * value / total} for name, value in spent.items()]


def group(name: str) -> str:
    return next((known for known, pattern in GROUPS.items() if re.search(pattern, name, re.IGNORECASE)), "other")
