"""Calls to the kernel that Python does not offer. Part of the text that runs beside a candidate: see `backends`."""

import ctypes
import errno
import os

SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
JOIN_SESSION_KEYRING = 1
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
MODE_FILTER = 2
SIGKILL = 9
"""Not taken from the module `signal`, whose import takes longer than all that is done here."""
STEP_BYTES = 8
libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """The answer of a function of libc; its failure is an OSError."""
    answer = getattr(libc, name)(*arguments)
    if answer < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, f"{name}{arguments}: {os.strerror(problem)}")
    return answer


def be_first_to_go() -> None:
    """When memory runs out, the kernel ends this process and its children first."""
    if os.path.exists("/proc/self/oom_score_adj"):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")


def leave_keyring() -> None:
    """A session keyring of its own: the one it was started with is the user's, and later runs see the same.

    A kernel that has no keys, or denies them to this process, shares none.
    """
    number = SYS_KEYCTL.get(os.uname().machine)
    if number is None or os.uname().sysname != "Linux":
        return
    try:
        call("syscall", number, JOIN_SESSION_KEYRING, None)
    except OSError as problem:
        if problem.errno not in (errno.ENOSYS, errno.EPERM):
            raise


class FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def filter_calls(program: bytes) -> None:
    """From here on, for this process and all it starts. Before, it is bound to end with its parent."""
    call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    whole = FilterProgram(len(program) // STEP_BYTES, program)
    call("prctl", PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(whole), 0, 0)
