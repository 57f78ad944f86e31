"""Seeded mistakes: for each law or promise, one way to break it and the tests that must notice.

The rows lie in the text files of this folder. `# file | tests` heads a group: a file of src/softdlm, and arguments of
pytest. A row is its law in words, the right text behind `- `, and the wrong text behind `+ `:

    # commit.py | tests/test_commit.py
    ties go to the earlier position
    - stable=True
    + stable=False
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Mistake(NamedTuple):
    law: str
    file: str
    """Below src/softdlm."""
    right: str
    wrong: str
    tests: str
    """Arguments of pytest: paths, and perhaps `-k word`."""

    def plant(self, source: str) -> str:
        """The file with the mistake in; its place must be unambiguous."""
        if (times := source.count(self.right)) != 1:
            raise ValueError(f"{self.file} holds {self.right!r} {times} times, not once")
        return source.replace(self.right, self.wrong)


def read_rows(text: str) -> list[Mistake]:
    """The rows of one file."""
    found: list[Mistake] = []
    file = tests = law = ""
    right: list[str] = []
    wrong: list[str] = []

    def close() -> None:
        if law:
            found.append(Mistake(law, file, "\n".join(right), "\n".join(wrong), tests))
        right.clear()
        wrong.clear()

    for line in text.splitlines():
        if line.startswith("- "):
            right.append(line[2:])
        elif line.startswith("+"):
            wrong.append(line[2:])
        elif line:
            close()
            head, law = line.startswith("# "), "" if line.startswith("# ") else line
            file, tests = line[2:].split(" | ") if head else (file, tests)
    close()
    return found


MISTAKES = tuple(row for area in sorted(HERE.glob("*.txt")) for row in read_rows(area.read_text(encoding="utf-8")))
