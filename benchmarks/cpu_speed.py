"""The built-in model on a CPU: our loop beside the plain reference loop, in one run, with the same text.

python benchmarks/cpu_speed.py --out benchmarks/results

The reference is LLaDA's published low-confidence remasking as described: one problem at a time, the whole sequence
through the stock class at every step, every position through the LM head, a float64 softmax over all of them, every
block to its end. Ours: rows on cores, the head on open positions only, an early finish. Both decode the same items in
turn; seconds are of decoding alone, the first item of each is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

import softdlm  # noqa: E402
from softdlm.generation import encode  # noqa: E402
from softdlm.tasks import load_task  # noqa: E402

SETTINGS = [  # task, tokens a step, block length
    ("mini-math", 1, None),
    ("mini-math", 4, None),
    ("mini-math", 1, 32),
    ("mini-code", 1, None),
    ("mini-code", 1, 32),
    ("mini-code", 1, 16),
]


@torch.no_grad()
def reference(model: Any, prompt: list[int], length: int, per_step: int, block: int) -> tuple[list[int], int]:
    """The new tokens and the number of passes."""
    ids = torch.full((1, len(prompt) + length), model.mask_id)
    ids[0, : len(prompt)] = torch.tensor(prompt)
    passes = 0
    for start in range(len(prompt), ids.shape[1], block):
        for _ in range(-(-block // per_step)):
            logits = model.network(input_ids=ids, use_cache=False).logits
            logits[..., model.mask_id] = -torch.inf
            token = logits.argmax(-1)
            sure = logits.to(torch.float64).softmax(-1).gather(-1, token[..., None]).squeeze(-1)
            sure[ids != model.mask_id] = -torch.inf
            sure[:, start + block :] = -torch.inf
            count = min(per_step, int((ids[:, start : start + block] == model.mask_id).sum()))
            chosen = sure[0].topk(count).indices
            ids[0, chosen] = token[0, chosen]
            passes += 1
    return ids[0, len(prompt) :].tolist(), passes


def to_text(model: Any, ids: list[int]) -> str:
    ends = [place for place, token in enumerate(ids) if token in model.eos_ids]
    return model.tokenizer.decode(ids[: ends[0]] if ends else ids, skip_special_tokens=True)


def measure(model: Any, name: str, per_step: int, block: int | None, items: int, batch: int) -> dict[str, Any]:
    task = load_task(name, split="validation", size=items)
    length = task.max_new_tokens
    seconds, passes, texts = {"reference": 0.0, "ours": 0.0}, {"reference": 0, "ours": 0}, {"reference": [], "ours": []}
    for start in range(0, items, batch):
        prompts = [item.prompt for item in task.items[start : start + batch]]
        began = time.perf_counter()
        for prompt in prompts:
            ids, used = reference(model, encode(model, prompt), length, per_step, block or length)
            passes["reference"] += used
            texts["reference"].append(to_text(model, ids))
        seconds["reference"] += time.perf_counter() - began
        began = time.perf_counter()
        answers = softdlm.generate(
            model,
            prompts,
            max_new_tokens=length,
            commit=softdlm.TopN(per_step),
            feedback=softdlm.Mask(),
            block_length=block,
            batch_size=batch,
        )
        seconds["ours"] += time.perf_counter() - began
        passes["ours"] += sum(answer.forwards for answer in answers)
        texts["ours"] += [answer.text for answer in answers]
    same = sum(a == b for a, b in zip(texts["reference"], texts["ours"], strict=True))
    pace = {who: 1e3 * seconds[who] / passes[who] for who in seconds}
    return {
        "task": name,
        "tokens a step": per_step,
        "block": block or "whole canvas",
        "items": items,
        "same text": same,
        "reference ms/pass": round(pace["reference"], 2),
        "ours ms/pass": round(pace["ours"], 2),
        "gain per pass": round(pace["reference"] / pace["ours"], 2),
        "reference passes": round(passes["reference"] / items, 1),
        "our passes": round(passes["ours"] / items, 1),
        "passes saved": round(passes["reference"] / passes["ours"], 2),
        "gain": round(seconds["reference"] / seconds["ours"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = softdlm.load("builtin", dtype="float32", device="cpu")
    measure(model, "mini-math", 32, None, args.batch, args.batch)  # wakes both up
    rows = []
    for setting in SETTINGS:
        rows.append(measure(model, *setting, args.items, args.batch))
        print(rows[-1], file=sys.stderr)
    conditions = {
        "date": date.today().isoformat(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load before": os.getloadavg()[0],
        "torch": torch.__version__,
        "softdlm": softdlm.__version__,
        "dtype": "float32",
        "split": "validation",
        "batch": args.batch,
    }
    lines = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
    args.out.mkdir(parents=True, exist_ok=True)
    stem = args.out / f"{conditions['date']}-cpu-speed"
    stem.with_suffix(".json").write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")
    stem.with_suffix(".md").write_text(f"{json.dumps(conditions)}\n\n" + "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
