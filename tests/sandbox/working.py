"""Which back ends work here, for the tests that run programs in them, and what a run may have left on the machine."""

import ctypes
import os
import platform
import secrets
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from softdlm.errors import SandboxError
from softdlm.sandbox.run import Limits, Sandbox, find_sandbox

ISOLATED = ("bubblewrap", "unshare")
BACKENDS = (*ISOLATED, "subprocess")
ALLOW_ALL = b"\x06\0\0\0\0\0\xff\x7f"
"""A filter of system calls that lets everything pass."""


@cache
def problem_here(backend: str) -> str | None:
    """Why this back end does not work here, if so."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            find_sandbox(backend=backend, allow_unsandboxed=True)
    except SandboxError as problem:
        return str(problem)
    return None


def working(backend: str, **limits: Any) -> Sandbox:
    """A sandbox whose processes differ from all others in their limit on memory.

    A back end that fails its self-test here is skipped by name. CI demands bubblewrap, and that no sandbox leaks.
    """
    problem = problem_here(backend) or ""
    if os.environ.get("SOFTDLM_REQUIRE_BUBBLEWRAP"):
        assert not problem or backend != "bubblewrap"
        assert "its self-test ended with failed" not in problem
    if problem:
        pytest.skip(f"{backend}: {problem}")
    return Sandbox(backend, Limits(**{"memory_bytes": 2**28 + secrets.randbelow(2**24), **limits}))


@contextmanager
def outside(folder: Path) -> Iterator[dict[str, str]]:
    """What must not be reached: a secret in the environment, files, and sockets nobody may come to."""
    secret = os.environ["SOFTDLM_SECRET"] = secrets.token_hex(8)
    host_file = folder / "file"
    host_file.write_text(secret)
    folder.chmod(0o777)
    with (
        tempfile.NamedTemporaryFile(dir=Path.home(), prefix=".softdlm-test-") as home_file,
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        closing(socket.socket(socket.AF_UNIX)) as abstract,
    ):
        if sys.platform == "linux":
            abstract.bind(f"\0s{secret}")
            abstract.listen()
        yield {
            "secret": secret,
            "port": str(listener.getsockname()[1]),
            "home_file": home_file.name,
            "host_file": str(host_file),
            "host_folder": str(folder),
        }
        del os.environ["SOFTDLM_SECRET"]
        for server in (listener, abstract) if sys.platform == "linux" else (listener,):
            server.setblocking(False)
            with pytest.raises(BlockingIOError):
                server.accept()
        assert [file.name for file in folder.iterdir()] == ["file"]


def alive(mark: str) -> list[str]:
    """Processes of this machine with these words in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


def left_behind(folder: Path) -> dict[str, object]:
    """What outlives processes: names in a folder, System V objects, keys of this session."""
    objects = {kind: Path("/proc/sysvipc", kind) for kind in ("shm", "sem", "msg")}
    found: dict[str, object] = {kind: file.read_text() for kind, file in objects.items() if file.exists()}
    return found | {"files": sorted(os.listdir(folder)), "keys": session_keys()}


def session_keys() -> bytes:
    """The ids of the keys in this process's session keyring; nothing where there is none."""
    found = ctypes.create_string_buffer(4096)
    size = keyctl(11, -3, found, 4096)
    return found.raw[: max(0, size)]


def new_session_keyring() -> None:
    """For this process and all it starts: without one, each user's processes have another."""
    keyctl(1, None)


def keyctl(*arguments: object) -> int:
    number = {"x86_64": 250, "aarch64": 219}.get(platform.machine())
    return -1 if number is None or platform.system() != "Linux" else ctypes.CDLL(None).syscall(number, *arguments)
