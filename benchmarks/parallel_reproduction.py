"""`softdlm reproduce` for the built-in model with several processes on one GPU: the network is so small that one
process leaves most of the device idle.

    python benchmarks/parallel_reproduction.py rivals best table7 --out reproduction --processes 12 --seconds 500
    softdlm reproduce rivals best table7 --device cuda --out reproduction   # tables and findings, from the same cells

The cells of the searches come first, then all others. Each process takes its share of the cells of a stage, the
costliest first. Run the same command again to go on; the end says how many cells are left.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from softdlm.evaluate.executors import LocalExecutor
from softdlm.evaluate.grid import Finder, Plan, Planned, join, plans
from softdlm.evaluate.run import expected_passes, run
from softdlm.records.journal import SUMMARY
from softdlm.reproduce.experiment import Experiment
from softdlm.reproduce.experiments import select
from softdlm.reproduce.measurements import Cells
from softdlm.reproduce.run import CELLS, finished
from softdlm.reproduce.study import Study

STAGES = ("search", "cells", "follow")


def stage_plan(study: Study, experiments: Sequence[Experiment], stage: str, out: Path) -> Plan:
    """The cells of one stage; `follow` needs those of `search` on disk."""
    finder, grids = Finder(), []
    for each in experiments:
        if stage == "follow" and each.search and each.follow:
            found: Cells = finished(join(plans(each.search(study), finder)), out)
            grids += each.follow(study, found)
        elif stage == "search" and each.search:
            grids += each.search(study)
        elif stage == "cells" and each.cells:
            grids += each.cells(study)
    return join(plans(grids, finder))


def cost(planned: Planned) -> float:
    """Expected passes, more where a rule needs the full distribution and cannot be captured."""
    feedback = planned.cell.decoding.rules[1]
    heavy = 3 if getattr(feedback, "needs", None) else 1
    return heavy * expected_passes(planned.cell.decoding) * len(planned.items)


def work(arguments: argparse.Namespace, study: Study, experiments: Sequence[Experiment]) -> None:
    """One process: every n-th of the unfinished cells."""
    number, of = arguments.part
    out = arguments.out / CELLS
    every = stage_plan(study, experiments, arguments.stage, out).cells
    ordered = sorted(every, key=cost, reverse=True)
    mine = tuple(each for each in ordered[number::of] if not (out / each.key / SUMMARY).exists())
    failures = run(Plan(mine, ()), out, LocalExecutor(study.batch_size))
    for key, failure in failures.items():
        print(key, failure.reason, failure.trace, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--stage", choices=STAGES)
    parser.add_argument("--part", type=int, nargs=2)
    arguments = parser.parse_args()
    study = Study.of("builtin", device=arguments.device, limit=arguments.limit, allow_unsandboxed=True)
    experiments = select(arguments.what)
    if arguments.stage:
        return work(arguments, study, experiments)
    began = time.monotonic()
    for stage in STAGES:
        command = [sys.executable, __file__, *sys.argv[1:], "--stage", stage, "--part"]
        parts = [
            subprocess.Popen([*command, str(number), str(arguments.processes)]) for number in range(arguments.processes)
        ]
        for part in parts:
            try:
                part.wait(max(1.0, arguments.seconds - (time.monotonic() - began)))
            except subprocess.TimeoutExpired:
                part.kill()
        every = stage_plan(study, experiments, stage, arguments.out / CELLS).cells
        left = sum(not (arguments.out / CELLS / each.key / SUMMARY).exists() for each in every)
        print(f"{stage}: {left} of {len(every)} cells left, {time.monotonic() - began:.0f} s", flush=True)
        if left:
            sys.exit(1)
    return None


if __name__ == "__main__":
    main()
