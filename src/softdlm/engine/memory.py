"""Memory that requests need, counted before it is used."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

from softdlm.engine.plan import Plan
from softdlm.predict import CHUNK_ELEMENTS, fused
from softdlm.types import first_memory

SHARE = 0.9
"""Of the memory that is free when an engine starts, what it may use."""
CANDIDATE_BYTES = 128
"""Of one recorded candidate on the host: a pair of numbers in a list."""
POSITION_BYTES = 160
"""Of what is recorded beside a position's candidates: entropy, the list itself, whether its input was soft."""
UPDATE_COPIES = 6
"""Of a rule's memory while it is updated: the next one, and what is computed on the way to it."""


class Need(NamedTuple):
    """Bytes of a number of rows of one plan and length."""

    canvas: int
    """Canvas, embeddings, history and the rules' memories."""
    keys_values: int
    a_pass: int
    """What one pass computes and frees again: an estimate."""

    @property
    def total(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        parts = {"canvas": self.canvas, "keys and values": self.keys_values, "a pass": self.a_pass}
        named = ", ".join(f"{name} {gib(size)}" for name, size in parts.items() if size)
        return f"{gib(self.total)} ({named})"


def need(plan: Plan, rows: int, length: int) -> Need:
    """What rows of this length take."""
    keys_values = 0 if plan.caching.policy is None else length * plan.model.position_bytes()
    return Need(rows * row_bytes(plan, length), rows * keys_values, pass_bytes(plan, rows, length))


def row_bytes(plan: Plan, length: int) -> int:
    """One row's buffers but for keys and values: `engine.state.Buffers` lists them."""
    model, rules = plan.model, (plan.commit, plan.feedback)
    history = 8 + torch.promote_types(model.dtype, torch.float32).itemsize
    position = 8 + 3 + model.embedding.shape[1] * model.dtype.itemsize + history
    return length * position + sum(memory_bytes(rule, length, len(model.embedding)) for rule in rules)


def memory_bytes(rule: Any, length: int, vocabulary: int) -> int:
    """One row's memory of a rule, counted on the meta device, which allocates nothing."""
    memory = first_memory(rule, 1, length, torch.device("meta"), vocabulary)
    return sum(tensor.nbytes for tensor in memory.values())


def pass_bytes(plan: Plan, rows: int, length: int) -> int:
    """Activations of the network and the largest chunk of logits; more for rules that need the full distribution."""
    model, positions = plan.model, rows * length
    vocabulary = len(model.embedding)
    chunk = min(positions * vocabulary, max(CHUNK_ELEMENTS, vocabulary))
    wide = 8 if model.dtype == torch.float64 else 4
    copies = model.dtype.itemsize + (0 if fused(plan.sampling, model.device, model.dtype) else 6 * wide)
    whole = 3 * positions * vocabulary * wide if "probs" in plan.sampling.needs else 0
    whole += UPDATE_COPIES * rows * sum(memory_bytes(rule, length, vocabulary) for rule in (plan.commit, plan.feedback))
    pattern = positions * length * (1 + model.dtype.itemsize)
    return model.working_bytes(positions) + chunk * copies + whole + pattern


def recording_bytes(passes: int, open: int, k: int) -> int:
    """Host memory of recorded candidates: at each pass those of the positions still open, half of all on average."""
    return passes * open // 2 * (k * CANDIDATE_BYTES + POSITION_BYTES)


def available(device: torch.device) -> int:
    """Bytes that may be used: a share of what is free now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(SHARE * (free + idle))
    return int(SHARE * host_memory())


def host_memory() -> int:
    """Free memory of the machine as Linux counts it, else all of it; where nobody says, no limit."""
    listing = Path("/proc/meminfo")
    if listing.exists():
        lines = dict(line.split(":", 1) for line in listing.read_text().splitlines() if ":" in line)
        if "MemAvailable" in lines:
            return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else sys.maxsize


def gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**27 else f"{size / 2**20:.1f} MiB"
