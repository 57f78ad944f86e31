"""The fused kernels on a GPU: are they right at the real sizes, how fast, how much memory, which layout is best?

    python benchmarks/kernels.py --out benchmarks/results --seconds 85

One run does everything, the search for a layout last and only while time is left. Times are medians of CUDA events
after a warm-up, over several buffers in turn so that nothing is served from the cache; "graph" replays a captured CUDA
graph, "eager" includes what the host takes to launch.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, replace
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
from gpu_timing import eager, graph, peak
from kernel_checks import DEVICE, compare, policy, ring, small_problems, verdict
from kernel_steps import captured_step, softs
from torch import Tensor

from softdlm.kernels import SWITCH, vocabulary_triton
from softdlm.kernels.vocabulary import reduce_tiled
from softdlm.kernels.vocabulary_triton import Tuning, reduce_triton
from softdlm.models.denoiser import Denoiser
from softdlm.predict import reduce_hidden, reduce_logits

LLADA = 126_464
VOCABULARIES = (LLADA, 157_184, 152_064)
"""LLaDA-8B, LLaDA-2.0, Dream-7B."""
ROWS, CANDIDATES = (32, 512, 1536), (1, 3, 8, 16)
START = time.perf_counter()


def reduction_times(buffers: list[Tensor], k: int, full: bool) -> dict[str, float]:
    choice = policy(buffers[0].shape[1], k)
    special = choice.special(buffers[0].device)
    size = buffers[0].numel() * buffers[0].element_size()
    fused = [partial(reduce_triton, logits, special, k) for logits in buffers]
    times = {
        "kernel (graph)": graph(fused),
        "scan alone (graph)": graph([partial(vocabulary_triton.scan, logits, special, k) for logits in buffers]),
        "kernel (eager)": eager(fused),
        "plain (eager)": eager([partial(reduce_logits, buffers[0], choice)], 3),
        "tiled torch (eager)": eager([partial(reduce_tiled, buffers[0], special, k)], 3),
        "topk (graph)": graph([partial(torch.topk, buffers[0], k)], 5),
    }
    if full:
        target = torch.empty_like(buffers[0])
        times["logsumexp (graph)"] = graph([partial(torch.logsumexp, logits, 1) for logits in buffers])
        times["copy (graph)"] = graph([partial(target.copy_, logits) for logits in buffers])
        times["copy, TB/s read + written"] = 2 * size / times["copy (graph)"] / 1e6
    return times | {"kernel, TB/s read": size / times["kernel (graph)"] / 1e6}


def reductions() -> list[dict[str, Any]]:
    """Every size is checked; LLaDA's vocabulary is timed at every k, the others at k = 3."""
    found = []
    for columns, rows in product(VOCABULARIES, ROWS):
        buffers = ring(rows, columns)
        for k in CANDIDATES:
            choice = policy(columns, k)
            report = compare(buffers[0], choice)
            case = {"vocabulary": columns, "rows": rows, "k": k, "right": verdict(report), "differences": report}
            case["peak bytes"] = peak(partial(reduce_triton, buffers[0], choice.special(buffers[0].device), k))
            assert case["peak bytes"] < rows * columns, "more than a byte per logit was allocated"
            if columns == LLADA or k == 3:
                case["microseconds"] = reduction_times(buffers, k, full=k == 3)
            found.append(case)
            print(line(case), flush=True)
    return found


def line(case: dict[str, Any]) -> str:
    times = {name: round(value, 2) for name, value in case.get("microseconds", {}).items()}
    wrong = "" if case["right"] else f" DIFFERENCES {case['differences']}"
    return f"{case['vocabulary']} x {case['rows']} k={case['k']} right={case['right']} {times}{wrong}"


class Head(Denoiser):
    """An LM head of LLaDA-8B's size and nothing before it."""

    def head(self, hidden: Tensor) -> Tensor:
        return torch.nn.functional.linear(hidden, self.embedding)


