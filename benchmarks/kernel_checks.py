"""Is the fused reduction the plain one? Random logits of real and of odd sizes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path[:0] = [str(Path(__file__).parents[1] / "src")]

from softdlm.kernels.vocabulary_triton import Tuning, reduce_triton  # noqa: E402
from softdlm.predict import Sampling, reduce_logits  # noqa: E402

DEVICE = os.environ.get("SOFTDLM_TEST_DEVICE", "cuda")


def random_logits(rows: int, columns: int, seed: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Flat and peaked rows by turns: one id leads by 0 to 40 nats. In bfloat16 many logits tie."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    logits = torch.randn(rows, columns, device=DEVICE, generator=generator, dtype=torch.bfloat16) * 2.5
    leader = torch.randint(0, columns, (rows, 1), device=DEVICE, generator=generator)
    lead = torch.linspace(0, 40, rows, device=DEVICE)[:, None].to(torch.bfloat16)
    return logits.scatter_add_(1, leader, lead).to(dtype)


def policy(columns: int, k: int) -> Sampling:
    return Sampling(columns - 128, forbid=(7, columns - 1), last=(columns - 383, columns - 116), k=k)


def compare(logits: Tensor, sampling: Sampling, tuning: Tuning = Tuning()) -> dict[str, float]:
    """Differences from the plain path, and ids that a stable order would not give."""
    special = sampling.special(logits.device)
    ours, plain = reduce_triton(logits, special, sampling.k, tuning), reduce_logits(logits, sampling)
    allowed = logits.clone()
    allowed[:, [sampling.mask_id, *sampling.forbid]] = float("-inf")
    values = allowed.gather(1, ours.topk_ids)
    expected = allowed.topk(min(sampling.k, logits.shape[1]), dim=1).values
    possible = ~expected.isneginf()
    first = torch.where(allowed == expected[:, :1], torch.arange(logits.shape[1], device=DEVICE), logits.shape[1]).amin(
        1
    )
    disorder = (values[:, 1:] == values[:, :-1]) & (ours.topk_ids[:, 1:] <= ours.topk_ids[:, :-1]) & possible[:, 1:]
    report: dict[str, float] = {
        "tokens not the first best": int((ours.token != first).sum()),
        "tokens not plain's": int((ours.token != plain.token).sum()),
        "candidates not of the best values": int(((values != expected) & possible).sum()),
        "ties out of order": int(disorder.sum()),
    }
    for field, small in (("log_confidence", 1e-6), ("entropy", 0.1), ("one_minus_margin", 1e-6), ("topk_probs", 1e-6)):
        report[field] = difference(getattr(ours, field), getattr(plain, field), small)
    return report


def difference(ours: Tensor, reference: Tensor, small: float) -> float:
    """Largest |a - b| / (|b| + small), infinities and NaN having to agree.

    An entropy is the difference of two large numbers where [MASK] is far on top: no more than absolutely right.
    """
    same = (ours == reference) | (ours.isnan() & reference.isnan())
    return float(torch.where(same, 0, (ours - reference).abs() / (reference.abs() + small)).nan_to_num(nan=1e9).max())


def verdict(report: dict[str, float], tolerance: float = 1e-4) -> bool:
    counts = [name for name in report if " " in name and name != "tokens not plain's"]
    return all(report[name] == 0 for name in counts) and all(
        value < tolerance for name, value in report.items() if " " not in name
    )


def small_problems(count: int = 40) -> dict[str, Any]:
    """Odd widths, ties, hardly any finite logit, [MASK] on top, policies, all types: the compiled kernel on each."""
    worst: dict[str, float] = {}
    for seed in range(count):
        rng = torch.Generator().manual_seed(seed)
        pick = lambda values: values[int(torch.randint(0, len(values), (1,), generator=rng))]  # noqa: E731, B023
        columns = pick([37, 1008, 2999])
        logits = torch.randn(3, columns, generator=rng) * pick([0.01, 1.0, 5.0, 40.0]) + pick([0.0, -300.0, 3e3])
        logits = (logits / 3).round() * 3 if pick([True, False]) else logits
        ids = torch.randperm(columns, generator=rng).tolist()
        if pick([True, False]):
            finite = torch.rand(3, columns, generator=rng) < 0.01
            finite[:, ids[1]] = True
            logits = logits.masked_fill(~finite, float("-inf"))
        logits[:, ids[0]] += pick([0.0, 10.0, 200.0])
        sampling = Sampling(ids[0], tuple(ids[2 : pick([2, 3])]), tuple(ids[3 : pick([3, 4])]), k=pick([1, 3, 16]))
        dtype = pick([torch.bfloat16, torch.float32]) if seed else torch.float16
        found = compare(logits.to(dtype).to(DEVICE), sampling, Tuning(tile=1024, warps=4, programs=pick([1, 9])))
        worst = {name: max(value, worst.get(name, 0)) for name, value in found.items()}
    return worst | {"problems": count, "right": verdict(worst), "a NaN is seen": nan_is_seen()}


def nan_is_seen() -> bool:
    """A broken logit shows in the numbers; only a GPU can tell, the interpreter's maximum knows NaN anyhow."""
    logits = random_logits(4, 3008, 1)
    logits[:, 1234] = float("nan")
    ours = reduce_triton(logits, policy(3008, 3).special(logits.device), 3)
    numbers = torch.cat([ours.log_confidence, ours.entropy, ours.one_minus_margin, ours.topk_probs.flatten()])
    return bool(numbers.isnan().all() and (ours.topk_ids >= 0).all() and (ours.topk_ids < 3008).all())


def ring(rows: int, columns: int) -> list[Tensor]:
    """Buffers that together exceed the cache several times."""
    count = max(2, min(24, 300 * 2**20 // (rows * columns * 2)))
    return [random_logits(rows, columns, seed) for seed in range(count)]
