"""No row of the seeded mistakes is stale: each can still be planted, and the tests that must notice are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.mistakes.rows import MISTAKES, ROOT, Mistake


@cache
def readable(file: Path) -> str:
    """A file of tests, and what it imports from other files of tests: the names that `-k` may mean."""
    text = file.read_text(encoding="utf-8")
    near = {
        ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in re.findall(r"^from (tests[\w.]*) ", text, re.M)
    }
    return text + "".join(each.read_text(encoding="utf-8") for each in near if each.is_file())


def missing_tests(row: Mistake) -> list[str]:
    """What of the row's tests is not there: a path, a test by name, a word behind -k."""
    places, _, word = row.tests.partition(" -k ")
    missing = []
    for place in places.split():
        path, _, name = place.partition("::")
        name = name.partition("[")[0]
        file = ROOT / path
        if not file.exists() or (name and f"def {name}(" not in file.read_text(encoding="utf-8")):
            missing.append(place)
        elif word and word not in readable(file):
            missing.append(f"{place} -k {word}")
    return missing


@pytest.mark.parametrize("row", MISTAKES, ids=lambda row: f"{row.file}: {row.law}")
def test_a_row_can_be_planted_and_its_tests_are_there(row: Mistake) -> None:
    source = (ROOT / "src" / "softdlm" / row.file).read_text(encoding="utf-8")
    planted = row.plant(source)
    if row.file.endswith(".py"):
        ast.parse(planted)
    assert row.wrong.split() != row.right.split()
    assert row.tests
    assert not missing_tests(row)


def test_no_mistake_is_planted_twice() -> None:
    planted = [(row.file, row.right, row.wrong, row.tests) for row in MISTAKES]
    assert len(set(planted)) == len(planted)


def test_a_stale_row_is_found() -> None:
    row = next(row for row in MISTAKES if row.file == "commit.py")
    with pytest.raises(ValueError, match="0 times, not once"):
        row.plant("nothing of the kind")
    with pytest.raises(ValueError, match="2 times, not once"):
        row.plant(2 * row.right)
    for tests in ("tests/test_gone.py", "tests/test_commit.py::test_gone", "tests/test_commit.py -k goneaway"):
        assert missing_tests(row._replace(tests=tests)) == [tests]
