"""Calls to the kernel that Python does not offer. Part of the text that runs beside a candidate: see `backends`.

Only the core of ctypes is imported: the rest of that module takes longer to load than all that is done here.
"""

import errno
import os
from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, Structure, _SimpleCData, byref, dlopen, get_errno

SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
JOIN_SESSION_KEYRING = 1
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
MODE_FILTER = 2
SIGKILL = 9
"""Not taken from the module `signal`, whose import takes longer than all that is done here."""
STEP_BYTES = 8


class Int(_SimpleCData):
    _type_ = "i"


class Short(_SimpleCData):
    _type_ = "H"


class Word(_SimpleCData):
    _type_ = "I"


class Long(_SimpleCData):
    _type_ = "Q"


class Bytes(_SimpleCData):
    _type_ = "z"


class Function(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = Int


class Library:
    """Whatever this process is linked with, libc among it."""

    _handle = dlopen(None, 0)  # type: ignore[arg-type]


def answer(name: str, *arguments: object) -> int:
    """The answer of a function of libc: below 0 it has failed."""
    return Function((name, Library))(*arguments)  # type: ignore[call-overload]


def call(name: str, *arguments: object) -> int:
    """The answer of a function of libc; its failure is an OSError."""
    found = answer(name, *arguments)
    if found < 0:
        problem = get_errno()
        raise OSError(problem, f"{name}{arguments}: {os.strerror(problem)}")
    return found


class Bound(Structure):
    _fields_ = (("soft", Long), ("hard", Long))


def bound(resource: int, most: int) -> None:
    """A limit of this process for good. The module `resource` would have to be loaded for it."""
    call("setrlimit", resource, byref(Bound(most, most)))


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


class FilterProgram(Structure):
    _fields_ = (("length", Short), ("steps", Bytes))


def filter_calls(program: bytes) -> None:
    """From here on, for this process and all it starts. Before, it is bound to end with its parent."""
    call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    whole = FilterProgram(len(program) // STEP_BYTES, program)
    call("prctl", PR_SET_SECCOMP, MODE_FILTER, byref(whole), 0, 0)
