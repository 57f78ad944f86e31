"""Hostile programs are contained with the right verdict and in time, on every back end that works here."""

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from softdlm.sandbox.run import Outcome, Sandbox
from tests.sandbox.escapes import ESCAPES
from tests.sandbox.hostile import ACCIDENTS, CHEATS, REFUSALS, Hostile
from tests.sandbox.working import BACKENDS, ISOLATED, alive, outside, working

PROMISED = [(backend, hostile) for backend in BACKENDS for hostile in (*ACCIDENTS, *REFUSALS, *CHEATS)]
PROMISED += [(backend, hostile) for backend in ISOLATED for hostile in ESCAPES]
GOOD, CHECK = "def f(x):\n    return x + 1\n", "assert f(1) == 2\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[dict[str, str]]:
    with outside(tmp_path) as facts:
        yield facts


def timed(sandbox: Sandbox, program: str, checks: str = "") -> tuple[Outcome, float]:
    start = time.monotonic()
    outcome = sandbox.run(program, checks)
    return outcome, time.monotonic() - start


@pytest.mark.parametrize(("backend", "hostile"), PROMISED, ids=lambda it: getattr(it, "name", it))
def test_hostile_programs_are_contained(backend: str, hostile: Hostile, world: dict[str, str]) -> None:
    """Only those that must run into their deadline get a short one: a busy machine must not make failures late."""
    sandbox = working(backend, seconds=1.0 if hostile.verdict == "timeout" else 10.0)
    program = hostile.program.format(**world) if hostile in ESCAPES else hostile.program
    outcome, seconds = timed(sandbox, program, hostile.checks)
    assert outcome.verdict == hostile.verdict, outcome
    assert re.search(hostile.reason, outcome.detail), outcome
    assert seconds < sandbox.limits.seconds + 1
    assert len(outcome.detail) <= 300
    assert outcome.detail.isprintable()
    assert alive(str(sandbox.limits.memory_bytes)) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_passes_only_when_all_checks_ran(backend: str) -> None:
    sandbox = working(backend)
    assert sandbox.run(GOOD, CHECK).passed
    assert sandbox.run(GOOD).passed
    assert sandbox.run(GOOD, CHECK + "assert f(1) == 3\n").detail == "checks, line 2: AssertionError:"
    assert sandbox.run("def f(x):\n    return x\n", CHECK).verdict == "failed"
    assert sandbox.run("def f(x:", CHECK).detail == "SyntaxError: '(' was never closed (program, line 1)"


