"""What the sandbox costs and holds: time for a run, programs a second, verdicts on the tests' hostile programs.

python benchmarks/sandbox.py --out benchmarks/results
python benchmarks/sandbox.py --against ANOTHER/CHECKOUT/src --runs 100    # only time, in turns with another version
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from softdlm.errors import SandboxError  # noqa: E402
from softdlm.sandbox.backends import BACKENDS  # noqa: E402
from softdlm.sandbox.run import Limits, Sandbox, find_sandbox  # noqa: E402
from tests.sandbox.calls import CALLS  # noqa: E402
from tests.sandbox.escapes import ESCAPES  # noqa: E402
from tests.sandbox.hostile import ACCIDENTS, CHEATS, REFUSALS, Hostile  # noqa: E402

HONEST = ("def f(x):\n    return x + 1\n", "assert f(1) == 2\n")
WORLD = {"secret": secrets.token_hex(8), "port": 1, "home_file": str(Path.home())}
WORLD |= {"host_file": __file__, "host_folder": str(ROOT)}

SERVER = f"""
import resource, sys, time
from softdlm.sandbox.run import Sandbox

def used():
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(it.ru_utime + it.ru_stime for it in both)

for line in sys.stdin:
    wall, processor = time.perf_counter(), used()
    outcome = Sandbox(line.strip()).run(*{HONEST!r})
    assert outcome.passed, outcome
    print(1000 * (time.perf_counter() - wall), 1000 * (used() - processor), flush=True)
"""
"""Runs the honest program in the back end that each line names; answers with wall and processor time in ms."""


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


def programs(isolated: bool, world: Mapping[str, object] = WORLD) -> list[Hostile]:
    """The hostile programs that a back end promises to hold; `world` is what they must not reach."""
    escapes = [each._replace(program=each.program.format(**world)) for each in ESCAPES] if isolated else []
    return [*ACCIDENTS, *REFUSALS, *CHEATS, *CALLS, *escapes]


def verdicts(sandbox: Sandbox, limit: float) -> list[dict[str, Any]]:
    rows = []
    for hostile in programs(sandbox.isolated):
        start = time.perf_counter()
        outcome = Sandbox(sandbox.backend, Limits(seconds=limit, memory_bytes=2**28)).run(
            hostile.program, hostile.checks
        )
        wall = round(time.perf_counter() - start, 2)
        right = outcome.verdict == hostile.verdict and wall < limit + 1
        rows.append({"program": hostile.name, "verdict": outcome.verdict, "right": right, "seconds": wall})
    return rows


def in_turns(other: Path, runs: int) -> dict[str, Any]:
    """Both versions run the same program in turns, so that other work on the machine slows both alike."""
    sources = {"before": other, "after": ROOT / "src"}
    servers = {
        name: subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(source)},
        )
        for name, source in sources.items()
    }
    times: dict[str, dict[str, list[tuple[float, ...]]]] = {it: {name: [] for name in sources} for it in BACKENDS}
    for turn in range(runs):
        for backend in BACKENDS:
            for name in [*sources][:: 1 if turn % 2 else -1]:
                ask, tell = servers[name].stdin, servers[name].stdout
                assert ask is not None
                assert tell is not None
                print(backend, file=ask, flush=True)
                times[backend][name].append(tuple(map(float, tell.readline().split())))
    return {backend: compared(both) for backend, both in times.items()}


def compared(both: dict[str, list[tuple[float, ...]]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, what in enumerate(("wall", "processor")):
        for name, of in (("median", statistics.median), ("least", min)):
            values = {version: of([row[place] for row in rows]) for version, rows in both.items()}
            growth = f"{100 * (values['after'] / values['before'] - 1):+.0f} %"
            found[f"{what} ms, {name}"] = {version: round(ms, 1) for version, ms in values.items()} | {"growth": growth}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="deadline of the hostile programs")
    parser.add_argument("--against", type=Path, help="the folder src of another checkout")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    user = "root" if os.geteuid() == 0 else "unprivileged"
    result: dict[str, Any] = {"date": str(date.today()), "user": user, "python": platform.python_version()}
    result |= {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    result |= {"load at the start": round(os.getloadavg()[0], 1)}
    if options.against:
        result |= in_turns(options.against, options.runs)
        print(json.dumps(result, indent=1))
        if options.out:
            (options.out / f"{result['date']}-sandbox-growth-{user}.json").write_text(
                json.dumps(result, indent=1) + "\n"
            )
        return
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
