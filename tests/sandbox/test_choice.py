"""The back end is chosen by a self-test, a leaking one is refused, and errors say what failed and what would help."""

import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from softdlm.errors import SandboxError, UsageError
from softdlm.sandbox import backends, process, seccomp
from softdlm.sandbox.run import Limits, Sandbox, find_sandbox
from tests.sandbox.working import ALLOW_ALL, BACKENDS, ISOLATED, problem_here, working


def test_bubblewrap_is_taken_first_then_unshare() -> None:
    works = [backend for backend in ISOLATED if problem_here(backend) is None]
    if not works:
        pytest.skip("neither bubblewrap nor unshare works here")
    assert find_sandbox().backend == works[0]
    assert find_sandbox(Limits(seconds=3.0)).limits.seconds == 3.0


def missing(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    which = backends.shutil.which
    monkeypatch.setattr(backends.shutil, "which", lambda name, **k: None if name in names else which(name, **k))


def test_without_bubblewrap_unshare_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    working("unshare")
    missing(monkeypatch, "bwrap")
    assert find_sandbox().backend == "unshare"
    with pytest.raises(SandboxError, match="bwrap is not installed: install bubblewrap"):
        find_sandbox(backend="bubblewrap")


def test_without_a_sandbox_the_error_names_both_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch, "bwrap", "unshare")
    with pytest.raises(SandboxError, match=r"bwrap is not installed.*unshare is not installed.*allow_unsandboxed=True"):
        find_sandbox()


def test_the_limited_process_needs_the_flag_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    working("subprocess")
    missing(monkeypatch, "bwrap", "unshare")
    with pytest.warns(UserWarning, match="without a sandbox"):
        sandbox = find_sandbox(allow_unsandboxed=True)
    assert (sandbox.backend, sandbox.isolated) == ("subprocess", False)
    with pytest.raises(SandboxError, match="pass allow_unsandboxed=True"):
        find_sandbox(backend="subprocess")


@pytest.mark.parametrize("backend", ISOLATED)
@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ({"SYSTEM_FILES": ("/usr",)}, "the home folder /usr is visible"),
        ({"SYSTEM_FILES": ("/etc",)}, "host files are in reach"),
        ({"SCRATCH_FILES": 10**6}, "files are not counted"),
        ({"ENVIRONMENT": {"PYTHONHASHSEED": "0", "SECRET": "1"}}, "the environment is visible"),
    ],
)
def test_the_self_test_sees_a_sandbox_that_shows_too_much(
    backend: str, what: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    working(backend)
    monkeypatch.setenv("HOME", "/usr")
    for name, value in what.items():
        monkeypatch.setattr(backends, name, value)
        if name == "ENVIRONMENT":
            monkeypatch.setattr("softdlm.sandbox.run.ENVIRONMENT", value)
    with pytest.raises(SandboxError, match=problem):
        find_sandbox(backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_self_test_sees_that_no_filter_is_at_work(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    working(backend)
    monkeypatch.setattr(seccomp, "compiled", lambda machine, isolated: ALLOW_ALL)
    with pytest.raises(SandboxError, match="system calls are not filtered"):
        find_sandbox(backend=backend, allow_unsandboxed=True)


def test_on_a_machine_without_a_filter_there_is_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in ISOLATED:
        working(backend)
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "riscv64")
    with pytest.raises(SandboxError, match=r"bubblewrap: no filter of system calls.*unshare: no filter of system"):
        find_sandbox()


def test_root_without_a_user_to_become_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends.os, "geteuid", lambda: 0)
    monkeypatch.setattr(backends, "is_mapped", lambda users: False)
    with pytest.raises(SandboxError, match="root here has no unused user to become: run softdlm as an ordinary user"):
        find_sandbox(backend="subprocess", allow_unsandboxed=True)


def broken(monkeypatch: pytest.MonkeyPatch, *command: str) -> Sandbox:
    backend = backends.Backend(True, lambda *_: list(command), "repair it")
    monkeypatch.setitem(backends.BACKENDS, "broken", backend)
    return Sandbox("broken")


@pytest.mark.parametrize(
    ("command", "detail"),
    [
        (["/bin/sh", "-c", "echo first >&2; echo no namespaces >&2; exit 1"], "no namespaces"),
        (["/bin/sh", "-c", "exit 7"], "exit status 7"),
        (["/nonexistent"], "No such file"),
        (["/bin/sleep", "60"], "no answer within 0.5 s"),
    ],
)
def test_a_sandbox_that_does_not_start_is_an_error_not_a_failure(
    command: list[str], detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "START_SECONDS", 0.5)
    monkeypatch.setattr(process, "END_SECONDS", 0.1)
    sandbox = broken(monkeypatch, *command)
    for program in ("x = 1", "x = 1\n" * 100_000):
        outcome = sandbox.run(program)
        assert outcome.verdict == "error"
        assert detail in outcome.detail
    with pytest.raises(SandboxError, match=rf"{detail}.*\(repair it\)"):
        find_sandbox(backend="broken")


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown back end 'docker': one of bubblewrap, unshare, subprocess"):
        find_sandbox(backend="docker")
    with pytest.raises(UsageError, match="limit seconds must be above 0 and finite, not 0"):
        Limits(seconds=0)
    with pytest.raises(UsageError, match="finite, not inf"):
        Limits(seconds=float("inf"))


def test_the_example_in_the_docs_runs() -> None:
    if all(map(problem_here, ISOLATED)):
        pytest.skip("no sandbox here")
    name = find_sandbox().backend
    page = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == ([name, "passed"], "")


def test_the_record_says_how_programs_were_run() -> None:
    record = Sandbox("subprocess", Limits(seconds=2.0)).record()
    assert (record["backend"], record["isolated"]) == ("subprocess", False)
    assert record["limits"] == asdict(Limits(seconds=2.0))
