"""What soft tokens do to the loss on reference texts; nothing is decoded. It does not predict which networks gain.

A share of each reference solution is masked and predicted, soft tokens are put at all masks, and a second pass predicts
again. What is reported is the change of the loss on the true tokens (nats a token; the answer and its first EOS).

    python benchmarks/soft_loss.py --out benchmarks/results
    python benchmarks/soft_loss.py --model FOLDER --items 150 --lam 0.3,0.5
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

import softdlm  # noqa: E402
from softdlm.generation import encode  # noqa: E402
from softdlm.predict import Sampling, reduce_logits  # noqa: E402
from softdlm.tasks import load_task  # noqa: E402
from softdlm.tasks.task import RESPONSE_TOKENS, Item  # noqa: E402
from softdlm.types import Embeddings  # noqa: E402


@torch.no_grad()
def losses(model: Any, item: Item, share: float, rules: Sequence[Any], source: torch.Generator) -> list[float]:
    """How many tokens are scored, the sum of their losses behind hard masks, and behind each rule's soft tokens."""
    prompt, answer = encode(model, item.prompt), encode(model, item.target, chat=False)
    padding = [model.eos_ids[0]] * (RESPONSE_TOKENS - len(answer))
    ids = torch.tensor(prompt + answer + padding)
    hidden = torch.randperm(RESPONSE_TOKENS, generator=source)[: int(share * RESPONSE_TOKENS)] + len(prompt)
    scored = hidden <= len(prompt) + len(answer)
    embeddings = Embeddings(model.embedding, model.embedding[model.mask_id])
    embeds = model.embed(ids)
    embeds[hidden] = embeddings.mask
    first = model.logits(embeds=embeds[None])[0, hidden]
    prediction = reduce_logits(first, Sampling(model.mask_id, k=max(rule.k for rule in rules)))
    found = [loss(first, ids[hidden], scored)]
    for rule in rules:
        embeds[hidden] = rule(prediction, embeddings, None)
        found.append(loss(model.logits(embeds=embeds[None])[0, hidden], ids[hidden], scored))
    return [float(scored.sum()), *found]


def loss(logits: Tensor, truth: Tensor, scored: Tensor) -> float:
    return torch.nn.functional.cross_entropy(logits[scored], truth[scored], reduction="sum").item()


def changes(rows: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Of each rule, the mean change a token and its standard error over items."""
    tokens = sum(row[0] for row in rows)
    found = []
    for column in range(2, len(rows[0])):
        more = [row[column] - row[1] for row in rows]
        found.append((sum(more) / tokens, statistics.stdev(more) * len(rows) ** 0.5 / tokens))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--name", help="of the model in the files; its folder's by default")
    parser.add_argument("--task", default="mini-math")
    parser.add_argument("--items", type=int, default=150)
    parser.add_argument("--share", type=float, default=0.5, help="of the answer's positions that are masked")
    parser.add_argument("--lam", default="0.2,0.3,0.4,0.5,0.6")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    model = softdlm.load(asked.model, dtype="float32")
    rules = [softdlm.Slerp(k=3, lam=float(value)) for value in asked.lam.split(",")]
    source = torch.Generator().manual_seed(0)
    items = load_task(asked.task, split="validation", size=asked.items)
    rows = [losses(model, item, asked.share, rules, source) for item in items]
    name = asked.name or Path(asked.model).name
    found = {
        "model": name,
        "task": asked.task,
        "split": "validation",
        "items": len(rows),
        "share masked": asked.share,
        "loss": sum(row[1] for row in rows) / sum(row[0] for row in rows),
        "change": {str(rule): pair for rule, pair in zip(rules, changes(rows), strict=True)},
        "rows": rows,
    }
    for rule, (mean, error) in found["change"].items():
        print(f"{name} {rule}: {mean:+.4f} ± {error:.4f} on {found['loss']:.4f}")
    if asked.out:
        asked.out.mkdir(parents=True, exist_ok=True)
        file = asked.out / f"{date.today()}-soft-loss-{name}.json"
        file.write_text(json.dumps(found) + "\n")
        print(file)


if __name__ == "__main__":
    main()