def head_and_reduction() -> list[dict[str, Any]]:
    weight = torch.randn(LLADA, 4096, device=DEVICE, dtype=torch.bfloat16) * 0.02
    model = Head(weight, mask_id=LLADA - 128)
    found = []
    for rows in ROWS:
        hidden = torch.randn(rows, 4096, device=DEVICE, dtype=torch.bfloat16)
        work = partial(reduce_hidden, model, hidden, policy(LLADA, 3))
        case: dict[str, Any] = {"rows": rows, "head alone (eager)": eager([partial(model.head, hidden)])}
        for name, value in (("kernels", "auto"), ("plain", "off")):
            os.environ[SWITCH] = value
            case |= {f"{name} (eager)": eager([work]), f"{name}, peak bytes": peak(work)}
        os.environ[SWITCH] = "auto"
        chunk = min(rows, 2**26 // LLADA)
        assert case["kernels, peak bytes"] < 1.1 * chunk * LLADA * 2, "more than one chunk of bfloat16 logits"
        found.append(case)
        print("head + reduction", {name: round(value, 1) for name, value in case.items()}, flush=True)
    return found


def search(seconds: float) -> list[dict[str, Any]]:
    """Layouts of the scan, fastest last; stops when the time is up."""
    found, skipped = [], 0
    buffers = {rows: ring(rows, LLADA) for rows in ROWS}
    shapes = [
        (tile, warps)
        for tile, warps in product((2048, 4096, 1024, 8192), (4, 8, 2, 16))
        if 8 <= tile / warps / 32 <= 64
    ]
    for k, (tile, warps), programs, rows in product((3, 16), shapes, (528, 1056, 264, 2112), ROWS):
        tuning = Tuning(tile, warps, programs)
        if programs != 528 and tuning.parts(rows, LLADA) == replace(tuning, programs=528).parts(rows, LLADA):
            continue
        if time.perf_counter() - START > seconds:
            skipped += 1
            continue
        special = policy(LLADA, k).special(buffers[rows][0].device)
        micros = graph([partial(reduce_triton, logits, special, k, tuning) for logits in buffers[rows]], 9)
        found.append(
            {"rows": rows, "k": k, **asdict(tuning), "parts": tuning.parts(rows, LLADA), "microseconds": micros}
        )
    for k, rows in product((3, 16), ROWS):
        best = sorted((c for c in found if (c["rows"], c["k"]) == (rows, k)), key=lambda c: c["microseconds"])
        print(
            f"layouts, rows={rows} k={k}:", *(layout(case) for case in best[:6]), "... worst", *map(layout, best[-1:])
        )
    print(f"layouts tried {len(found)}, not reached {skipped}", flush=True)
    return [*found, {"not reached": skipped}]


def layout(case: dict[str, Any]) -> str:
    return f"[{case['tile']}/{case['warps']}w/{case['programs']}p={case['parts']} {case['microseconds']:.1f}us]"


def markdown(report: dict[str, Any]) -> str:
    columns = [
        "kernel (graph)",
        "kernel (eager)",
        "plain (eager)",
        "tiled torch (eager)",
        "topk (graph)",
        "logsumexp (graph)",
    ]
    columns += ["copy (graph)", "kernel, TB/s read", "copy, TB/s read + written"]
    lines = [
        f"# Kernels on {report['device']}, {report['date']}",
        "",
        f"torch {report['torch']}, triton {report['triton']}.",
    ]
    lines += [
        "Microseconds (medians), unless the column says TB/s.",
        "",
        "| V | rows | k | right | " + " | ".join(columns) + " |",
    ]
    lines += ["|" + " --- |" * (len(columns) + 4)]
    for case in report["reductions"]:
        cells = [
            f"{case['microseconds'][name]:.2f}" if name in case.get("microseconds", {}) else "" for name in columns
        ]
        lines.append(
            "| " + " | ".join(map(str, [case["vocabulary"], case["rows"], case["k"], case["right"], *cells])) + " |"
        )
    lines += ["", f"LM head with reduction: {report['head']}", "", f"Soft embedding: {report['soft']}", ""]
    return "\n".join([*lines, f"Small problems: {report['small']}", "", f"Captured steps: {report['captured']}", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=85.0, help="stop searching for layouts after this long")
    options = parser.parse_args()
    report: dict[str, Any] = {"date": date.today().isoformat(), "device": torch.cuda.get_device_name()}
    report |= {"torch": torch.__version__, "triton": triton.__version__, "tuning": asdict(Tuning())}
    for name, part in {
        "small": small_problems,
        "reductions": reductions,
        "head": head_and_reduction,
        "soft": softs,
        "captured": captured_step,
        "layouts": partial(search, options.seconds),
    }.items():
        begin = time.perf_counter()
        with torch.no_grad():
            report[name] = part()
        torch.cuda.empty_cache()
        print(f"-- {name}: {time.perf_counter() - begin:.1f} s of {time.perf_counter() - START:.1f}", flush=True)
        write(report, options.out)
    print("small problems:", report["small"])


def write(report: dict[str, Any], out: Path) -> None:
    """After each part, so that a run that is cut short leaves what it had."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{report['date']}-kernels.json").write_text(json.dumps(report, indent=1) + "\n")
    if "captured" in report:
        (out / f"{report['date']}-kernels.md").write_text(markdown(report))


if __name__ == "__main__":
    main()
