"""Score every benchmark's own reference solutions through our scoring path: what a perfect model would get.

    python benchmarks/reference_solutions.py --data FOLDER    # or SOFTDLM_DATA, or the hub
    python benchmarks/reference_solutions.py --only mbpp --only mbpp-compat
    python benchmarks/reference_solutions.py --only humaneval --only mbpp --backend unshare

1319 (flexible), 500 (Math-Verify), 164 and 500 are expected, 499 for mbpp-compat, which leaves out test_setup_code.
"""

from __future__ import annotations

import logging
import time
from typing import Annotated

import typer

import softdlm
from softdlm.evaluate.benchmarks import benchmark_names, load_benchmark
from softdlm.evaluate.maths import checker
from softdlm.report.row_tables import print_rows
from softdlm.sandbox.run import find_sandbox


def main(
    data: Annotated[str | None, typer.Option(help="Folder with the benchmark files.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="A benchmark by name; may be repeated.")] = None,
    allow_unsandboxed: Annotated[
        bool, typer.Option(help="Run programs without a sandbox where there is none.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option(help="The sandbox's back end, instead of the first that works.")
    ] = None,
) -> None:
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    model = softdlm.load("builtin", device="cpu")
    rows = []
    for name in only or benchmark_names():
        benchmark = load_benchmark(name, model, data_dir=data, allow_unsandboxed=allow_unsandboxed)
        if backend and benchmark.task.sandbox:
            benchmark.task.sandbox = find_sandbox(backend=backend, allow_unsandboxed=allow_unsandboxed)
        start = time.perf_counter()
        scores = benchmark.score_all(benchmark.items, [benchmark.reference(item) for item in benchmark.items])
        wrong = [item.id for item, score in zip(benchmark.items, scores, strict=True) if not score["correct"]]
        metrics = {metric: sum(bool(score[metric]) for score in scores) for metric in benchmark.metrics}
        rows.append(
            {
                "benchmark": name,
                "correct": f"{len(scores) - len(wrong)} of {len(scores)}",
                "metrics": ", ".join(f"{metric} {count}" for metric, count in metrics.items()),
                "wrong": ", ".join(wrong[:3]),
                "sandbox": benchmark.task.sandbox.backend if benchmark.task.sandbox else "",
                "seconds": f"{time.perf_counter() - start:.1f}",
            }
        )
    print_rows(rows)
    print(f"time-outs in mathematics: {checker().timeouts}")


if __name__ == "__main__":
    typer.run(main)
