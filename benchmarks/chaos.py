"""A grid under faults: `softdlm eval` is run again and again, each time disturbed, and must end with the right samples.

    python benchmarks/chaos.py [--rounds 50] [--seed 0] [--out benchmarks/results]

Two tiny models (LLaDA's and Dream's format) answer mini-math. In each round a real process is killed at a random
moment, runs out of disk, meets a limit on the size of files, has a checkpoint's folder swapped for another one and
later swapped back, or finds a journal whose last line was torn off. After every round each sample on disk must be one
that an undisturbed run gives to the same weights, and standard error may hold progress and lines `softdlm: ...` only.
A folder that is finished is compared as a whole and the next one begun; the last one is finished undisturbed. Exit
code 1 if anything else happens.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from safetensors.torch import load_file, save_file  # noqa: E402

from softdlm.errors import ResultsError  # noqa: E402
from softdlm.records.journal import SAMPLES, SUMMARY, Sample, read_samples  # noqa: E402
from tests.tokenizers import checkpoint  # noqa: E402

NAMES = ("llada", "dream")
WORDS = ["eval", "-m", ",".join(NAMES), "--task", "mini-math", "--limit", "24", "-n", "32", "-t", "1,2"]
WORDS += ["--feedback", "vanilla,slerp", "--no-single", "--device", "cpu", "--batch-size", "4", "--out"]
PATIENCE = 120.0
"""Seconds after which a round counts as one that never ends."""
DISK = 24 << 20
"""Bytes of the small disk; a run wants 16 MiB free before it begins."""
PART = ".softdlm-*"
"""Files that are being written; a kill in that moment leaves one, which nothing reads."""
Answers = dict[str, dict[str, tuple[str, str, int]]]
"""By cell and item: text, digest of the ids, passes."""
End = tuple[int | None, str]
"""The exit code of a process, none if it does not end, and what it said."""
Act = Callable[[Path], End]
FAULTS = ("kill", "kill", "swap", "swap", "torn line", "file limit", "full disk")


@dataclass
class Tally:
    """What happened, and what should not have."""

    rounds: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    finished: int = 0
    samples_compared: int = 0
    foreign_cells: int = 0
    parts_left: int = 0


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[bool]:
    """A folder of its own on a small file system in memory, where that can be mounted; says whether it is one."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(place)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)


def models(place: Path) -> None:
    """Two checkpoints and, aside, another one of each format: the same sizes, other weights."""
    for name in NAMES:
        checkpoint(place / name, name)
        other = checkpoint(place / "aside" / name, name)
        tensors = load_file(other / "model.safetensors")
        tensors = {key: tensor.flip(0).contiguous() if tensor.ndim == 2 else tensor for key, tensor in tensors.items()}
        save_file(tensors, other / "model.safetensors")


def swap(place: Path, name: str) -> None:
    """The checkpoint and the one aside change places; for a moment there is none."""
    (place / name).rename(place / "away")
    (place / "aside" / name).rename(place / name)
    (place / "away").rename(place / "aside" / name)


def answers(out: Path) -> Answers:
    """All samples of a folder of results; raises ResultsError where a journal is damaged."""
    cells = sorted(file.parent for file in out.glob(f"*/{SAMPLES}"))
    return {cell.name: {key: _essence(each) for key, each in read_samples(cell / SAMPLES)[0].items()} for cell in cells}


def _essence(sample: Sample) -> tuple[str, str, int]:
    return sample.text, sample.ids_digest, sample.forwards


def start(place: Path, out: Path, most: int | None = None) -> subprocess.Popen[str]:
    """The command in a process of its own; `most`: bytes that a file of it may have."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def limit() -> None:
        if most is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    command = [sys.executable, "-m", "softdlm", *WORDS, str(out)]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=place, env=environment, text=True, preexec_fn=limit, **pipes)


def ended(process: subprocess.Popen[str]) -> End:
    try:
        said = process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, ""
    return process.returncode, said


def undisturbed(place: Path, out: Path) -> float:
    """A run that nothing happens to; seconds it took."""
    began = time.monotonic()
    code, said = ended(start(place, out))
    if code != 0:
        raise SystemExit(f"an undisturbed run ended with {code}: {said[-2000:]}")
    return time.monotonic() - began


def expected(place: Path, out: Path) -> tuple[Answers, set[str], float]:
    """The answers of both pairs of weights, the cells of the first pair, and the seconds of a run."""
    seconds = undisturbed(place, out)
    first = answers(out)
    for name in NAMES:
        swap(place, name)
    undisturbed(place, out)
    for name in NAMES:
        swap(place, name)
    both = answers(out)
    other = [cell for key, cell in both.items() if key not in first]
    assert len(other) == len(first)
    assert not any(cell in first.values() for cell in other), "the other weights give the same answers"
    return both, set(first), seconds


@dataclass(frozen=True)
class Scene:
    """Where the rounds happen, and what they draw from."""

    place: Path
    disk: Path
    seconds: float
    draw: random.Random

    def pause(self, process: subprocess.Popen[str]) -> None:
        """Until a random moment of a run, more often in its middle, or its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.draw.triangular(0.0, 1.1 * self.seconds))

    def kill(self, out: Path) -> End:
        process = start(self.place, out)
        self.pause(process)
        process.kill()
        return ended(process)

    def torn_line(self, out: Path) -> End:
        """The last line of a journal loses its end; what comes then is killed too."""
        files = [file for file in sorted(out.glob(f"*/{SAMPLES}")) if file.stat().st_size]
        if files:
            file = self.draw.choice(files)
            data = file.read_bytes()
            last = len(data.splitlines(keepends=True)[-1])
            file.write_bytes(data[: len(data) - self.draw.randrange(1, last + 1)])
        return self.kill(out)

    def file_limit(self, out: Path) -> End:
        return ended(start(self.place, out, most=self.draw.randrange(7_000)))

    def full_disk(self, out: Path) -> End:
        """At a random moment something else takes all the space, until the round is over."""
        process, ballast = start(self.place, out), self.disk / "ballast"
        self.pause(process)
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(DISK))
        end = ended(process)
        ballast.unlink()
        return end

    def swap(self, out: Path) -> End:
        """Another checkpoint lies in the folder from some moment on, until another moment."""
        name = self.draw.choice([*NAMES, NAMES[-1]])  # the last is planned with the others and loaded long after
        process = start(self.place, out)
        self.pause(process)
        swap(self.place, name)
        if self.draw.random() < 0.4:
            self.pause(process)
            swap(self.place, name)
            return ended(process)
        end = ended(process)
        swap(self.place, name)
        return end


