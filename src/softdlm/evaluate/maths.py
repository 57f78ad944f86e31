"""Checking mathematics in a process of its own, with a hard limit.

Math-Verify and sympy bound themselves by SIGALRM, which works in no thread but the main one and cannot stop every
loop; and they swallow their failures. So a worker answers one question at a time, and one that does not answer is
killed and counted.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from functools import cache
from typing import Literal, NamedTuple

from softdlm.errors import SoftDLMError

LIMIT = 10.0
"""Seconds for one question."""
START_LIMIT = 120.0
"""Seconds for the worker to import its libraries."""

Question = Literal["math_verify", "minerva"]


class MathError(SoftDLMError):
    """The worker cannot start, as without the packages of the `eval` extra."""


class Judgement(NamedTuple):
    equal: bool
    problem: str = ""
    """Why there was no comparison: "timeout", or the error that the libraries raised on this answer."""


class MathChecker:
    """One worker process; started when first asked, restarted after a time-out."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit = limit
        self.timeouts = 0
        self._worker: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def equal(self, question: Question, gold: str, answer: str) -> Judgement:
        """Whether an answer's text says the same as the gold.

        For `math_verify` gold is the bare answer, for `minerva` the whole reference solution.
        """
        with self._lock:
            worker = self._running()
            request = json.dumps([question, gold, answer]).encode() + b"\n"
            reply = self._ask(worker, request, self.limit)
            if reply is None:
                self.timeouts += 1
                self.close()
                return Judgement(False, "timeout")
            self.timeouts += reply[1] == "timeout"
        return Judgement(*reply)

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._worker is None or self._worker.poll() is not None:
            self.close()
            self._worker = _start()
            ready = _read_line(self._worker, START_LIMIT)
            greeting = json.loads(ready) if ready else "no answer"
            if greeting != "ready":
                self.close()
                raise MathError(f"mathematics cannot be checked: {greeting}; pip install 'softdlm[eval]'")
        return self._worker

    def _ask(self, worker: subprocess.Popen[bytes], request: bytes, limit: float) -> tuple[bool, str] | None:
        """The worker's reply, None when it did not answer in time."""
        assert worker.stdin is not None
        try:
            worker.stdin.write(request)
            worker.stdin.flush()
        except BrokenPipeError:
            return False, "the worker died"
        line = _read_line(worker, limit)
        return None if line is None else tuple(json.loads(line)) if line else (False, "the worker died")


@cache
def checker() -> MathChecker:
    """The worker that all tasks of this process share."""
    shared = MathChecker()
    atexit.register(shared.close)
    return shared


def _start() -> subprocess.Popen[bytes]:
    """A fresh interpreter, never a fork of the process that holds the model, with this one's import path."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "softdlm.evaluate.math_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
    )


def _read_line(worker: subprocess.Popen[bytes], limit: float) -> bytes | None:
    """One line within the limit; empty where the worker has ended, None where it is too slow."""
    assert worker.stdout is not None
    descriptor, deadline, line = worker.stdout.fileno(), time.monotonic() + limit, b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        piece = os.read(descriptor, 4096)
        if not piece:
            return b""
        line += piece
    return line
