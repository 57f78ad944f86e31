"""Runs generated code: a program, then its checks, and a verdict that the code cannot write itself.

A sandbox is self-tested before use. `find_sandbox` takes the first back end that works: bubblewrap; namespaces through
`unshare`; and, only on an explicit flag, a limited process, which contains accidents (loops, memory, crashes) and no
malice. See docs/sandbox.md.
"""

import math
import os
import platform
import secrets
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, Literal

from softdlm.errors import SandboxError, UsageError
from softdlm.sandbox.backends import BACKENDS, ENVIRONMENT, unused_user, visible_paths
from softdlm.sandbox.process import Report, converse
from softdlm.sandbox.self_test import self_test

Verdict = Literal["passed", "failed", "timeout", "output", "error"]
DETAIL_CHARS = 300
REMEDY = (
    "allow user namespaces (Ubuntu 24.04: sysctl kernel.apparmor_restrict_unprivileged_userns=0; Docker: "
    "--security-opt seccomp=unconfined, apparmor=unconfined and systempaths=unconfined), or accept the risk with "
    "allow_unsandboxed=True"
)


@dataclass(frozen=True)
class Outcome:
    """`error` says nothing about the program: the sandbox itself did not start. `detail` is one bounded line."""

    verdict: Verdict
    detail: str
    seconds: float

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"


@dataclass(frozen=True)
class Limits:
    """Per run. Memory and files count per process; the scratch folder exists only in a sandbox."""

    seconds: float = 10.0
    memory_bytes: int = 2**30
    scratch_bytes: int = 64 * 2**20
    file_bytes: int = 16 * 2**20
    processes: int = 32
    files: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise UsageError(f"limit {name} must be above 0, not {value}")


@dataclass(frozen=True)
class Sandbox:
    """Where programs run. `find_sandbox` returns one that passed its self-test; one made by hand was not tested."""

    backend: str
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UsageError(f"unknown back end {self.backend!r}: one of {', '.join(BACKENDS)}")

    @property
    def isolated(self) -> bool:
        """Whether it contains hostile code, and not only accidents."""
        return BACKENDS[self.backend].isolated

    def record(self) -> dict[str, Any]:
        """What a result must say about how its programs were run."""
        facts = {"backend": self.backend, "isolated": self.isolated, "python": platform.python_version()}
        return facts | {"limits": asdict(self.limits)}

    def run(self, program: str, checks: str = "") -> Outcome:
        """Passes only if the program and then the checks, in the program's namespace, ran to their end."""
        halves = secrets.token_hex(32), f"{secrets.token_hex(32)}\n"
        payload = b"".join(map(framed, (program, checks, halves[0]))) + halves[1].encode()
        user = None if self.isolated else unused_user()
        call = f"main({self._rlimits()!r}, {user})"
        command = partial(BACKENDS[self.backend].command, call, self.limits.scratch_bytes)
        try:
            with nullcontext() if self.isolated else scratch_folder() as folder:
                report = converse(command, payload, self.limits.seconds, folder, ENVIRONMENT)
        except OSError as problem:
            return Outcome("error", one_line(str(problem)), 0.0)
        return verdict_on(report, "".join(halves))

    def run_all(self, programs: Sequence[tuple[str, str]], workers: int | None = None) -> list[Outcome]:
        """Outcomes of (program, checks) pairs in order; each worker waits for one process at a time."""
        with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
            return list(pool.map(self.run, *zip(*programs, strict=True))) if programs else []

    def _rlimits(self) -> dict[str, int]:
        """A limited process may start no other and make no file longer, since nothing else would stop it."""
        limits = {
            "RLIMIT_CPU": math.ceil(self.limits.seconds) + 1,
            "RLIMIT_NPROC": self.limits.processes if self.isolated else 0,
            "RLIMIT_FSIZE": self.limits.file_bytes if self.isolated else 0,
            "RLIMIT_NOFILE": self.limits.files,
            "RLIMIT_CORE": 0,
        }
        return limits if sys.platform == "darwin" else limits | {"RLIMIT_AS": self.limits.memory_bytes}


@contextmanager
def scratch_folder() -> Iterator[str]:
    """The working folder of a limited process, writable for any user."""
    with TemporaryDirectory(prefix="softdlm-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o777)
        yield folder


def framed(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(8, "big") + data


def verdict_on(report: Report, nonce: str) -> Outcome:
    if report.end == "answered" and report.words == nonce:
        return Outcome("passed", "", report.seconds)
    verdicts: dict[str, tuple[Verdict, str]] = {
        "answered": ("failed", report.words),
        "closed": ("failed", f"ended before its checks did: {report.words}"),
        "late": ("timeout", f"stopped after {report.seconds:.1f} s"),
        "flood": ("output", "wrote to the descriptor that is the driver's"),
        "unstarted": ("error", report.words),
    }
    verdict, detail = verdicts[report.end]
    return Outcome(verdict, one_line(detail), report.seconds)


def one_line(text: str) -> str:
    """Bounded and printable: a candidate may have chosen the words."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:DETAIL_CHARS]


def find_sandbox(limits: Limits = Limits(), *, allow_unsandboxed: bool = False, backend: str | None = None) -> Sandbox:
    """The first back end that passes its self-test on this machine, or the named one if it does.

    The limited process is never taken without `allow_unsandboxed`, and never in silence.
    """
    allowed = [name for name, it in BACKENDS.items() if it.isolated or allow_unsandboxed]
    if backend in BACKENDS and backend not in allowed:
        raise SandboxError(
            f"back end {backend!r} does not contain hostile code: pass allow_unsandboxed=True to accept that"
        )
    problems = {}
    for sandbox in (Sandbox(name, limits) for name in ([backend] if backend else allowed)):
        problem = problem_with(sandbox)
        if problem is None:
            if not sandbox.isolated:
                warnings.warn("generated code will run without a sandbox, as a limited process", stacklevel=2)
            return sandbox
        problems[sandbox.backend] = f"{problem} ({BACKENDS[sandbox.backend].remedy})"
    reasons = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    raise SandboxError(f"no sandbox for generated code works here. {reasons}. What may help: {REMEDY}")


def problem_with(sandbox: Sandbox) -> str | None:
    """Why the back end fails its self-test; None if it passes right programs, fails wrong ones and hides the host."""
    try:
        with NamedTemporaryFile(prefix="softdlm-hidden-") as hidden:
            views, links = visible_paths()
            right = sandbox.run(self_test(sandbox.isolated, views, [*links], [hidden.name, "/etc/passwd"]))
        wrong = sandbox.run("x = 1", "assert x == 2")
    except SandboxError as problem:
        return str(problem)
    if not right.passed:
        return f"its self-test ended with {right.verdict}: {right.detail}"
    return None if wrong.verdict == "failed" else f"a failing check gave {wrong.verdict}: {wrong.detail}"