HONEST = {
    "noise": "import sys\nprint('x' * 10**6)\nprint('y', file=sys.stderr)",
    "umlauts": "grüße = 'ß' * 3\nassert len(grüße.encode()) == 6",
    "a long source": "x = 0\n" + "x += 1\n" * 30_000 + "assert x == 30_000",
    "a real module": "from __future__ import annotations\nimport dataclasses, pickle\n"
    "@dataclasses.dataclass\nclass A:\n    x: int\nassert pickle.loads(pickle.dumps(A(1))) == A(1)",
    "not the main program": "assert __name__ != '__main__'",
    "many imports": "import asyncio, collections, datetime, decimal, fractions, functools, heapq, statistics, typing",
    "encodings": "assert b'a'.decode('cp1252') == 'a'.encode('utf-16-le').decode('utf-16-le') == 'a'\n"
    "import codecs\nassert codecs.encode('abc', 'rot13') == 'nop'",
    "an event loop": "import asyncio\nasync def f(): return 1\nassert asyncio.run(f()) == 1",
    "calls back from C": "import ctypes\nf = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(abs)\nassert f(-2) == 2",
    "a deep folder": "import os\nfor n in range(500):\n    os.mkdir('d')\n    os.chdir('d')",
    "no site packages": "import importlib.util\nassert importlib.util.find_spec('torch') is None",
    "no import from the working folder": "import sys\nassert '' not in sys.path and '.' not in sys.path",
}
HONEST_ISOLATED = {
    "scratch files": "open('a', 'w').write('b')\nassert open('/tmp/a').read() == 'b'",
    "a fresh scratch folder": "import os\nassert os.listdir('/tmp') == []",
    "threads": "import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()",
    "processes": "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as pool:\n"
    "    assert pool.map(abs, [-1, -2]) == [1, 2]",
    "commands": "import subprocess\nassert subprocess.run(['echo', '1'], capture_output=True).stdout == b'1\\n'",
    "local sockets": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('here')\ns.listen()\n"
    "socket.socket(socket.AF_UNIX).connect('here')",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory\n"
    "SharedMemory(create=True, size=64).unlink()",
    "a child that leaves by itself": "import os, sys\npid = os.fork()\nif not pid: sys.exit(3)\nos.waitpid(pid, 0)",
    "a child that fails the checks": "import os\npid = os.fork()\nif not pid: assert False\nos.waitpid(pid, 0)",
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("backend", BACKENDS)
def test_honest_programs_pass(backend: str, name: str) -> None:
    outcome = working(backend, seconds=10.0).run(HONEST[name])
    assert outcome.passed, outcome


@pytest.mark.parametrize("name", HONEST_ISOLATED)
@pytest.mark.parametrize("backend", ISOLATED)
def test_honest_programs_pass_in_a_sandbox(backend: str, name: str) -> None:
    outcome = working(backend, seconds=10.0).run(HONEST_ISOLATED[name])
    assert outcome.passed, outcome


def test_a_limited_process_starts_no_process_and_makes_no_file_longer() -> None:
    sandbox = working("subprocess")
    assert "BlockingIOError" in sandbox.run("import os\nif os.fork() == 0: os._exit(0)").detail
    assert "can't start new thread" in sandbox.run("import threading\nthreading.Thread(target=print).start()").detail
    assert "File too large" in sandbox.run("with open('new', 'w') as file: file.write('x')").detail


@pytest.mark.parametrize("backend", BACKENDS)
def test_verdicts_do_not_depend_on_a_hash_seed(backend: str) -> None:
    sandbox = working(backend)
    details = {sandbox.run("raise ValueError(hash('softdlm'))").detail for _ in range(3)}
    assert len(details) == 1


def marked_sleep() -> tuple[str, str]:
    """A program that becomes a `sleep` with a mark of its own, and the mark."""
    mark = str(10**9 + secrets.randbelow(10**9))
    return f"import os, time\nos.execv('/bin/sleep', ['sleep', '{mark}'])", f"sleep\0{mark}"


@pytest.mark.parametrize("ending", ["pass", "os._exit(0)"])
@pytest.mark.parametrize("backend", ISOLATED)
def test_a_daemon_does_not_outlive_its_run(backend: str, ending: str) -> None:
    sleep, mark = marked_sleep()
    daemon = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: exec({sleep!r})
    os._exit(0)
while b'sleep' not in b''.join(open(f'/proc/{{p}}/cmdline', 'rb').read(5) for p in os.listdir('/proc') if p.isdigit()):
    time.sleep(0.01)
{ending}
"""
    outcome, seconds = timed(working(backend, seconds=10.0), daemon)
    assert outcome.verdict == ("passed" if ending == "pass" else "failed"), outcome
    assert seconds < 2
    assert alive(mark) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_tree_ends_with_the_process_that_started_it(backend: str, tmp_path: Path) -> None:
    sandbox, (sleep, mark) = working(backend, seconds=60.0), marked_sleep()
    code = f"from softdlm.sandbox.run import *\n{sandbox!r}.run({sleep!r})"
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}) as owner:
        wait_until(lambda: len(alive(mark)) > 0)
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: alive(mark) == [])


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("backend", BACKENDS)
def test_outcomes_come_in_order_and_at_fifteen_a_second(backend: str) -> None:
    """The best of three batches: other tests share the two cores."""
    sandbox = working(backend, seconds=10.0)
    programs = [(f"x = {n}", f"assert x % 5, {n}") for n in range(30)]
    rates = []
    for _ in range(3):
        start = time.monotonic()
        outcomes = sandbox.run_all(programs, workers=2)
        rates.append(len(outcomes) / (time.monotonic() - start))
        assert [outcome.passed for outcome in outcomes] == [n % 5 != 0 for n in range(30)]
        assert [outcome.detail.split()[-1] for outcome in outcomes[::5]] == [str(n) for n in range(0, 30, 5)]
    assert max(rates) >= 15
    assert sandbox.run_all([]) == []
