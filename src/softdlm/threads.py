"""Rows of a batch on the cores of a CPU: two rows on two cores are done sooner than one after the other on both."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

Result = TypeVar("Result")


def rows_apart(device: torch.device) -> bool:
    """Whether this device computes the rows of a batch each by itself."""
    return device.type == "cpu"


def map_rows(function: Callable[[Int[Tensor, "1"]], Result], rows: Int[Tensor, "N"]) -> list[Result]:
    """`function` of each row's number, in order. One row alone has all the cores."""
    threads = torch.get_num_threads()
    if len(rows) == 1 or threads == 1:
        return [function(row) for row in rows.split(1)]
    return list(_workers(threads).map(torch.no_grad()(function), rows.split(1)))


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    """One core each. torch keeps the count per thread but hands the last one set to new threads: put it back."""
    ready = Barrier(threads + 1)

    def begin() -> None:
        torch.get_num_threads()  # a thread takes the common count when it first asks; asked later, it would undo the 1
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(threads, "softdlm-row")
    for _ in range(threads):
        pool.submit(begin)
    ready.wait()
    torch.set_num_threads(threads)
    return pool
