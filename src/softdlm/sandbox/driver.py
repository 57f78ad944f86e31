"""Runs inside the sandbox: the program, then its checks, then, if both came to their end, this run's nonce.

Its text is given to a bare interpreter (`python -c`); nothing of the package is there. On standard input it gets the
program, the checks and the nonce; it answers with one line when it is ready and one when it is done. Half of the nonce
stays unread in the pipe until the checks have ended: a candidate that writes out all it finds in memory, or all it
can read from descriptors, has not written the nonce.
"""

import os
import resource
import sys
from itertools import repeat

READY = b"ready\n"
PIPE_BYTES = 512
DETAIL_CHARS = 300
MODULE = "candidate"


def main(limits: dict[str, int], user: int | None) -> None:
    source, report = os.dup(0), os.dup(1)
    program, checks, half = (take_text(source) for _ in range(3))
    confine(limits, user)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)
    os.write(report, READY)
    judge(program, checks, half.encode(), source, report)


def take_text(source: int) -> str:
    """The next text of the pipe: eight bytes of length, then UTF-8."""
    data = take(source, int.from_bytes(take(source, 8), "big"))
    return data.decode("utf-8", "surrogatepass")


def take(source: int, count: int) -> bytes:
    parts = []
    while count and (part := os.read(source, count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def confine(limits: dict[str, int], user: int | None) -> None:
    """Limits for this process and its children. When memory runs out, they are the first to go."""
    if os.path.exists("/proc/self/oom_score_adj"):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    if user is not None:
        keep_library_in_reach()
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, name), (most, most))


def keep_library_in_reach() -> None:
    """Imports through open handles: the interpreter may lie where only root can go."""
    if os.path.isdir("/proc/self/fd"):
        sys.path[:] = [f"/proc/self/fd/{os.open(path, os.O_PATH)}" for path in sys.path if os.path.isdir(path)]


def judge(program: str, checks: str, half: bytes, source: int, report: int) -> None:
    """Run the program and its checks; everything used afterwards is bound before, out of reach of `os.write = ...`.

    The stages run in one loop in C: a candidate that replaces `exec` or a local variable of this frame changes nothing.
    After its answer the process waits to be killed, so that the launcher is there when the whole tree ends.
    """
    read, write, leave, pid, owner = os.read, os.write, os._exit, os.getpid, os.getpid()
    try:
        stages = [compile(program, "program", "exec"), compile(checks, "checks", "exec")]
        any(map(exec, stages, repeat(fresh_scope())))
    except BaseException as error:
        line = error_line(error)
    else:
        line = half + read(source, PIPE_BYTES)
    if pid() == owner:
        write(report, line)
        read(source, 1)
    leave(0)


def fresh_scope() -> dict[str, object]:
    """The namespace of a real module: dataclasses, pickle and typing look theirs up by name."""
    module = type(sys)(MODULE)
    sys.modules[MODULE] = sys.modules["__main__"] = module
    return module.__dict__


def error_line(error: BaseException) -> bytes:
    """What went wrong, in one line. The candidate chose the words: they may be anything."""
    try:
        place = error.__traceback__ and error.__traceback__.tb_next
        where = f"{place.tb_frame.f_code.co_filename}, line {place.tb_lineno}: " if place else ""
        words = " ".join(f"{where}{type(error).__name__}: {error}".split())
        return words[:DETAIL_CHARS].encode("utf-8", "backslashreplace") + b"\n"
    except BaseException:
        return b"an exception that cannot be shown\n"
