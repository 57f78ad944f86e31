"""The device's highest rates (ceilings), and the shortest possible time of a pass that follows from them (floor).

The floor of a pass is the sum of three parts. Each part takes the longer of two times: its operations at the fastest
matrix product measured here, and its bytes at the bandwidth of a copy measured here, both kept up for two seconds.

    products   2 x weights x positions operations (with experts: the chosen ones only);
               every weight is read once (with experts: those that some position chose, if all are equally likely)
    attention  4 x heads x head width x queries x keys operations per layer; all keys and values are read once
    head       2 x width x vocabulary x rows operations; its matrix is read once

Everything else (norms, rotations, activations, the vocabulary reduction, soft tokens, launches) counts as zero: a
perfect implementation would hide it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from softdlm.bench.measure import TimeBudget, seconds, time_calls
from softdlm.bench.workload import PassSize
from softdlm.models.denoiser import NetworkDenoiser

COPY_BYTES = {"cuda": 2**31, "cpu": 2**28}
SQUARE = {"cuda": 8192, "cpu": 1024}
SUSTAINED = {"cuda": 2.0, "cpu": 0.2}
"""Seconds for which a rate is kept up before it counts."""


@dataclass(frozen=True)
class Dimensions:
    """The dimensions of a network that its floors depend on."""

    layers: int
    width: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_width: int
    itemsize: int
    dense: int
    """Weights of the layers that every position uses. Input table, head and routed experts are not included."""
    dense_bytes: int
    routed: int = 0
    """Weights of all routed experts."""
    chosen: float = 0.0
    """Share of the experts that one position uses."""

    @staticmethod
    def of(model: NetworkDenoiser) -> Dimensions:
        config = model.network.config
        named = dict(model.network.model.named_parameters())
        body = {name: value for name, value in named.items() if name != "embed_tokens.weight"}
        routed = [value for value in body.values() if value.ndim == 3]
        dense = [value for value in body.values() if value.ndim < 3]
        return Dimensions(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            vocabulary=config.vocab_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_width=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            itemsize=model.embedding.element_size(),
            dense=sum(value.numel() for value in dense if value.ndim == 2),
            dense_bytes=sum(value.nbytes for value in dense),
            routed=sum(value.numel() for value in routed),
            chosen=config.num_experts_per_tok / config.n_routed_experts if routed else 0.0,
        )

    def memory_bytes(self, batch: int, length: int) -> int:
        """Bytes of the keys and values of a batch."""
        return 2 * self.layers * self.kv_heads * self.head_width * self.itemsize * batch * length

    def operations(self, work: PassSize) -> dict[str, float]:
        positions = work.batch * work.queries
        return {
            "products": 2 * (self.dense + self.routed * self.chosen) * positions,
            "attention": 4 * self.layers * self.heads * self.head_width * positions * work.keys,
            "head": 2 * self.width * self.vocabulary * work.batch * work.rows,
        }

    def bytes(self, work: PassSize) -> dict[str, float]:
        met = 1 - (1 - self.chosen) ** (work.batch * work.queries)
        return {
            "products": self.dense_bytes + self.routed * self.itemsize * met,
            "attention": self.memory_bytes(work.batch, work.keys),
            "head": self.width * self.vocabulary * self.itemsize if work.rows else 0,
        }


@dataclass(frozen=True)
class Ceilings:
    rate: float
    """Operations per second of the fastest matrix product, sustained."""
    bandwidth: float
    """Bytes per second of a sustained copy, reads plus writes."""

    def floor(self, dimensions: Dimensions, passes: Iterable[PassSize]) -> float:
        """Shortest possible time of these passes, in seconds."""
        return sum(sum(self.floors(dimensions, each).values()) for each in passes)

    def floors(self, dimensions: Dimensions, work: PassSize) -> dict[str, float]:
        """Seconds of each part of a pass: products, attention and head."""
        operations, moved = dimensions.operations(work), dimensions.bytes(work)
        return {part: max(operations[part] / self.rate, moved[part] / self.bandwidth) for part in operations}

    def bound(self, dimensions: Dimensions, work: PassSize) -> str:
        """Whether operations ("compute") or bytes ("memory") limit the pass."""
        operations, moved = sum(dimensions.operations(work).values()), sum(dimensions.bytes(work).values())
        return "compute" if operations / self.rate > moved / self.bandwidth else "memory"


def product_sizes(dimensions: Dimensions, config: Any, positions: int, rows: int) -> dict[str, tuple[int, int, int]]:
    """The matrix products of a pass, as (m, k, n)."""
    width, inner = dimensions.width, config.intermediate_size
    return {
        "query": (positions, width, dimensions.heads * dimensions.head_width),
        "feed-forward up": (positions, width, inner),
        "feed-forward down": (positions, inner, width),
        "head": (rows, width, dimensions.vocabulary),
    }


def measure_ceilings(
    model: NetworkDenoiser, positions: int, rows: int, budget: TimeBudget
) -> tuple[Ceilings, list[dict[str, Any]]]:
    """The ceilings of the model's device in the model's dtype, and a table row for each measurement."""
    device = model.device
    side = SQUARE.get(device.type, 1024)
    sizes = product_sizes(Dimensions.of(model), model.network.config, positions, rows) | {"square": (side,) * 3}
    found, products = [], {}
    for name, (m, k, n) in sizes.items():
        left, right = (torch.randn(size, device=device, dtype=model.dtype) for size in ((m, k), (n, k)))
        work, count = partial(torch.nn.functional.linear, left, right), 2 * m * k * n
        spent = _best(work, device, budget)
        products[count / spent] = count, work
        found.append({"ceiling": f"{name} {m} x {k} x {n}", "ms": 1e3 * spent, "TFLOP/s": count / spent / 1e12})
    count, work = products[max(products)]
    spent = _sustained(work, device)
    rate = count / spent
    found.append({"ceiling": "the fastest of them, sustained", "ms": 1e3 * spent, "TFLOP/s": rate / 1e12})
    size = COPY_BYTES.get(device.type, 2**28)
    there = torch.empty(size, dtype=torch.uint8, device=device)
    spent = _sustained(partial(there.copy_, torch.zeros_like(there)), device)
    bandwidth = 2 * size / spent
    found.append({"ceiling": f"copy of {size / 2**30:g} GiB, sustained", "ms": 1e3 * spent, "TB/s": bandwidth / 1e12})
    return Ceilings(rate, bandwidth), found


def _sustained(work: Any, device: torch.device) -> float:
    """Seconds of one call while calls follow one another for some seconds, after which a GPU's clock has settled."""
    lasting = SUSTAINED.get(device.type, 0.2)
    once = max(seconds(work, device), 1e-7)
    group = max(1, math.ceil(0.1 * lasting / once))

    def many() -> None:
        for _ in range(group):
            work()

    times = [seconds(many, device)]
    while sum(times) < lasting:
        times.append(seconds(many, device))
    return statistics.median(times[len(times) // 2 :]) / group


def _best(work: Any, device: torch.device, budget: TimeBudget) -> float:
    """Seconds of one call: the fastest of several runs, each with enough calls to last about 20 ms."""
    once = time_calls(work, device, 1, budget).median
    calls = max(1, min(50, math.ceil(0.02 / max(once, 1e-7))))

    def many() -> None:
        for _ in range(calls):
            work()

    return min(time_calls(many, device, 7, budget, warm=False).seconds) / calls
