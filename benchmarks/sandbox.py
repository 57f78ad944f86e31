"""What the sandbox costs and holds: time for a run, programs a second, verdicts on the tests' hostile programs.

python benchmarks/sandbox.py --out benchmarks/results
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import statistics
import sys
import time
import warnings
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from softdlm.errors import SandboxError  # noqa: E402
from softdlm.sandbox.backends import BACKENDS  # noqa: E402
from softdlm.sandbox.run import Limits, Sandbox, find_sandbox  # noqa: E402
from tests.sandbox.escapes import ESCAPES  # noqa: E402
from tests.sandbox.hostile import ACCIDENTS, CHEATS, REFUSALS  # noqa: E402

HONEST = ("def f(x):\n    return x + 1\n", "assert f(1) == 2\n")
WORLD = {"secret": secrets.token_hex(8), "port": 1, "home_file": str(Path.home())}
WORLD |= {"host_file": __file__, "host_folder": str(ROOT)}


def speed(sandbox: Sandbox, runs: int, workers: int) -> dict[str, float]:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        sandbox.run(*HONEST)
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    passed = sum(outcome.passed for outcome in sandbox.run_all([HONEST] * 4 * runs, workers=workers))
    rate = passed / (time.perf_counter() - start)
    return {
        "median ms a run": round(1000 * statistics.median(seconds), 1),
        f"programs a second, {workers} workers": round(rate, 1),
    }


def verdicts(sandbox: Sandbox, limit: float) -> list[dict[str, Any]]:
    rows = []
    for hostile in (*ACCIDENTS, *REFUSALS, *CHEATS, *(ESCAPES if sandbox.isolated else ())):
        program = hostile.program.format(**WORLD) if hostile in ESCAPES else hostile.program
        start = time.perf_counter()
        outcome = Sandbox(sandbox.backend, Limits(seconds=limit, memory_bytes=2**28)).run(program, hostile.checks)
        wall = round(time.perf_counter() - start, 2)
        right = outcome.verdict == hostile.verdict and wall < limit + 1
        rows.append({"program": hostile.name, "verdict": outcome.verdict, "right": right, "seconds": wall})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="deadline of the hostile programs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    user = "root" if os.geteuid() == 0 else "unprivileged"
    result: dict[str, Any] = {"date": str(date.today()), "user": user, "python": platform.python_version()}
    result |= {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    result |= {"load at the start": round(os.getloadavg()[0], 1)}
    for backend in BACKENDS:
        try:
            sandbox = find_sandbox(backend=backend, allow_unsandboxed=True)
        except SandboxError as problem:
            result[backend] = {"problem": str(problem)}
            continue
        rows = verdicts(sandbox, options.seconds)
        right = f"{sum(row['right'] for row in rows)} of {len(rows)}"
        result[backend] = speed(sandbox, options.runs, options.workers) | {"right verdicts": right, "hostile": rows}
        print(backend, {key: value for key, value in result[backend].items() if key != "hostile"}, flush=True)
        for row in rows:
            if not row["right"]:
                print("  WRONG", row)
    if options.out:
        name = f"{result['date']}-sandbox-{user}.json"
        (options.out / name).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
