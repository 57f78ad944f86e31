"""What alternation costs on a GPU: the feedback step alone at LLaDA-8B's shape, and whole decodes of a small network.

    python benchmarks/alternate_cost.py --out benchmarks/results

Both are measured in turns, in one process. The feedback step is captured in a CUDA graph, as in a decode. The decodes
commit one token a pass, so every rule has the same number of passes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

import torch  # noqa: E402

import softdlm  # noqa: E402
from softdlm import Alternate, Slerp  # noqa: E402
from softdlm.feedback import feed_back  # noqa: E402
from softdlm.tasks import load_task  # noqa: E402
from softdlm.types import Context, Embeddings, Prediction  # noqa: E402

VOCABULARY, WIDTH, ANSWER = 126_464, 4_096, 512
RULES = {"slerp": Slerp(k=1, lam=0.5), "alternate(slerp)": Alternate(Slerp(k=1, lam=0.5))}


def step(rule: Any, rows: int) -> Callable[[], None]:
    """The feedback step of a pass over canvases of 512 open positions, captured."""
    device = torch.device("cuda")
    table = torch.randn(VOCABULARY, WIDTH, device=device, dtype=torch.bfloat16)
    embeddings = Embeddings(table, table[-1])
    shape = (rows, ANSWER)
    ids = torch.randint(VOCABULARY, (*shape, 3), device=device)
    probs = torch.rand(*shape, 3, device=device)
    flat = torch.zeros(shape, device=device)
    prediction = Prediction(ids[..., 0], flat, flat, flat, ids, probs)
    row = torch.zeros(rows, 1, dtype=torch.long, device=device)
    context = Context(row, row, row, row, row, index=torch.arange(ANSWER, device=device).expand(shape))
    chosen = torch.ones(shape, dtype=torch.bool, device=device)
    embeds = torch.zeros(*shape, WIDTH, device=device, dtype=torch.bfloat16)
    places = torch.arange(rows * ANSWER, device=device)

    def work() -> None:
        feed_back(rule, prediction, embeddings, context, chosen, embeds, prediction, places)

    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def microseconds(replay: Callable[[], None], times: int = 200) -> float:
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(times):
        replay()
    ended.record()
    torch.cuda.synchronize()
    return 1000 * began.elapsed_time(ended) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "step": {},
        "decode": {},
    }
    for rows in (1, 16):
        replays = {name: step(rule, rows) for name, rule in RULES.items()}
        times: dict[str, list[float]] = {name: [] for name in RULES}
        for _ in range(12):
            for name, replay in replays.items():
                times[name].append(microseconds(replay))
        found["step"][f"{rows} rows"] = {name: statistics.median(each) for name, each in times.items()}
    model = softdlm.load("builtin", device="cuda")
    prompts = [item.prompt for item in load_task("mini-math", split="validation", size=32)]
    seconds: dict[str, list[float]] = {name: [] for name in RULES}
    for turn in range(7):
        for name, rule in RULES.items():
            began = time.perf_counter()
            made = softdlm.generate(model, prompts, batch_size=32, feedback=rule, commit="topn(1)", early_finish=False)
            took = time.perf_counter() - began
            if turn > 1:
                seconds[name].append(1000 * took / made[0].forwards)
    found["decode"] = {f"{name}, ms a pass of 32 rows": statistics.median(each) for name, each in seconds.items()}
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / f"{date.today()}-alternate-cost.json"
    file.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
