"""Hostile programs that ask the kernel for what no generated program needs. Every back end denies them.

Each passes if it got what it wanted, and else fails with the number of the error: 1 is EPERM, 38 is ENOSYS.
"""

import platform

from softdlm.sandbox.seccomp import DENIED, GUARDED, MACHINES, numbers
from tests.sandbox.hostile import Hostile

MACHINE = platform.machine() if platform.machine() in MACHINES else "x86_64"
NUMBERS = numbers(DENIED, MACHINE) | numbers(GUARDED, MACHINE)
NO_SUCH_CALL = 470
REFUSED, UNKNOWN = "AssertionError: errno 1$", "AssertionError: errno 38$"
SHUT = "Permission denied|Operation not permitted|Read-only file system"
PROLOGUE = "import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\nbuffer = ctypes.create_string_buffer(4096)\n"


def asking(name: str, number: int | str, arguments: str, reason: str = REFUSED) -> Hostile:
    number = NUMBERS[number] if isinstance(number, str) else number
    call = f"answer = c.syscall({number}, {arguments})\nassert answer >= 0, f'errno {{ctypes.get_errno()}}'"
    return Hostile(name, "failed", reason, PROLOGUE + call)


CALLS = [
    asking("reading the session's keys", "keyctl", "11, -3, buffer, 4096"),
    asking("the id of the user's keyring", "keyctl", "0, -4, 0"),
    asking("joining a keyring by name", "keyctl", "1, b'softdlm'"),
    asking("leaving a key", "add_key", "b'user', b'softdlm-note', b'x', 1, -3"),
    asking("asking for a key", "request_key", "b'user', b'softdlm-note', None, -3"),
    asking("tracing process 1", "ptrace", "16, 1, 0, 0"),
    asking("tracing its parent", "ptrace", "16, os.getppid(), 0, 0"),
    asking("being traced", "ptrace", "0, 0, 0, 0"),
    asking("reading memory of its parent", "process_vm_readv", "os.getppid(), buffer, 1, buffer, 1, 0"),
    asking("writing memory of process 1", "process_vm_writev", "1, buffer, 1, buffer, 1, 0"),
    asking("taking a descriptor of its parent", "pidfd_getfd", "c.syscall(434, os.getppid(), 0), 0, 0"),
    asking("comparing processes", "kcmp", "os.getpid(), os.getppid(), 0, 0, 0"),
    asking("shared memory of System V", "shmget", "0, 3 << 29, 0o1600"),
    asking("semaphores of System V", "semget", "0, 32000, 0o1600"),
    asking("a queue of System V", "msgget", "0, 0o1600"),
    asking("a POSIX queue", "mq_open", "b'softdlm', 0o102, 0o600, None"),
    asking("a file in memory", "memfd_create", "b'softdlm', 0"),
    asking("a socket to the host's monitor", "socket", "40, 1, 0"),
    asking("a socket to the kernel", "socket", "16, 3, 0"),
    asking("a socket for raw packets", "socket", "17, 3, 768"),
    asking("a socket for TCP", "socket", "2, 1, 0"),
    asking("a socket for UDP over IPv6", "socket", "10, 2, 0"),
    asking("a socket for the kernel's ciphers", "socket", "38, 5, 0"),
    asking("a pair of network sockets", "socketpair", "2, 1, 0, buffer"),
    asking("a new user namespace", "unshare", "0x10000000"),
    asking("a child in a new user namespace", "clone", "0x10000000 | 17, 0, 0, 0, 0"),
    asking("a child in a new mount namespace", "clone", "0x00020000 | 17, 0, 0, 0, 0"),
    asking("clone3, whose flags nobody sees", "clone3", "buffer, 88", UNKNOWN),
    asking("the namespace of process 1", "setns", "os.open('/dev/null', os.O_RDONLY), 0"),
    asking("a mount", "mount", "b'none', b'/tmp', b'tmpfs', 0, None"),
    asking("a mount of the new kind", "fsopen", "b'tmpfs', 0"),
    asking("a copy of a tree of mounts", "open_tree", "-100, b'/', 1"),
    asking("other flags of a mount", "mount_setattr", "-100, b'/', 0, buffer, 32"),
    asking("taking a mount away", "umount2", "b'/tmp', 2"),
    asking("another root", "pivot_root", "b'.', b'.'"),
    asking("another root by chroot", "chroot", "b'.'"),
    asking("a file by its handle", "open_by_handle_at", "-100, buffer, 0"),
    asking("a program in the kernel", "bpf", "0, buffer, 120"),
    asking("events of the processor", "perf_event_open", "buffer, 0, -1, -1, 0"),
    asking("a ring of requests", "io_uring_setup", "4, buffer"),
    asking("page faults by hand", "userfaultfd", "1"),
    asking("watching the file system", "fanotify_init", "0, 0"),
    asking("a filter that reports to it", "seccomp", "1, 8, buffer"),
    asking("a module of the kernel", "init_module", "buffer, 16, b''"),
    asking("another kernel", "kexec_load", "0, 0, None, 0"),
    asking("a restart", "reboot", "0, 0, 0, None"),
    asking("another time", "settimeofday", "buffer, None"),
    asking("another host name", "sethostname", "b'x', 1"),
    asking("the kernel's messages", "syslog", "3, buffer, 4096"),
    asking("memory that can be run", "personality", "0x0400000"),
    asking("where its memory lies", "move_pages", "0, 0, None, None, None, 0"),
    asking("outliving its parent", "prctl", "1, 0, 0, 0, 0"),
    asking("limits of its parent", "prlimit64", "os.getppid(), 0, None, buffer"),
    asking("a call that is newer than the table", NO_SUCH_CALL, "0", UNKNOWN),
    asking("a call of another table", 0x40000000 + 39, "0", REFUSED if MACHINE == "x86_64" else UNKNOWN),
    Hostile("sparing itself when memory runs out", "failed", SHUT, "open('/proc/self/oom_score_adj', 'w')"),
    Hostile("memory of process 1 as a file", "failed", SHUT, "open('/proc/1/mem', 'r+b')"),
    Hostile("a setting of the kernel", "failed", SHUT, "open('/proc/sys/kernel/hostname', 'w')"),
]
if MACHINE == "x86_64":
    CALLS.append(
        Hostile(
            "a call of the 32-bit table",
            "failed",
            "AssertionError: answer -1$",
            "import ctypes, mmap\npage = mmap.mmap(-1, 4096, prot=7)\n"
            "page.write(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3')\n"
            "answer = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()\n"
            "assert answer >= 0, f'answer {answer}'",
        )
    )


EVERY_DENIED = PROLOGUE + (
    f"for name, number in {numbers(DENIED, MACHINE)!r}.items():\n"
    "    ctypes.set_errno(0)\n"
    "    assert c.syscall(number, 0, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1, name\n"
)
"""Passes if the kernel refuses every call of the table."""
