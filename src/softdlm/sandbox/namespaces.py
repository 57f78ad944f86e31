"""Builds the sandbox of the `unshare` back end. Part of the text that runs beside a candidate: see `backends`.

`unshare` has made new user, mount, process, network, IPC, UTS and cgroup namespaces, in which this process holds every
capability. Here the file system is replaced by an empty one with read-only views, then the capabilities are dropped.
The candidate is a child of process 1, never process 1 itself, which could keep itself alive when its parent dies.
"""

import os
from _ctypes import Structure, byref, sizeof

from softdlm.sandbox.kernel import PR_SET_NO_NEW_PRIVS, Long, Word, be_first_to_go, call

RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC = 4096, 16384
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
SYS_MOUNT_SETATTR = 442
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
PR_SET_DUMPABLE = 4
CAPABILITY_VERSION_3 = 0x20080522
DEVICES = ("null", "zero", "full", "random", "urandom")


def enter(views: list[str], links: dict[str, str], scratch: str, status: int) -> None:
    """Returns in the candidate's process, inside the sandbox; process 1 waits here until that process ends.

    /proc is read-only for the candidate: there it could take back what `be_first_to_go` did.
    """
    be_first_to_go()
    os.write(status, b'{"child-pid": %d}' % int(os.readlink("/proc/self")))
    os.close(status)
    opened = {path: os.open(path, os.O_PATH) for path in [*views, *(f"/dev/{name}" for name in DEVICES)]}
    build(opened, links, scratch)
    for handle in opened.values():
        os.close(handle)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    protect("/proc", RDONLY | NOSUID | NODEV | NOEXEC, 0)
    give_up_privileges()
    child = os.fork()
    if child:
        call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
        reap_until(child)


def build(opened: dict[str, int], links: dict[str, str], scratch: str) -> None:
    """A new root over /tmp, which is then all there is. Sources are open handles, since /tmp may hold one."""
    mount("tmpfs", "/tmp", "tmpfs", NOSUID | NODEV, "size=1m,mode=755")
    os.chdir("/tmp")
    for path, handle in opened.items():
        view(handle, path.lstrip("/"))
    for path, target in links.items():
        os.symlink(target, path.lstrip("/"))
    for path in ("proc", "tmp"):
        os.mkdir(path)
    mount("proc", "proc", "proc", NOSUID | NODEV | NOEXEC)
    mount("tmpfs", "tmp", "tmpfs", NOSUID | NODEV, scratch)
    call("syscall", SYS_PIVOT_ROOT[os.uname().machine], b".", b".")
    call("umount2", b".", MNT_DETACH)
    protect("/", RDONLY | NOSUID | NODEV, 0)
    os.chdir("/tmp")


def view(handle: int, path: str) -> None:
    """A read-only view of an open file or folder, with everything mounted below it."""
    source = f"/proc/self/fd/{handle}"
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    mount(source, path, None, MS_BIND | MS_REC)
    protect(path, RDONLY | NOSUID | (0 if path.startswith("dev/") else NODEV), AT_RECURSIVE)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    call("mount", source.encode(), target.encode(), kind and kind.encode(), flags, options.encode())


class MountAttributes(Structure):
    _fields_ = tuple((name, Long) for name in ("set", "clear", "propagation", "userns"))


def protect(path: str, attributes: int, flags: int) -> None:
    wanted = MountAttributes(attributes, 0, 0, 0)
    size = sizeof(wanted)
    call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, path.encode(), flags, byref(wanted), size)


def give_up_privileges() -> None:
    """Drop every capability, for this process and for any program it starts."""
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header, none = (Word * 2)(CAPABILITY_VERSION_3, 0), (Word * 6)()
    call("capset", header, none)


def reap_until(child: int) -> None:
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
