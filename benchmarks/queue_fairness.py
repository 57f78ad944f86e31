"""One engine, many requests on a CPU: 64 streamed requests with one Decoding, and with four.

    python benchmarks/queue_fairness.py [--requests 64] [--batch 16] [--rounds 3] [--out file.json]

Reports tokens per second and how far apart requests finish. All are submitted at once. Fair means that requests of
different Decodings that need equally many passes finish at about the same time: the spread is that of the cohorts'
mean finishing times, as a share of the whole run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import softdlm
from softdlm.decoding import settle
from softdlm.engine.answer import Answer
from softdlm.engine.queue import Engine
from softdlm.generation import encode

DECODINGS: list[dict[str, Any]] = [
    {"feedback": softdlm.Slerp(k=3, lam=lam), "commit": softdlm.TopN(4), "early_finish": False}
    for lam in (0.5, 0.3, 0.1, 0.0)
]


def decode(model: Any, prompts: list[list[int]], decodings: list[dict[str, Any]], batch: int) -> dict[str, Any]:
    ended: dict[int, float] = {}
    first: dict[int, float] = {}
    began = time.perf_counter()

    def hear(number: int, piece: str) -> None:
        first.setdefault(number, time.perf_counter() - began)

    answers = [
        Answer(model, number, prompt, settle(model, None, decodings[number % len(decodings)]), hear)
        for number, prompt in enumerate(prompts)
    ]
    tokens = 0
    with Engine(model, batch_size=batch) as queue:
        for answer in answers:
            queue.submit(answer)
        while queue.busy:
            for answer in queue.step():
                assert answer.generation is not None, answer.error
                ended[answer.request] = time.perf_counter() - began
                tokens += len(answer.generation.ids)
    seconds = time.perf_counter() - began
    groups = [statistics.mean(ended[n] for n in ended if n % len(decodings) == kind) for kind in range(len(decodings))]
    return {
        "decodings": len(decodings),
        "seconds": seconds,
        "tokens/s": tokens / seconds,
        "first text, mean s": statistics.mean(first.values()),
        "cohorts finish, mean s": [round(each, 2) for each in groups],
        "spread of cohorts / run": (max(groups) - min(groups)) / seconds,
        "first and last request, s": [round(min(ended.values()), 2), round(max(ended.values()), 2)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = softdlm.load("builtin", device="cpu")
    task = softdlm.tasks.load_task("mini-math", seed=11, size=options.requests)
    prompts = [encode(model, item.prompt) for item in task]
    rows: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for decodings, batch in ((DECODINGS[:1], options.batch), (DECODINGS, options.batch), (DECODINGS, 4)):
            row = {"round": number, "rows per cohort": batch, **decode(model, prompts, decodings, batch)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    found = {"threads": torch.get_num_threads(), "cores": os.cpu_count(), "torch": torch.__version__, "rows": rows}
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
