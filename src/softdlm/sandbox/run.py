"""Runs generated code: a program, then its checks, and a verdict that the code cannot write itself.

A sandbox is self-tested before use. `find_sandbox` takes the first back end that works: bubblewrap; namespaces through
`unshare`; and, only on an explicit flag, a limited process, which is no sandbox: it contains accidents (loops, memory,
crashes) and no malice. See docs/sandbox.md.
"""

import math
import os
import platform
import resource
import secrets
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

from softdlm.errors import SandboxError, UsageError
from softdlm.sandbox.backends import BACKENDS, ENVIRONMENT, SCRATCH_FILES, visible_paths
from softdlm.sandbox.control_group import control_group, delegated
from softdlm.sandbox.landlock import files_can_be_confined
from softdlm.sandbox.process import Launch, Report, converse
from softdlm.sandbox.scratch import scratch_folder
from softdlm.sandbox.seccomp import filter_for, filter_is_known
from softdlm.sandbox.self_test import Promises, self_test

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
            if not 0 < value < math.inf:
                raise UsageError(f"limit {name} must be above 0 and finite, not {value}")


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
        """What a result must say about how its programs were run: all that can change a verdict."""
        facts = {"backend": self.backend, "isolated": self.isolated, "python": platform.python_version()}
        confined = {} if self.isolated else {"files confined": files_can_be_confined()}
        counted = {"control group": True} if delegated() else {}
        return facts | confined | counted | {"limits": asdict(self.limits)}

    def run(self, program: str, checks: str = "") -> Outcome:
        """Passes only if the program and then the checks, in the program's namespace, ran to their end."""
        numbers = secrets.randbits(256), secrets.randbits(256)
        framed_texts = b"".join(map(framed, (program, checks, f"{numbers[0]:x}")))
        backend, scratch = BACKENDS[self.backend], self.limits.scratch_bytes
        command = partial(backend.command, self._rlimits(), scratch)
        files, amounts = (filter_for(True),) if backend.reads_filter else (), self._tree_limits()
        try:
            with nullcontext() if self.isolated else scratch_folder() as folder, control_group(*amounts) as group:
                start = command if group is None else lambda given: group.entering(command(given))
                launch = Launch(start, files, folder, ENVIRONMENT)
                report = converse(launch, framed_texts + b"%064x\n" % numbers[1], self.limits.seconds)
        except OSError as problem:
            return Outcome("error", one_line(str(problem)), 0.0)
        return verdict_on(report, f"{numbers[0] ^ numbers[1]:064x}\n")

    def run_all(self, programs: Sequence[tuple[str, str]], workers: int | None = None) -> list[Outcome]:
        """Outcomes of (program, checks) pairs in order; each worker waits for one process at a time."""
        with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
            return list(pool.map(self.run, *zip(*programs, strict=True))) if programs else []

    def _tree_limits(self) -> tuple[int, int]:
        """Memory and processes of a tree as a whole, where a control group counts them; scratch space is memory."""
        return self.limits.memory_bytes + self.limits.scratch_bytes, self.limits.processes

    def _rlimits(self) -> dict[int, int]:
        """A limited process may start no other and make no file longer, since nothing else would stop it."""
        limits = {
            resource.RLIMIT_CPU: math.ceil(self.limits.seconds) + 1,
            resource.RLIMIT_NPROC: self.limits.processes if self.isolated else 0,
            resource.RLIMIT_FSIZE: self.limits.file_bytes if self.isolated else 0,
            resource.RLIMIT_NOFILE: self.limits.files,
            resource.RLIMIT_CORE: 0,
        }
        return limits if sys.platform == "darwin" else limits | {resource.RLIMIT_AS: self.limits.memory_bytes}


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
            f"back end {backend!r} is a limited process, not a sandbox: pass allow_unsandboxed=True to accept the risk"
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
            os.chmod(hidden.name, 0o666)
            right = sandbox.run(self_test(promises(sandbox, hidden.name), sandbox.isolated))
        wrong = sandbox.run("x = 1", "assert x == 2")
    except SandboxError as problem:
        return str(problem)
    if not right.passed:
        return f"its self-test ended with {right.verdict}: {right.detail}"
    return None if wrong.verdict == "failed" else f"a failing check gave {wrong.verdict}: {wrong.detail}"


def promises(sandbox: Sandbox, hidden: str) -> Promises:
    """`hidden` is a file of the host that anybody may read and write."""
    views, links = visible_paths()
    shown = sorted({str(folder) for view in views for folder in (Path(view), *Path(view).parents)})
    return Promises(
        home=os.path.expanduser("~"),
        shown=shown,
        own=["/dev", "/proc", "/tmp", *links],
        hidden=[hidden, "/etc/passwd"],
        scratch_files=SCRATCH_FILES,
        filtered=sandbox.isolated or filter_is_known(),
        confined=sandbox.isolated or files_can_be_confined(),
    )
