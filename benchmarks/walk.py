"""A stranger's walk, timed: from a clone to the demo and to green tests, from the wheel to an answer and to a served
request, and from the docs to a rule of one's own.

python benchmarks/walk.py --out benchmarks/results    # clones the last commit; about 15 minutes

Every step is a command of the README or the docs, run where a stranger would run it; packages come from the index that
pip is configured for. Exit code 1 if a step fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
QUESTION = "Ava has 3 boxes of 8 apples. She gives away 5. How many apples does she have now?"
RULE = ("softdlm", "eval", "--split", "test", "--limit", "8", "--commit", "entropy(0.1)", "--no-single", "--feedback",
        "vanilla, slerp(k=1, lam=0.5), examples/my_rules.py:Unsure(bar=0.9, k=1, lam=0.5)")  # fmt: skip


class Walk:
    """Seconds of each step, and the end of what it printed."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.steps = scratch, []
        own = ("PYTHON", "VIRTUAL_ENV", "SOFTDLM", "OMP_")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}

    def step(self, what: str, *command: str, at: Path) -> str:
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=at, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.note(what, time.monotonic() - began, done.stdout, done.returncode)
        return done.stdout

    def note(self, what: str, seconds: float, output: str, code: int) -> None:
        shown = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("WARNING")][-3:]
        self.steps.append({"step": what, "seconds": round(seconds, 1), "exit code": code, "end of output": shown})
        print(json.dumps(self.steps[-1], ensure_ascii=False), flush=True)

    def seconds(self, *names: str) -> float:
        return round(sum(each["seconds"] for each in self.steps if each["step"] in names), 1)


def from_a_clone(walk: Walk, tests: bool) -> Path:
    clone = walk.scratch / "softdlm"
    walk.step("clone", "git", "clone", "--quiet", str(ROOT), str(clone), at=walk.scratch)
    walk.step("make .venv/ready", "make", ".venv/ready", at=clone)
    walk.step("make demo, set up", "make", "demo", at=clone)
    walk.step("a rule of one's own", f".venv/bin/{RULE[0]}", *RULE[1:], at=clone)
    walk.step("make setup", "make", "setup", at=clone)
    if tests:
        walk.step("make test, set up", "make", "test", at=clone)
    return clone


@contextlib.contextmanager
def server(softdlm: Path, at: Path) -> Iterator[str]:
    """The address at which a server says that it is ready."""
    running = subprocess.Popen([softdlm, "serve", "--port", "0"], cwd=at, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr is not None
        said = next(found for line in running.stderr if (found := re.search(r"ready at (\S+)", line)))
        yield said[1]
    finally:
        running.terminate()
        running.wait(30)


def from_the_wheel(walk: Walk, clone: Path) -> None:
    """In an environment of its own, and in an empty folder."""
    walk.step("build the wheel", str(clone / ".venv/bin/python"), "-m", "hatchling", "build", "-t", "wheel", at=clone)
    (wheel,) = (clone / "dist").glob("*.whl")
    empty = walk.scratch / "empty"
    empty.mkdir()
    walk.step("python -m venv", sys.executable, "-m", "venv", "venv", at=walk.scratch)
    pip, softdlm = (walk.scratch / "venv" / "bin" / name for name in ("pip", "softdlm"))
    torch = re.search(r"^TORCH := (\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert torch
    walk.step("pip install torch", str(pip), "--quiet", "install", torch[1], at=empty)
    walk.step("pip install the wheel", str(pip), "--quiet", "install", f"{wheel}[serve]", at=empty)
    walk.step("first answer", str(softdlm), "generate", QUESTION, at=empty)
    began = time.monotonic()
    with server(softdlm, empty) as address:
        body = json.dumps({"messages": [{"role": "user", "content": QUESTION}]}).encode()
        asked = urllib.request.Request(f"{address}/v1/chat/completions", body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answered:
            text = json.loads(answered.read())["choices"][0]["message"]["content"]
    walk.note("softdlm serve to first answer", time.monotonic() - began, text, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-tests", action="store_true", help="leave out `make test`")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="softdlm-walk-"))
    walk = Walk(scratch)
    try:
        clone = from_a_clone(walk, not options.no_tests)
        from_the_wheel(walk, clone)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    installed = ("python -m venv", "pip install torch", "pip install the wheel")
    tested = ("clone", "make .venv/ready", "make setup", "make test, set up")
    result: dict[str, Any] = {
        "date": str(date.today()), "system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count(),
        "clone to demo, s": walk.seconds("clone", "make .venv/ready", "make demo, set up"),
        "clone to green tests, s": None if options.no_tests else walk.seconds(*tested),
        "wheel to first answer, s": walk.seconds(*installed, "first answer"),
        "wheel to first served answer, s": walk.seconds(*installed, "softdlm serve to first answer"),
        "clone to a rule of one's own, measured, s": walk.seconds("clone", "make .venv/ready", "a rule of one's own"),
        "steps": walk.steps,
    }  # fmt: skip
    print(json.dumps({name: value for name, value in result.items() if name != "steps"}, indent=1))
    if options.out:
        text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
        (options.out / f"{result['date']}-walk.json").write_text(text, encoding="utf-8")
    sys.exit(any(step["exit code"] for step in walk.steps))


if __name__ == "__main__":
    main()
