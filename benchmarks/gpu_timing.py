"""Times of GPU work: medians of CUDA events after a warm-up, with launches (eager) or without (a captured graph)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch


def eager(calls: Sequence[Callable[[], Any]], repeats: int = 7) -> float:
    """Microseconds of one call."""
    for call in calls:
        call()
    return _median(lambda: [call() for call in calls], repeats) / len(calls)


def graph(calls: Sequence[Callable[[], Any]], repeats: int = 15) -> float:
    """Microseconds of one call inside a captured graph."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for call in calls:
            call()
    captured.replay()
    return _median(captured.replay, repeats) / len(calls)


def _median(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1000)
    return statistics.median(times)


def peak(work: Callable[[], Any]) -> int:
    """Bytes allocated at most while it ran, on top of what was there."""
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before
