"""The hostile corpus, counted: programs in every back end, damaged checkpoints and journals, command lines.

    python benchmarks/reliability.py [--out docs/reliability.md] [--chaos FILE]

Everything is drawn from what the tests and fuzz.py share. The page says what was tried, how it ended and what was left
on the machine. Exit code 1 if anything is not as promised. `--chaos` is a summary of chaos.py, which the page quotes.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from fuzz import KINDS, End, Finding, patient, undamaged
from sandbox import programs

from softdlm.errors import SandboxError
from softdlm.sandbox.backends import BACKENDS
from softdlm.sandbox.run import Limits, Sandbox, find_sandbox
from tests.sandbox.hostile import Hostile
from tests.sandbox.working import left_behind, new_session_keyring, outside

ROOT = Path(__file__).parents[1]
COUNTS = {"checkpoints": 400, "commands": 300, "journals": 200}
SECONDS, GRACE = 3.0, 1.0
"""The deadline of a hostile program, and how late its verdict may come."""
BAD = ("traceback", "hang", "garbage")
TITLES = {"checkpoints": "damaged checkpoints", "commands": "command lines", "journals": "damaged journals"}


@dataclass
class Group:
    """One kind of input: how its members ended, what it left behind."""

    name: str
    ends: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, repeats: str, end: End) -> None:
        self.ends[end.kind] += 1
        if end.kind in BAD:
            self.wrong.append(f"{self.name}: {repeats}: {end.kind}: {end.words}")
        elif end.words and end.kind == "worked":
            self.remarks[end.words] += 1


def hostile_end(sandbox: Sandbox, hostile: Hostile) -> End:
    """Refused is the right verdict for the right reason, in time. A program that passes got what it wanted."""
    began = time.monotonic()
    try:
        outcome = sandbox.run(hostile.program, hostile.checks)
    except Exception as error:
        return End("traceback", f"{type(error).__name__}: {error}")
    late = time.monotonic() - began > SECONDS + GRACE
    right = outcome.verdict == hostile.verdict and re.search(hostile.reason, outcome.detail)
    return End("hang" if late else "refused" if right else "garbage", f"{outcome.verdict}: {outcome.detail}")


def hostile_programs(backend: str) -> Iterator[Finding]:
    """Every program that the back end promises to hold."""
    sandbox = Sandbox(backend, Limits(seconds=SECONDS, memory_bytes=2**28))
    with tempfile.TemporaryDirectory() as folder, outside(Path(folder)) as world:
        for hostile in programs(sandbox.isolated, world):
            yield hostile.name, hostile_end(sandbox, hostile)


def left_on_machine(folder: Path) -> dict[str, Any]:
    """What outlives a process: our temporary folder, System V and POSIX objects, keys."""
    shared = {place: sorted(os.listdir(place)) for place in ("/dev/shm", "/dev/mqueue") if os.path.isdir(place)}
    return left_behind(folder) | shared | {"users with keys and no process": sorted(_users_with_keys() - _users())}


def _users_with_keys() -> set[int]:
    with contextlib.suppress(OSError):
        return {int(line.split(":")[0]) for line in Path("/proc/key-users").read_text().splitlines()}
    return set()


def _users() -> set[int]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.add(folder.stat().st_uid)
    return found


def orphans() -> list[str]:
    """Living processes that came to us when their parents ended; dead ones are collected."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [f"process {child}" for child in children]


def watched(name: str, inputs: Callable[[], Iterator[Finding]], folder: Path) -> Group:
    """Run a group and compare the machine before and after; what is ending is given a moment."""
    group, before, began = Group(name), left_on_machine(folder), time.monotonic()
    for repeats, end in inputs():
        group.add(repeats, end)
    group.seconds = time.monotonic() - began
    for _ in range(50):
        after = left_on_machine(folder)
        grown = [f"{what}: {after[what]} after {before[what]}" for what in before if after[what] != before[what]]
        group.left = [*orphans(), *(each for each in grown if not _fewer(each, before, after))]
        if not group.left:
            break
        time.sleep(0.1)
    print(f"{name}: {dict(group.ends)}, {len(group.left)} left, {group.seconds:.0f} s", flush=True)
    for line in (*group.wrong, *group.left):
        print(f"  WRONG {line}", flush=True)
    return group


