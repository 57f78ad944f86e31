"""One row per CPU core: two rows on a core each finish sooner than one after the other on both cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def rows_apart(device: torch.device) -> bool:
    """Whether this device computes each row of a batch separately."""
    return device.type == "cpu"


def map_parts(function: Callable[[Item], Result], parts: Sequence[Item]) -> list[Result]:
    """`function` of each part of a pass, in order, each on one core. A part alone uses all cores."""
    threads = torch.get_num_threads()
    if len(parts) == 1 or threads == 1:
        return [function(part) for part in parts]
    return list(_workers(threads).map(torch.no_grad()(function), parts))


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    """Worker threads that use one core each.

    torch keeps a thread count per thread, but new threads inherit the last value set anywhere: it is restored here.
    """
    ready = Barrier(threads + 1)

    def begin() -> None:
        torch.get_num_threads()  # the first call copies the global count; made later, it would overwrite the 1
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(threads, "softdlm-row")
    for _ in range(threads):
        pool.submit(begin)
    ready.wait()
    torch.set_num_threads(threads)
    return pool