def faults_of(said: str) -> tuple[list[str], list[str]]:
    """The refusals that a process printed, and lines that are neither a refusal nor progress."""
    lines = [line for line in said.splitlines() if line.strip() and line[0] not in "█░▏▎▍▌▋▊▉"]
    refused = [line for line in lines if line.startswith("softdlm: ") and "a mistake in softdlm" not in line]
    return refused, [line for line in lines if line not in refused]


def one_round(fault: str, act: Act, out: Path, right: Answers, tally: Tally) -> None:
    """Disturb a run, then look at how it ended and at what is on disk."""
    code, said = act(out)
    refused, other = faults_of(said)
    tally.rounds[fault] += 1
    tally.ends["hang" if code is None else f"signal {-code}" if code < 0 else f"exit {code}"] += 1
    tally.refusals.update(re.sub(r"[^ ]*(/|[0-9a-f]{9})[^ ]*", "...", line)[:160] for line in refused)
    if code not in (0, 1, 2, -9) or (code == -9 and fault not in ("kill", "torn line")):
        tally.wrong.append(f"{fault}: exit code {code}")
    if other and code != -9:
        tally.wrong.append(f"{fault}: {other[-1][:300]}")
    if "Traceback" in said or (code in (1, 2) and not refused):
        tally.wrong.append(f"{fault}: exit code {code} without one clear line: {said[-300:]!r}")
    try:
        found = answers(out)
    except ResultsError as error:
        tally.wrong.append(f"{fault}: a journal cannot be read: {error}")
        return
    for key, cell in found.items():
        tally.samples_compared += len(cell)
        if not cell.items() <= right.get(key, {}).items():
            tally.wrong.append(f"{fault}: cell {key} has other answers than an undisturbed run")


def finished(out: Path, wanted: set[str], right: Answers) -> bool:
    """Whether every cell has its summary and all its samples: a line may have been torn off after the summary."""
    found = answers(out)
    return all((out / key / SUMMARY).exists() and len(found.get(key, ())) == len(right[key]) for key in wanted)


def compare(out: Path, right: Answers, wanted: set[str], tally: Tally) -> None:
    """A finished folder beside an undisturbed one."""
    found = answers(out)
    tally.finished += 1
    tally.foreign_cells += len(found.keys() - wanted)
    tally.parts_left += len([*out.rglob(PART)])
    tally.wrong += [f"finished cell {key} is another" for key in sorted(wanted) if found.get(key) != right[key]]


def chaos(rounds: int, seed: int) -> dict[str, Any]:
    began, tally, draw = time.monotonic(), Tally(), random.Random(seed)
    with tempfile.TemporaryDirectory() as name, small_disk(disk := Path(name) / "disk") as mounted:
        models(place := disk.parent)
        right, wanted, seconds = expected(place, place / "right")
        scene = Scene(place, disk, seconds, draw)
        faults, folder = [each for each in FAULTS if mounted or each != "full disk"], disk / "0"
        for number in range(rounds):
            fault = faults[number] if number < len(faults) else draw.choice(faults)
            one_round(fault, getattr(scene, fault.replace(" ", "_")), folder, right, tally)
            print(f"{number + 1}: {fault}: {dict(tally.ends)}, {len(tally.wrong)} wrong", flush=True)
            if finished(folder, wanted, right):
                compare(folder, right, wanted, tally)
                shutil.rmtree(folder)
                folder = disk / str(number + 1)
        undisturbed(place, folder)
        compare(folder, right, wanted, tally)
    machine = {"cores": os.cpu_count(), "kernel": platform.release().split("-")[0], "python": platform.python_version()}
    how = "a tmpfs that something else fills" if mounted else "not tried (no mount); RLIMIT_FSIZE only"
    facts = {"date": str(date.today()), "seed": seed, "seconds": round(time.monotonic() - began), "full disk": how}
    return facts | machine | vars(tally)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    summary = chaos(given.rounds, given.seed)
    print(json.dumps(summary, indent=1))
    if given.out:
        (given.out / f"{summary['date']}-chaos.json").write_text(json.dumps(summary, indent=1) + "\n")
    sys.exit(1 if summary["wrong"] else 0)