def _fewer(line: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether names only went away: other work on this machine ended."""
    what = line.split(":")[0]
    return isinstance(after[what], list) and set(after[what]) <= set(before[what])


def taken(kind: str, count: int, seed: int) -> Iterator[Finding]:
    return islice(KINDS[kind](random.Random(seed)), count)


def corpus(seed: int) -> tuple[list[Group], dict[str, str]]:
    """All groups, and the back ends that do not work here, with the reason."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: what loses its parent becomes our child
    new_session_keyring()
    groups, absent = [], {}
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        tempfile.tempdir = os.environ["TMPDIR"] = place
        undamaged("llada")  # torch makes a cache folder of its own when it first decodes
        for backend in BACKENDS:
            try:
                find_sandbox(backend=backend, allow_unsandboxed=True)
            except SandboxError as problem:
                absent[backend] = str(problem)
                continue
            name = f"hostile programs, {backend if backend != 'subprocess' else 'limited process'}"
            groups.append(watched(name, partial(hostile_programs, backend), Path(place)))
        for kind, count in COUNTS.items():
            groups.append(watched(TITLES[kind], partial(taken, kind, count, seed), Path(place)))
        tempfile.tempdir = None
    return groups, absent


def table(groups: list[Group]) -> str:
    head = (
        "| group | tried | worked | refused | tracebacks | hangs | silent garbage | leftovers |\n" + "|---" * 8 + "|\n"
    )
    rows = [
        [each.name, each.ends.total(), *(each.ends[kind] for kind in ("worked", "refused", *BAD)), len(each.left)]
        for each in groups
    ]
    return head + "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


def chaos_words(file: Path | None) -> str:
    """What the last run of chaos.py said."""
    if file is None:
        return "Not run."
    it = json.loads(file.read_text())
    rounds = ", ".join(f"{name} {count}" for name, count in it["rounds"].items())
    ends = ", ".join(f"{name} {count}" for name, count in it["ends"].items())
    refusals = "".join(f"- {count} x `{line}`\n" for line, count in it["refusals"].items())
    return (
        f"{sum(it['rounds'].values())} rounds on {it['date']} ({rounds}), seed {it['seed']}, {it['seconds']} s. They "
        f"ended with: {ends}. {it['finished']} folders were finished on the way or in the end, each equal to an "
        f"undisturbed run in text, digest of the ids and passes; {it['samples_compared']:,} samples were compared "
        f"after single rounds. {len(it['wrong'])} things were wrong. {it['foreign_cells']} cells of swapped weights "
        f"lay beside, under their own digest; {it['parts_left']} unfinished temporary files were left by kills. "
        f"Full disk: {it['full disk']}.\n\nEvery refusal on the way:\n\n{refusals}"
    )


def newest(name: str) -> Path:
    """The newest result file of this name."""
    return max((ROOT / "benchmarks" / "results").glob(f"*-{name}"))


def page(groups: list[Group], absent: dict[str, str], seconds: float, chaos: Path | None) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    user = "root" if os.geteuid() == 0 else "an ordinary user"
    machine = f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    remarks = "".join(f"- {each.name}: {n} x {word}\n" for each in groups for word, n in each.remarks.items())
    wrong = "".join(f"- `{line}`\n" for each in groups for line in (*each.wrong, *each.left))
    missing = "".join(f"- {name} does not work on this machine: {problem}\n" for name, problem in absent.items())
    text = (ROOT / "benchmarks" / "reliability.txt").read_text()
    return text.format(
        date=date.today(),
        commit=commit.stdout.strip() or "unknown",
        machine=f"{machine}, as {user}",
        minutes=f"{seconds / 60:.0f}",
        table=table(groups),
        remarks=remarks,
        wrong=wrong + missing or "Nothing.\n",
        deadline=f"{SECONDS:.0f}",
        chaos=chaos_words(chaos),
        server=newest("serve-faults.md").read_text().strip(),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "reliability.md")
    parser.add_argument("--chaos", type=Path, default=newest("chaos.json"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    patient()
    began = time.monotonic()
    groups, absent = corpus(given.seed)
    given.out.write_text(page(groups, absent, time.monotonic() - began, given.chaos))
    return 1 if absent or any(each.wrong or each.left for each in groups) else 0


if __name__ == "__main__":
    sys.exit(main())
