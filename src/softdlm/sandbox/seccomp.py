"""The filter of system calls, as the classic BPF program that the kernel takes.

It is written out here, because a bare machine has no library that would build it: libseccomp is a package of the
system, and its Python bindings are another. A test compares every number with the kernel's headers and runs the
programs of both machines.

What generated programs need is left alone: files, threads, processes, pipes, signals to their own tree. A denied call
answers EPERM, so that a program fails in the ordinary way. clone3 hides its flags in memory, where no filter can look:
it answers ENOSYS, and libc uses clone instead. Numbers above `LAST_CALL` answer ENOSYS too: what they do is not known.
"""

import errno
import platform
import struct
import sys
from functools import cache
from typing import NamedTuple

from softdlm.errors import SandboxError

DENIED = """
add_key 248 217, request_key 249 218
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440, process_mrelease 448 448
kcmp 312 272, pidfd_getfd 438 438
unshare 272 97, setns 308 268, chroot 161 51, pivot_root 155 41, mount 165 40, umount2 166 39, open_tree 428 428
move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442
statmount 457 457, listmount 458 458, name_to_handle_at 303 264, open_by_handle_at 304 265
shmget 29 194, shmat 30 196, shmctl 31 195, shmdt 67 197, semget 64 190, semop 65 193, semctl 66 191, semtimedop 220 192
msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187
mq_open 240 180, mq_unlink 241 181, mq_timedsend 242 182, mq_timedreceive 243 183, mq_notify 244 184
mq_getsetattr 245 185
memfd_create 319 279, memfd_secret 447 447
bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, seccomp 317 277
io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427, fanotify_init 300 262, fanotify_mark 301 263
init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294
reboot 169 142, swapon 167 224, swapoff 168 225, sethostname 170 161, setdomainname 171 162, acct 163 89, syslog 103 116
settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, adjtimex 159 171, vhangup 153 58, personality 135 92
quotactl 179 60, quotactl_fd 443 443, lookup_dcookie 212 18, iopl 172 -, ioperm 173 -, modify_ldt 154 -, sysfs 139 -
mbind 237 235, set_mempolicy 238 237, get_mempolicy 239 236, migrate_pages 256 238, move_pages 279 239
set_mempolicy_home_node 450 450
"""
"""Name, number on x86_64, number on aarch64. By line: keys of the kernel; memory and descriptors of other processes;
namespaces and mounts; shared memory, semaphores and queues; memory files, which no limit counts; doors to much of the
kernel at once; the machine; where memory lies."""
GUARDED = """
clone 56 220, clone3 435 435, keyctl 250 219, socket 41 198, socketpair 53 199, prctl 157 167, prlimit64 302 261
"""
"""Calls that depend on their arguments: see `guards`."""

OF_THE_USER = """
socket 41 198, chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452
chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88
setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16
setpriority 141 140, ioprio_set 251 30, sched_setaffinity 203 122, sched_setscheduler 144 119, sched_setparam 142 118
sched_setattr 314 274
"""
"""Denied to a limited process, which may run as the user: sockets of the host, and what Landlock leaves open: modes,
owners, times and attributes of the user's files, and the turns of the user's processes."""

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the tables, and the word by which the kernel calls the architecture."""
LAST_CALL = 462
FIRST_X32_CALL = 0x40000000
NEW_NAMESPACES = 0x7E020000
"""The flags of clone that make namespaces."""
AF_UNIX, PR_SET_PDEATHSIG, JOIN_SESSION_KEYRING = 1, 1, 1

LOAD, EQUAL, GREATER, ANY_BIT, ANSWER = 0x20, 0x15, 0x25, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


class Step(NamedTuple):
    """One instruction; the jumps count the steps that are left out."""

    code: int
    value: int
    then: int = 0
    otherwise: int = 0


def filter_is_known() -> bool:
    return sys.platform == "linux" and platform.machine() in MACHINES


def filter_for(isolated: bool) -> bytes:
    """The program for this machine."""
    machine = platform.machine()
    if not filter_is_known():
        raise SandboxError(
            f"no filter of system calls is known for {sys.platform} on {machine}: use Linux on {' or '.join(MACHINES)}"
        )
    return compiled(machine, isolated)


@cache
def compiled(machine: str, isolated: bool) -> bytes:
    return b"".join(struct.pack("=HBBI", it.code, it.then, it.otherwise, it.value) for it in steps(machine, isolated))


def steps(machine: str, isolated: bool) -> list[Step]:
    """The architecture is looked at first: a number means another call in another table."""
    _, architecture = MACHINES[machine]
    denied, guarded = numbers(DENIED if isolated else DENIED + OF_THE_USER, machine), numbers(GUARDED, machine)
    return [
        Step(LOAD, ARCHITECTURE_AT),
        *unless(Step(EQUAL, architecture), refuse(errno.EPERM)),
        Step(LOAD, NUMBER_AT),
        *when(Step(GREATER, FIRST_X32_CALL - 1), refuse(errno.EPERM)),
        *when(Step(GREATER, LAST_CALL), refuse(errno.ENOSYS)),
        *(step for number in sorted(denied.values()) for step in when(Step(EQUAL, number), refuse(errno.EPERM))),
        *(step for name, body in guards().items() for step in when(Step(EQUAL, guarded[name]), body)),
        Step(ANSWER, ALLOW),
    ]


def guards() -> dict[str, list[Step]]:
    """What is decided by arguments. A new, nameless session keyring takes from nobody: the driver joins one."""
    local = [argument(0), *when(Step(EQUAL, AF_UNIX), [Step(ANSWER, ALLOW)]), *refuse(errno.EPERM)]
    nameless = [step for half in (0, 4) for step in (argument(1, half), *unless(Step(EQUAL, 0), refuse(errno.EPERM)))]
    return {
        "clone": [argument(0), *when(Step(ANY_BIT, NEW_NAMESPACES), refuse(errno.EPERM)), Step(ANSWER, ALLOW)],
        "clone3": refuse(errno.ENOSYS),
        "keyctl": [
            argument(0),
            *unless(Step(EQUAL, JOIN_SESSION_KEYRING), refuse(errno.EPERM)),
            *nameless,
            Step(ANSWER, ALLOW),
        ],
        "socket": local,
        "socketpair": local,
        "prctl": [argument(0), *when(Step(EQUAL, PR_SET_PDEATHSIG), refuse(errno.EPERM)), Step(ANSWER, ALLOW)],
        "prlimit64": [argument(0), *unless(Step(EQUAL, 0), refuse(errno.EPERM)), Step(ANSWER, ALLOW)],
    }


def numbers(table: str, machine: str) -> dict[str, int]:
    column, _ = MACHINES[machine]
    rows = filter(None, (row.split() for row in table.replace("\n", ",").split(",")))
    return {name: int(both[column]) for name, *both in rows if both[column] != "-"}


def argument(place: int, half: int = 0) -> Step:
    """Loads 32 bits of an argument: both machines are little-endian, the low half comes first."""
    return Step(LOAD, ARGUMENTS_AT + 8 * place + half)


def refuse(problem: int) -> list[Step]:
    return [Step(ANSWER, REFUSE | problem)]


def when(test: Step, body: list[Step]) -> list[Step]:
    return [test._replace(otherwise=len(body)), *body]


def unless(test: Step, body: list[Step]) -> list[Step]:
    return [test._replace(then=len(body)), *body]
