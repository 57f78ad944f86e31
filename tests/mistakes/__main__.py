"""Does each test fail when the code is wrong? Plant one mistake at a time, in a copy of the sources, and see.

python -m tests.mistakes            # all
python -m tests.mistakes slerp      # those whose row mentions the word
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.mistakes.rows import MISTAKES, ROOT, Mistake


def run_tests(tests: str, mistake: Mistake | None = None) -> subprocess.CompletedProcess[str]:
    """The tests on a copy of the sources, with the mistake in."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        for name in ("src", "tests", "docs", "examples"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
            shutil.copy(ROOT / name, copy)
        if mistake is not None:
            file = copy / "src" / "softdlm" / mistake.file
            file.write_text(mistake.plant(file.read_text(encoding="utf-8")), encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src"), "SOFTDLM_REQUIRE_BUBBLEWRAP": "1"},
            capture_output=True,
            text=True,
        )


@cache
def passes(tests: str) -> bool:
    """Whether the tests pass without a mistake; where they do not, their failure proves nothing."""
    return run_tests(tests).returncode == 0


def problem(mistake: Mistake) -> str | None:
    """None if the tests notice the mistake, else what is wrong."""
    if not passes(mistake.tests):
        return f"{mistake.tests} fails without the mistake"
    done = run_tests(mistake.tests, mistake)
    if done.returncode == 1:
        return None
    return f"pytest ended with {done.returncode}: {done.stdout[-300:]}" if done.returncode else "the tests passed"


def main() -> int:
    chosen = [each for each in MISTAKES if all(word in " ".join(each) for word in sys.argv[1:])]
    missed = 0
    for mistake in chosen:
        found = problem(mistake)
        missed += found is not None
        end = f": {found}" if found else ""
        print(f"{'MISSED' if found else 'seen  '}  {mistake.law}  ({mistake.file}){end}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} seeded mistakes were noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
