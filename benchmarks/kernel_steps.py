"""The soft-embedding kernel beside its rules in torch, and a whole step in a captured graph."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import torch
from gpu_timing import eager, graph, peak
from kernel_checks import DEVICE, policy, random_logits
from torch import Tensor

import softdlm
from softdlm.feedback import ArcRule
from softdlm.kernels import soft
from softdlm.kernels.vocabulary_triton import reduce_triton
from softdlm.types import Context, Embeddings, Prediction

VOCABULARY, WIDTH = 126_464, 4096
CANVASES = ((1, 32), (1, 512), (8, 256))
RULES: tuple[ArcRule, ...] = (
    softdlm.Slerp(k=3, lam=0.3),
    softdlm.Slerp(k=8, lam=0.3, norm="candidate"),
    softdlm.Euclidean(k=3, lam=0.3),
    softdlm.Euclidean(k=3, lam=0.3, norm="mask"),
)
COMMITS = (
    softdlm.TopN(2),
    softdlm.Threshold(0.9),
    softdlm.EntropyBound(0.1),
    softdlm.Factor(1.0),
    softdlm.Steps(8),
    softdlm.Steps(8, schedule="eps"),
)


def softs() -> list[dict[str, Any]]:
    table = torch.randn(VOCABULARY, WIDTH, device=DEVICE, dtype=torch.bfloat16) * 0.02
    embeddings, found = Embeddings(table, table[-1]), []
    for (batch, length), rule in product(CANVASES, RULES):
        prediction, context, chosen = scene(batch, length)
        embeds = torch.randn(batch, length, WIDTH, device=DEVICE, dtype=torch.bfloat16)
        expected, kernel = embeds.clone(), partial(soft.write_soft, rule, prediction, embeddings, chosen, embeds)
        plain = partial(_plain_soft, rule, prediction, embeddings, context, chosen, expected)
        kernel()
        plain()
        gap = (embeds.float() - expected.float()).abs().max() / expected.float().abs().max()
        case: dict[str, Any] = {"positions": batch * length, "rule": str(rule), "difference": float(gap)}
        case |= {
            "right": bool(gap < 0.01 and torch.equal(embeds[~chosen], expected[~chosen])),
            "peak bytes": peak(kernel),
        }
        case |= {
            "kernel (graph)": graph([kernel] * 8),
            "kernel (eager)": eager([kernel]),
            "plain (eager)": eager([plain]),
        }
        found.append(case)
        print("soft", {name: round(value, 4) if isinstance(value, float) else value for name, value in case.items()})
    return found


def _plain_soft(rule: Any, prediction: Any, embeddings: Any, context: Any, chosen: Tensor, embeds: Tensor) -> None:
    embeds[chosen] = rule(prediction.at(chosen), embeddings, context.at(chosen))


def scene(batch: int, length: int, k: int = 8) -> tuple[Prediction, Context, Tensor]:
    chosen = torch.rand(batch, length, device=DEVICE) < 0.8
    logits = random_logits(batch * length, VOCABULARY, 3)
    flat = reduce_triton(logits, policy(VOCABULARY, k).special(logits.device), k)
    spread = Prediction(**{name: value.unflatten(0, (batch, length)) for name, value in flat._values().items()})
    count = torch.full((batch, 1), 4, device=DEVICE)
    return spread, Context(count, count, count, count, count), chosen


def captured_step() -> dict[str, Any]:
    """Reduction, commit and soft tokens: nothing waits for the host, and a replayed graph does what eager calls do."""
    found: dict[str, Any] = {}
    _, context, chosen = scene(2, 64)
    logits = random_logits(128, VOCABULARY, 5)
    special = policy(VOCABULARY, 3).special(logits.device)
    table = torch.randn(VOCABULARY, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    embeds = torch.zeros(2, 64, WIDTH, device=DEVICE, dtype=torch.bfloat16)

    def step(commit: Any) -> Tensor:
        flat = reduce_triton(logits, special, 3)
        seen = Prediction(**{name: value.unflatten(0, (2, 64)) for name, value in flat._values().items()})
        hard = commit(seen, chosen, context)
        soft.write_soft(RULES[0], seen, Embeddings(table, table[-1]), chosen & ~hard, embeds)
        return hard

    for commit in COMMITS:
        step(commit)
        embeds.zero_()
        torch.cuda.synchronize()
        try:
            torch.cuda.set_sync_debug_mode("error")
            expected = step(commit)
            wanted = embeds.clone()
        except RuntimeError as error:
            found[str(commit)] = f"waits: {error}"
            continue
        finally:
            torch.cuda.set_sync_debug_mode("default")
        replay = torch.cuda.CUDAGraph()
        with torch.cuda.graph(replay):
            chosen_there = step(commit)
        embeds.zero_()
        replay.replay()
        torch.cuda.synchronize()
        found[str(commit)] = bool(torch.equal(chosen_there, expected) and torch.equal(embeds, wanted))
    print("captured:", found, flush=True)
    return found
