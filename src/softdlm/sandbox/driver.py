"""Runs inside the sandbox: the program, then its checks, then, if both came to their end, this run's nonce.

Part of the text that runs beside a candidate: see `backends`. On standard input it gets the program, the checks and two
large numbers; it answers with one line when it is ready and one when it is done. The nonce is made of both numbers and
is nowhere until the checks have ended: one number is in memory, the other stays unread in the pipe. A candidate that
writes out all it finds in memory and all it can read from descriptors, in any order, has not written the nonce.
"""

import os
import sys

from softdlm.sandbox.kernel import bound, filter_calls, leave_keyring

READY = b"ready\n"
PIPE_BYTES = 512
DETAIL_CHARS = 300
MODULE = "candidate"


def main(limits: dict[int, int], user: int | None, program: bytes) -> None:
    """`user` is for root to become. `program` is the filter of system calls, empty where it is already at work."""
    source, report = os.dup(0), os.dup(1)
    candidate, checks, number = (take_text(source) for _ in range(3))
    leave_keyring()
    if user is not None:
        become(user)
    for resource, most in limits.items():
        bound(resource, most)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)
    if program:
        filter_calls(program)
    os.write(report, READY)
    judge(candidate, checks, int(number, 16), source, report)


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


def become(user: int) -> None:
    keep_library_in_reach()
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def keep_library_in_reach() -> None:
    """Imports through open handles: the interpreter may lie where only root can go.

    Packages that are here already, such as the one of all encodings, look for their modules below the same handles.
    """
    if not os.path.isdir("/proc/self/fd"):
        return
    handles = {path: f"/proc/self/fd/{os.open(path, os.O_PATH)}" for path in sys.path if os.path.isdir(path)}
    sys.path[:] = handles.values()
    for module in [*sys.modules.values()]:
        if hasattr(module, "__path__"):
            module.__path__ = [moved(path, handles) for path in module.__path__]


def moved(path: str, handles: dict[str, str]) -> str:
    folder, name = os.path.split(path)
    return os.path.join(handles[folder], name) if folder in handles else path


def judge(program: str, checks: str, number: int, source: int, report: int) -> None:
    """Run the program and its checks; everything used afterwards is bound before, out of reach of `os.write = ...`.

    Both run in one expression, whose parts are in the interpreter's hands before the program begins: there is no
    variable, list or iterator by which a candidate could take its checks away. A forked copy that comes to the end
    leaves the answer alone. After it the process waits to be killed, so that the launcher is there until the tree ends.
    """
    read, write, leave, pid, owner = os.read, os.write, os._exit, os.getpid, os.getpid()
    whole, tell = int, error_line
    try:
        first, second = compile(program, "program", "exec"), compile(checks, "checks", "exec")
        scope = fresh_scope()
        exec(second, scope, exec(first, scope))
    except BaseException as error:
        line = tell(error)
    else:
        line = b"%064x\n" % (number ^ whole(read(source, PIPE_BYTES), 16)) if pid() == owner else b""
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
