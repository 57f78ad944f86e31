"""The static step on a GPU: same tokens, no waits, how fast, how much memory? LLaDA-8B's shape, random weights.

    python benchmarks/static_step.py --out benchmarks/results --seconds 220

One run does everything, the most telling parts first; each prints what it found at once, a failing one prints its
traceback and the next goes on, and none begins when the time is up. A step is one pass of batch 1 over a prompt of
1,024 tokens and 512 new ones, all of them open but a few, timed by the host's clock from census to census (medians).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(ROOT / "benchmarks")]

import static_parts as measure  # noqa: E402

TARGETS = {"whole": 1.3, "block": 1.35}
"""Times the floor."""
START = time.perf_counter()


def verdicts(report: dict[str, Any]) -> dict[str, Any]:
    """The targets, as far as they were measured."""
    found: dict[str, Any] = {}
    base = report.get("floors, ms", {})
    for way in measure.WAYS[2:]:
        measured = report.get(f"steps, ms: {way}", {})
        for kind, label in (("no cache", "whole"), ("dual", "whole"), ("dual", "block")):
            pair = [measured.get(f"{rule} {kind}", {}).get(label) for rule in measure.RULES]
            if None in pair:
                continue
            found[f"{way}: slerp over vanilla, {kind} {label}, %"] = 100 * (pair[1] / pair[0] - 1)
            if label in base:
                found[f"{way}: slerp over the floor, {kind} {label} (at most {TARGETS[label]})"] = pair[1] / base[label]
    return found


def write(report: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    stem = out / f"{report['date']}-static-step"
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    lines = [f"# The static step, {report['date']}", ""]
    for part, found in report.items():
        lines += [f"## {part}", "", *_lines(found), ""] if isinstance(found, dict) else [f"{part}: {found}", ""]
    stem.with_suffix(".md").write_text("\n".join(lines))


def _lines(found: dict[str, Any]) -> list[str]:
    return [f"- {name}: {json.dumps(_short(value)).replace(chr(34), '')}" for name, value in found.items()]


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return round(value, 3) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=220)
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    report: dict[str, Any] = {"date": date.today().isoformat(), "device": torch.cuda.get_device_name()}
    report["torch"] = torch.__version__
    parts: dict[str, tuple[float, Callable[[], dict[str, Any]]]] = {
        # name: (seconds it may take, work)
        "same tokens as dynamic": (30, measure.tokens),
        "waits": (10, measure.waits),
        "floors, ms": (5, measure.floors),
        **{
            f"steps, ms: {way}": (15 if "compiled" not in way else 35, lambda way=way: measure.steps(way))
            for way in measure.WAYS
        },
        "MiB beyond weights, keys and values": (15, measure.memory),
        "decodes: static": (25, lambda: measure.decodes("static")),
        "decodes: dynamic": (25, lambda: measure.decodes("dynamic")),
        "queue of 12": (20, measure.queues),
        "decodes: compiled": (40, lambda: measure.decodes("compiled")),
    }
    for name, (seconds, work) in parts.items():
        spent = time.perf_counter() - START
        if spent + seconds > given.seconds:
            report[name] = f"not begun: {spent:.0f} s were over"
            continue
        try:
            report[name] = work()
        except Exception:
            report[name] = {"failed": traceback.format_exc()}
            traceback.print_exc()
            torch.cuda.set_sync_debug_mode("default")
        print(f"[{time.perf_counter() - START:.0f} s] {name}", json.dumps(_short(report[name]), indent=1), flush=True)
        report["targets"] = verdicts(report)
        write(report, given.out)
    report["seconds"] = round(time.perf_counter() - START, 1)
    write(report, given.out)
    print(json.dumps(_short(report["targets"]), indent=1))


if __name__ == "__main__":
    main()
