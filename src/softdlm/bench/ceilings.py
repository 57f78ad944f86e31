"""What the device can do at best, and hence what a pass takes at least.

A pass is layers one after another, and after them the LM head. Its floor is the sum over three parts, each the longer
of its operations at the best matrix-product rate measured here and its bytes at the copy bandwidth measured here:

    products   2 x weights x positions operations (of the experts only the chosen ones);
               every weight is read once (of the experts those that some position chose, drawn evenly)
    attention  4 x heads x head width x queries x keys operations a layer; keys and values of all keys are read once
    head       2 x width x vocabulary x rows operations; its matrix is read once

Everything else (norms, rotations, activations, the vocabulary reduction, soft tokens, launches) has no floor of its
own: a perfect implementation would hide it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from softdlm.bench.measure import Clock, sample
from softdlm.bench.workload import Work
from softdlm.models.denoiser import NetworkDenoiser

COPY_BYTES = {"cuda": 2**31, "cpu": 2**28}
SQUARE = {"cuda": 8192, "cpu": 1024}


@dataclass(frozen=True)
class Geometry:
    """What of a network its floors depend on."""

    layers: int
    width: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_width: int
    itemsize: int
    dense: int
    """Weights of the layers that every position meets; input table, head and routed experts are counted apart."""
    dense_bytes: int
    routed: int = 0
    """Weights of all routed experts."""
    chosen: float = 0.0
    """Share of the experts that one position meets."""

    @staticmethod
    def of(model: NetworkDenoiser) -> Geometry:
        config = model.network.config
        named = dict(model.network.model.named_parameters())
        body = {name: value for name, value in named.items() if name != "embed_tokens.weight"}
        routed = [value for value in body.values() if value.ndim == 3]
        dense = [value for value in body.values() if value.ndim < 3]
        return Geometry(
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
        """Keys and values of a batch."""
        return 2 * self.layers * self.kv_heads * self.head_width * self.itemsize * batch * length

    def operations(self, work: Work) -> dict[str, float]:
        positions = work.batch * work.queries
        return {
            "products": 2 * (self.dense + self.routed * self.chosen) * positions,
            "attention": 4 * self.layers * self.heads * self.head_width * positions * work.keys,
            "head": 2 * self.width * self.vocabulary * work.batch * work.rows,
        }

    def bytes(self, work: Work) -> dict[str, float]:
        met = 1 - (1 - self.chosen) ** (work.batch * work.queries)
        return {
            "products": self.dense_bytes + self.routed * self.itemsize * met,
            "attention": self.memory_bytes(work.batch, work.keys),
            "head": self.width * self.vocabulary * self.itemsize if work.rows else 0,
        }


@dataclass(frozen=True)
class Ceilings:
    rate: float
    """Operations a second of the fastest matrix product."""
    bandwidth: float
    """Bytes a second, read and written, of a copy."""

    def floor(self, geometry: Geometry, works: Iterable[Work]) -> float:
        """Seconds that these passes take at least."""
        return sum(sum(self.parts(geometry, work).values()) for work in works)

    def parts(self, geometry: Geometry, work: Work) -> dict[str, float]:
        operations, moved = geometry.operations(work), geometry.bytes(work)
        return {part: max(operations[part] / self.rate, moved[part] / self.bandwidth) for part in operations}

    def bound(self, geometry: Geometry, work: Work) -> str:
        """Which of the two floors the pass rests on."""
        operations, moved = sum(geometry.operations(work).values()), sum(geometry.bytes(work).values())
        return "compute" if operations / self.rate > moved / self.bandwidth else "memory"


def product_sizes(geometry: Geometry, config: Any, positions: int, rows: int) -> dict[str, tuple[int, int, int]]:
    """The matrix products of a pass, (m, k, n), and a large square one."""
    width, inner = geometry.width, config.intermediate_size
    return {
        "query": (positions, width, geometry.heads * geometry.head_width),
        "feed-forward up": (positions, width, inner),
        "feed-forward down": (positions, inner, width),
        "head": (rows, width, geometry.vocabulary),
    }


def measure_ceilings(
    model: NetworkDenoiser, positions: int, rows: int, clock: Clock
) -> tuple[Ceilings, list[dict[str, Any]]]:
    """The ceilings of the model's device in its type, and a row for everything measured."""
    device = model.device
    side = SQUARE.get(device.type, 1024)
    sizes = product_sizes(Geometry.of(model), model.network.config, positions, rows) | {"square": (side,) * 3}
    found, rates = [], []
    for name, (m, k, n) in sizes.items():
        left, right = (torch.randn(size, device=device, dtype=model.dtype) for size in ((m, k), (n, k)))
        seconds = _best(partial(torch.nn.functional.linear, left, right), device, clock)
        rates.append(2 * m * k * n / seconds)
        found.append({"ceiling": f"{name} {m} x {k} x {n}", "ms": 1e3 * seconds, "TFLOP/s": rates[-1] / 1e12})
    size = COPY_BYTES.get(device.type, 2**28)
    there = torch.empty(size, dtype=torch.uint8, device=device)
    seconds = _best(partial(there.copy_, torch.zeros_like(there)), device, clock)
    bandwidth = 2 * size / seconds
    found.append({"ceiling": f"copy of {size / 2**30:g} GiB", "ms": 1e3 * seconds, "TB/s": bandwidth / 1e12})
    return Ceilings(max(rates), bandwidth), found


def _best(work: Any, device: torch.device, clock: Clock) -> float:
    """Seconds of one call: the fastest of several runs, each of so many calls that it can be timed well."""
    once = sample(work, device, 1, clock).median
    calls = max(1, min(50, math.ceil(0.02 / max(once, 1e-7))))

    def many() -> None:
        for _ in range(calls):
            work()

    return min(sample(many, device, 7, clock, warm=False).seconds) / calls
