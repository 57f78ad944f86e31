"""The limited process: passes what is right and survives what is wrong."""

import time

import pytest

from softdlm.tasks.run_python import passes

GOOD = "def f(x):\n    return x + 1\n"
CHECK = "assert f(1) == 2\n"


def test_passes_only_when_all_checks_ran():
    assert passes(GOOD, CHECK)
    assert not passes(GOOD, CHECK + "assert f(1) == 3\n")
    assert not passes("def f(x):\n    return x\n", CHECK)


@pytest.mark.parametrize(
    "program",
    [
        "def f(x:",
        "raise SystemExit(0)",
        "import os\nos._exit(0)",
        "def f(x):\n    quit()",
        "print('ok')\nimport sys\nsys.exit(0)",
        "def f(x):\n    return [0] * 10**10",
        "def f(x):\n    return f(x)",
        "import numpy\n" + GOOD,
        "with open('trace', 'w') as file:\n    file.write('x')\n" + GOOD,
        "\ud800",
    ],
)
def test_a_bad_program_fails(program):
    assert not passes(program, CHECK)


def test_noise_on_stdout_changes_nothing():
    assert passes("print('x' * 100000)\n" + GOOD, CHECK)


@pytest.mark.parametrize("program", ["while True:\n    pass\n", "import time\ntime.sleep(60)\n"])
def test_loops_and_sleepers_are_stopped(program):
    start = time.monotonic()
    assert not passes(program, CHECK, timeout=1.0)
    assert time.monotonic() - start < 5


def test_no_environment_is_inherited(monkeypatch):
    monkeypatch.setenv("SOFTDLM_SECRET", "1")
    assert passes("import os\nassert 'SOFTDLM_SECRET' not in os.environ\n" + GOOD, CHECK)
