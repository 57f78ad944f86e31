"""Timing of calls, GPU memory, and profiles by group of kernels."""

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
"""Patterns of kernel and operator names; the first that matches counts, all else is "other"."""


FULL = 16
"""Fewest rows to time when sizes are compared: after a compilation a short decode would meet an idle, slow GPU."""
WARM = 2
"""Decodes until every pass is compiled and captured: a shape runs uncaptured once, then it is captured."""


@dataclass
class TimeBudget:
    """Seconds that a bench may take. What was measured before they end is kept."""

    seconds: float
    began: float = 0.0

    def __post_init__(self) -> None:
        self.began = time.monotonic()

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.began)


@dataclass(frozen=True)
class Timings:
    """Seconds of repeated calls of the same function."""

    seconds: tuple[float, ...]
    first: float | None = None
    """Seconds of the warm-up call, which includes compilation and capture."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median."""
        return (max(self.seconds) - min(self.seconds)) / self.median


def time_calls(work: Call, device: torch.device, repeats: int, budget: TimeBudget, warm: bool = True) -> Timings:
    return interleave({"": work}, device, repeats, budget, warm)[""]


def interleave(
    calls: Mapping[Name, Call], device: torch.device, repeats: int, budget: TimeBudget, warm: bool = True
) -> dict[Name, Timings]:
    """Time several functions in turn, so that a drift in the machine's speed affects all; each at least once."""
    first = {name: seconds(work, device) for name, work in calls.items()} if warm else {}
    times: dict[Name, list[float]] = {name: [] for name in calls}
    for number in range(repeats):
        if number and budget.left <= 0:
            break
        for name, work in calls.items():
            times[name].append(seconds(work, device))
    return {name: Timings(tuple(values), first.get(name)) for name, values in times.items()}


def seconds(work: Call, device: torch.device) -> float:
    """Seconds of one call: from CUDA events on a GPU, from the system clock elsewhere."""
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
    """Bytes that a call allocated on a GPU."""

    peak: int
    """Most bytes in use at once, beyond those in use before."""
    largest: int
    """Bytes of the largest single allocation."""


def allocations(work: Call) -> Allocation:
    """Memory that a call takes, from the event history of torch's allocator, which records single allocations."""
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
    """Share of the time of one call by group of kernels (on a CPU: of operators); waiting is the last row."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it logs its start and stop on standard error
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
