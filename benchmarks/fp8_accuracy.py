"""The built-in model in eight bits: how often predictions and answers differ from those in float32 and bfloat16.

    python benchmarks/fp8_accuracy.py --out benchmarks/results

Predictions are compared at the open positions of canvases of validation items, with 25 to 100 % of the answer masked;
answers on all test items of mini-math and mini-code, item by item (McNemar's exact p, and Holm's over the pairs of a
task). Without a GPU of Hopper or later fp8 is emulated, which takes hours.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import torch

import softdlm
from softdlm.evaluate.cell import TaskSpec
from softdlm.evaluate.fingerprint import request_number
from softdlm.evaluate.metrics import Share, holm, mcnemar
from softdlm.evaluate.task import load_eval_task
from softdlm.generation import encode
from softdlm.models.own_settings import RECOMMENDED

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = ("float32", "bfloat16", "fp8" if DEVICE == "cuda" else "fp8-emulated")
SLERP: dict[str, Any] = {"feedback": "slerp"}
RATES: dict[str, dict[str, Any]] = {
    **{f"{rate} a step": SLERP | {"tokens_per_step": rate} for rate in (1, 4, 8)},
    "entropy bound 0.1": SLERP | {"entropy_bound": 0.1},
    "recommended": {"feedback": RECOMMENDED.feedback, "commit": RECOMMENDED.commit},
    "own": {"feedback": "no_eos(alternate(slerp(k=1, lam=0.5)))", "entropy_bound": 0.15},
}
BATCH = 256


def canvases(model: Any) -> Iterator[torch.Tensor]:
    """Prompts with answers of the model, partly masked; canvases of one length together."""
    source, found = torch.Generator().manual_seed(0), []
    for task, count in (("mini-math", 256), ("mini-code", 64)):
        prompts = [
            encode(model, each.prompt, False)
            for each in load_eval_task(TaskSpec(task, "validation", count, None, True), model).items
        ]
        answers = softdlm.generate(model, prompts, max_new_tokens=64, tokens_per_step=4, batch_size=64)
        for prompt, answer in zip(prompts, answers, strict=True):
            for share in (1.0, 0.75, 0.5, 0.25):
                tokens = torch.tensor(answer.canvas_ids)
                tokens[torch.rand(len(tokens), generator=source) < share] = model.mask_id
                found.append(torch.cat([torch.tensor(prompt), tokens]))
    for _, alike in groupby(sorted(found, key=len), key=len):
        yield from torch.stack(list(alike)).split(64)


def predictions(model: Any, batches: list[torch.Tensor]) -> torch.Tensor:
    """The likeliest token at every open position."""
    found = []
    for ids in batches:
        logits = model.logits(ids).float()
        logits[..., model.mask_id] = -torch.inf
        found.append(logits.argmax(-1).cpu()[ids == model.mask_id])
    return torch.cat(found)


def answers(model: Any, name: str) -> dict[str, tuple[list[bool], float]]:
    """By rate: which items of a task are right, and passes an item."""
    task, found = load_eval_task(TaskSpec(name, "test"), model), {}
    how: dict[str, Any] = {"max_new_tokens": 64, "chat": False, "batch_size": BATCH}
    how["requests"] = [request_number(item.prompt, "0") for item in task.items]
    for name, rate in RATES.items():
        made = softdlm.generate(model, [item.prompt for item in task.items], **how, **rate)
        with ThreadPoolExecutor() as pool:
            scores = pool.map(task.score, task.items, [each.text for each in made])
            right = [bool(score["correct"]) for score in scores]
        found[name] = right, sum(each.forwards for each in made) / len(made)
    return found


def paired(one: list[bool], other: list[bool]) -> dict[str, Any]:
    lost = sum(a and not b for a, b in zip(one, other, strict=True))
    won = sum(b and not a for a, b in zip(one, other, strict=True))
    shares = {"percent": f"{Share.of(one)}, {Share.of(other)}"}
    return shares | {"lost": lost, "won": won, "p": mcnemar(one, other)}


def compared(right: dict[str, Any]) -> list[dict[str, Any]]:
    """Each pair of types at each rate of a task."""
    rows: list[dict[str, Any]] = [
        {"rate": rate, "pair": f"{one}, {other}"} | paired(right[one][rate][0], right[other][rate][0])
        for rate in RATES
        for one, other in combinations(KINDS, 2)
    ]
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["Holm"] = p
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    models = {kind: softdlm.load("builtin", device=DEVICE, dtype=kind) for kind in KINDS}
    batches = list(canvases(models["float32"]))
    best = {kind: predictions(model, batches) for kind, model in models.items()}
    moved = {kind: (best[kind] != best["float32"]).float().mean().item() for kind in KINDS}
    print(len(best["float32"]), moved, flush=True)
    content: dict[str, Any] = {"positions": len(best["float32"]), "moved": moved, "items": {}}
    for task in ("mini-math", "mini-code"):
        right = {kind: answers(model, task) for kind, model in models.items()}
        content["items"][task] = {"right": right, "paired": compared(right)}
        for row in content["items"][task]["paired"]:
            print(task, row, flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{date.today()}-fp8-accuracy.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
