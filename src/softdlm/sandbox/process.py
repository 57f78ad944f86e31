"""One conversation with one process tree: bounded in time and in bytes, and nothing of the tree is left after it."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from softdlm.sandbox.backends import Descriptors

START_SECONDS = 20.0
"""How long sandbox and interpreter may take to start; the program's own time begins after that."""
END_SECONDS = 5.0
"""How long a tree may take to end once it was killed."""
REPORT_BYTES = 4096

End = Literal["unstarted", "answered", "closed", "late", "flood"]


@dataclass(frozen=True)
class Report:
    """How the conversation ended, with the answer, or with what explains that there is none."""

    end: End
    words: str
    seconds: float


@dataclass(frozen=True)
class Launch:
    """How the process is started. `folder` is where a limited process runs; a sandbox has its own, and descriptors.

    A limited process never gets the status descriptor: whatever pid is written there is killed.
    """

    command: Callable[[Descriptors], list[str]]
    files: tuple[bytes, ...]
    folder: str | None
    environment: dict[str, str]


def converse(launch: Launch, payload: bytes, seconds: float) -> Report:
    """Hands over the payload and waits for two lines: "ready", then, within `seconds`, the answer."""
    begun = time.monotonic()
    with started(launch) as process:
        source, report = (stream.fileno() for stream in (process.stdin, process.stdout) if stream)
        hand_over(source, payload, begun + START_SECONDS)
        end, heard = listen(report, b"", 1, begun + START_SECONDS)
        if end != "answered":
            return Report("unstarted", complaint(process), time.monotonic() - begun)
        begun = time.monotonic()
        end, heard = listen(report, heard, 2, begun + seconds)
        words = heard.partition(b"\n")[2].decode("utf-8", "backslashreplace")
        if end == "closed":
            end, words = exit_status(process, begun + seconds)
        return Report(end, words, time.monotonic() - begun)


@contextmanager
def started(launch: Launch) -> Iterator[subprocess.Popen[bytes]]:
    """The process, in a session of its own."""
    reader, writer = os.pipe()
    files = [holding(data) for data in launch.files]
    process = None
    try:
        process = subprocess.Popen(
            launch.command(Descriptors(writer, *files)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=() if launch.folder else (writer, *files),
            start_new_session=True,
            cwd=launch.folder or "/",
            env=launch.environment,
        )
        yield process
    finally:
        for descriptor in (writer, *files):
            os.close(descriptor)
        if process is not None:
            end_tree(process, reader)
        os.close(reader)


def holding(data: bytes) -> int:
    """A file in memory with these bytes, open at its beginning."""
    file = os.memfd_create("softdlm")
    os.write(file, data)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def hand_over(stream: int, payload: bytes, until: float) -> None:
    """Write all of it, unless the process ends or time runs out: its own message explains more than an error here."""
    os.set_blocking(stream, False)
    with suppress(BrokenPipeError):
        while payload and ready(stream, select.POLLOUT, until):
            payload = payload[os.write(stream, payload) :]


def listen(stream: int, heard: bytes, lines: int, until: float) -> tuple[End, bytes]:
    """Reads on until so many lines, the end, the deadline or more bytes than any honest answer has."""
    while heard.count(b"\n") < lines:
        if len(heard) >= REPORT_BYTES:
            return "flood", heard
        if not ready(stream, select.POLLIN, until):
            return "late", heard
        part = os.read(stream, REPORT_BYTES)
        if not part:
            return "closed", heard
        heard += part
    return "answered", heard


def ready(stream: int, event: int, until: float) -> bool:
    poll = select.poll()
    poll.register(stream, event)
    left = until - time.monotonic()
    return left > 0 and bool(poll.poll(left * 1000))


def complaint(process: subprocess.Popen[bytes]) -> str:
    """The last line on standard error, which holds launcher and interpreter messages only."""
    assert process.stderr
    os.set_blocking(process.stderr.fileno(), False)
    await_end(process, END_SECONDS)
    with suppress(BlockingIOError):
        lines = os.read(process.stderr.fileno(), 16 * REPORT_BYTES).decode("utf-8", "backslashreplace").splitlines()
        if lines:
            return lines[-1]
    return (
        f"no answer within {START_SECONDS:g} s" if process.returncode is None else f"exit status {process.returncode}"
    )


def exit_status(process: subprocess.Popen[bytes], until: float) -> tuple[End, str]:
    """Closing the report is not yet the end: a program may do so and run on."""
    if await_end(process, max(0.0, until - time.monotonic())):
        return "closed", f"exit status {process.returncode}"
    return "late", ""


def end_tree(process: subprocess.Popen[bytes], status: int) -> None:
    """Kills process 1 of the sandbox, with which the kernel ends all others, and waits until they are gone.

    Killing the launcher or the process group alone takes seconds while a fork bomb runs. The launcher waits for
    process 1, so as long as it lives that pid is of no other process.
    """
    first = first_pid(status)
    handle = None if first is None else opened(first)
    if first is not None and process.poll() is None:
        kill(os.kill, first)
    elif process.poll() is None:
        kill(os.killpg, process.pid)
    if not await_end(process, END_SECONDS):
        kill(os.killpg, process.pid)
        process.wait()
    if handle is not None:
        ready(handle, select.POLLIN, time.monotonic() + END_SECONDS)
        os.close(handle)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()


def kill(how: Callable[[int, int], None], pid: int) -> None:
    with suppress(ProcessLookupError):
        how(pid, signal.SIGKILL)


def await_end(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ended in time. Linux wakes us the moment it does; elsewhere `wait` looks now and then."""
    if process.poll() is None and (handle := opened(process.pid)) is not None:
        ready(handle, select.POLLIN, time.monotonic() + seconds)
        os.close(handle)
    elif process.returncode is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    return process.poll() is not None


def opened(pid: int) -> int | None:
    """A descriptor that can be read once the process has ended; None where it is gone, or on another system."""
    with suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return None


def first_pid(status: int) -> int | None:
    """The pid in the first line of JSON on the status pipe; None without a sandbox, or where it was never made."""
    os.set_blocking(status, False)
    with suppress(BlockingIOError):
        line = os.read(status, REPORT_BYTES).partition(b"\n")[0]
        return json.loads(line)["child-pid"] if line else None
    return None
