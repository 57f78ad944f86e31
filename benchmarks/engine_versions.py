"""Two versions of the source side by side: `generate` with every engine, in turns, on one device.

    python benchmarks/engine_versions.py old/src src --rounds 2 [--out versions.json]
    python benchmarks/engine_versions.py old/src src --shape builtin --length 128 --only dynamic:none,dynamic:dual

Each round starts a process per version, one after the other; a process decodes every cell a few times. What is
compared is the best time of each version, beside the spread of its rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CELLS: list[dict[str, Any]] = [
    {"engine": engine, "cache": cache, "batch": batch, "new": new, "repeat": repeat}
    for engine in ("dynamic", "static", "compiled")
    for cache, batch, new, repeat in ((None, 1, 128, 4), ("dual", 1, 128, 8), (None, 16, 16, 2), ("dual", 16, 64, 4))
]


def chosen(only: str) -> list[dict[str, Any]]:
    """The cells of some engines and caches, `dynamic:dual,compiled:none`; all of them without."""
    return [cell for cell in CELLS if not only or f"{cell['engine']}:{cell['cache'] or 'none'}" in only.split(",")]


def child(shape: str, only: str, length: int) -> None:
    """Prints one line per cell: seconds of each decode after two to warm up, and a digest of the tokens."""
    import hashlib

    import torch

    import softdlm
    from softdlm.bench.shapes import SHAPES, build_model
    from softdlm.bench.workload import prompts

    gpu = torch.cuda.is_available()
    wait = torch.cuda.synchronize if gpu else lambda: None
    device, dtype = (torch.device("cuda"), torch.bfloat16) if gpu else (torch.device("cpu"), torch.float32)
    model = build_model(SHAPES[shape], device, dtype)
    for cell in chosen(only):
        block = {"block_length": 32, "cache": cell["cache"]} if cell["cache"] else {}
        new = min(cell["new"], length // 2)
        texts = prompts(model, cell["batch"], length - new)
        times = []
        for _ in range(2 + cell["repeat"]):
            wait()
            began = time.perf_counter()
            answers = softdlm.generate(
                model,
                texts,
                engine=cell["engine"],
                batch_size=cell["batch"],
                max_new_tokens=new,
                commit=softdlm.TopN(4),
                feedback=softdlm.Slerp(k=3, lam=0.3),
                **block,
            )
            wait()
            times.append(time.perf_counter() - began)
        model.slot_cache.clear()
        digest = hashlib.sha256(json.dumps([answer.canvas_ids for answer in answers]).encode()).hexdigest()[:12]
        print(json.dumps({**cell, "new": new, "seconds": times[2:], "first": times[0], "tokens": digest}), flush=True)


def run(source: str, shape: str, only: str, length: int) -> Iterator[dict[str, Any]]:
    """The cells of a new process, as it measures them."""
    environment = {**os.environ, "PYTHONPATH": str(Path(source).resolve()), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, __file__, "--child", "--shape", shape, "--only", only, "--length", str(length)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from (json.loads(line) for line in process.stdout if line.startswith("{"))
    if process.returncode:
        print(f"{source}: ended with exit status {process.returncode}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="*", help="two folders that hold a `softdlm` package")
    parser.add_argument("--shape", default="llada-8b")
    parser.add_argument("--length", type=int, default=1536, help="of the canvas")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="engines with caches, such as dynamic:dual,static:none")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.shape, options.only, options.length)
        return
    if len(options.sources) != 2:
        parser.error("give two folders that hold a softdlm package: the old one and the new one")
    found: dict[str, list[list[dict[str, Any]]]] = {source: [] for source in options.sources}
    for number in range(options.rounds):
        for source in options.sources if number % 2 == 0 else reversed(options.sources):
            began = time.perf_counter()
            found[source].append([])
            for cell in run(source, options.shape, options.only, options.length):
                found[source][-1].append(cell)
                report(found, options)
            print(f"round {number + 1} {source}: {time.perf_counter() - began:.0f} s", flush=True)
    print(*report(found, options), sep="\n")


def report(found: dict[str, list[list[dict[str, Any]]]], options: argparse.Namespace) -> list[str]:
    """A row per cell. Written after each one, so that what was measured is kept."""
    rows = []
    for index, cell in enumerate(chosen(options.only)):
        row: dict[str, Any] = {name: cell[name] for name in ("engine", "cache", "batch")}
        for source, rounds in found.items():
            seen = [each[index] for each in rounds if len(each) > index]
            times = [second for each in seen for second in each["seconds"]]
            if times:
                row[source] = {
                    "best s": round(min(times), 4),
                    "best of each round": [round(min(each["seconds"]), 4) for each in seen],
                    "tokens/s": round(cell["batch"] * seen[0]["new"] / min(times), 1),
                    "tokens": sorted({each["tokens"] for each in seen}),
                }
        old, new = (row.get(source) for source in options.sources)
        if old and new:
            row["new time / old time"] = round(new["best s"] / old["best s"], 4)
            row["same tokens"] = old["tokens"] == new["tokens"]
        rows.append(row)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return [json.dumps(row) for row in rows]


if __name__ == "__main__":
    main()
