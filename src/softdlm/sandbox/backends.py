"""The commands of the three back ends: each turns the driver's text into an argument list.

bubblewrap and unshare give the same sandbox: read-only views of the system's programs and of the interpreter, a small
writable tmpfs, no network, no other process, no capability. As root both first become a user that owns nothing:
the kernel excuses root from the limit on processes and lets it write in /proc/sys, also in a user namespace.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from softdlm.errors import SandboxError

SYSTEM_VIEWS = ("/bin", "/lib", "/lib32", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64")
SYSTEM_FILES = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
DEVICE_LINKS = {"/dev/fd": "/proc/self/fd"}
DEVICE_LINKS |= {f"/dev/{name}": f"/proc/self/fd/{n}" for n, name in enumerate(("stdin", "stdout", "stderr"))}
UNUSED_USERS = range(60706, 61184)
"""Ids that systemd's table of user ids leaves to nobody."""
NOBODY = 65534
ENVIRONMENT = {"PYTHONHASHSEED": "0"}
"""All that a candidate finds in its environment: a fixed seed, so that the order of a set is the same in every run."""
FLAGS = ("-s", "-S", "-P", "-B")
"""No site packages, no import from the working folder; unlike -I they leave PYTHONHASHSEED alone."""

_LIFT = (
    'mount=$1 mkdir=$2 prefix=$3 barred=$4; shift 4; $mount --bind "$prefix" /mnt && '
    '$mount -t tmpfs -o mode=755 none "$barred" && $mkdir -p "$prefix" && $mount --move /mnt "$prefix" && exec "$@"'
)
"""For this command alone: an interpreter that only root can reach is at its own path, in an otherwise empty folder."""


@dataclass(frozen=True)
class Backend:
    """`command(call, scratch_bytes, status)`: `call` runs the driver, `status` is the descriptor for the first pid."""

    isolated: bool
    command: Callable[[str, int, int], list[str]]
    remedy: str


@dataclass(frozen=True)
class Interpreter:
    """The base interpreter (a virtual environment is somebody's files) and the folder it lives in."""

    executable: str
    prefix: str

    def command(self, text: str) -> list[str]:
        return [self.executable, *FLAGS, "-c", text]


def interpreter() -> Interpreter:
    executable = getattr(sys, "_base_executable", None) or sys.executable
    return Interpreter(os.path.realpath(executable), os.path.realpath(sys.base_prefix))


@cache
def text_of(name: str) -> str:
    """The source of a module of this folder, to be run by a bare interpreter."""
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")


def bubblewrap(call: str, scratch_bytes: int, status: int) -> list[str]:
    launcher, python, (views, links) = tool("bwrap", "bubblewrap"), interpreter(), visible_paths()
    return [
        *as_nobody(python),
        launcher,
        *(f"--unshare-{kind}" for kind in ("user", "ipc", "pid", "net", "uts", "cgroup-try")),
        *("--disable-userns", "--die-with-parent", "--new-session", "--clearenv"),
        *("--uid", str(NOBODY), "--gid", str(NOBODY), "--cap-drop", "ALL", "--hostname", "sandbox"),
        *(word for name, value in ENVIRONMENT.items() for word in ("--setenv", name, value)),
        *(word for path in views for word in ("--ro-bind", path, path)),
        *(word for path, target in links.items() for word in ("--symlink", target, path)),
        *("--proc", "/proc", "--dev", "/dev"),
        *(word for path in ("/tmp", "/dev/shm") for word in ("--size", str(scratch_bytes), "--tmpfs", path)),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"),
        *("--json-status-fd", str(status), "--"),
        *python.command(f"{text_of('driver')}\n{call}"),
    ]


def unshare(call: str, scratch_bytes: int, status: int) -> list[str]:
    python, (views, links) = interpreter(), visible_paths()
    enter = f"enter({views!r}, {links | DEVICE_LINKS!r}, {scratch_bytes}, {status})"
    return [
        *as_nobody(python),
        tool("unshare", "util-linux"),
        *("--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--keep-caps"),
        *("--mount", "--propagation", "private", "--pid", "--net", "--ipc", "--uts", "--cgroup"),
        *("--fork", "--kill-child", "--"),
        *python.command(f"{text_of('namespaces')}\n{text_of('driver')}\n{enter}\n{call}"),
    ]


def subprocess(call: str, scratch_bytes: int, status: int) -> list[str]:
    return interpreter().command(f"{text_of('driver')}\n{call}")


def visible_paths() -> tuple[list[str], dict[str, str]]:
    """Folders of the host to show, and links to repeat: /bin is a link to usr/bin on most systems."""
    links = {path: os.readlink(path) for path in SYSTEM_VIEWS if os.path.islink(path)}
    views = [path for path in SYSTEM_VIEWS if os.path.isdir(path) and path not in links]
    prefix = interpreter().prefix
    if prefix not in ("/", "/usr"):
        views.append(prefix)
    return views + [path for path in SYSTEM_FILES if os.path.exists(path)], links


def as_nobody(python: Interpreter) -> list[str]:
    """The words before a launcher: it dies with this process, and as root it first becomes an unused user."""
    become, user = [tool("setpriv", "util-linux"), "--pdeathsig", "KILL"], unused_user()
    if user is None:
        return [*become, "--"]
    become += ["--reuid", str(user), "--regid", str(user), "--clear-groups", "--"]
    barred = first_barred(python.prefix)
    if barred is None:
        return become
    private = [tool("unshare", "util-linux"), "--mount", "--propagation", "private", "/bin/sh", "-c", _LIFT, "lift"]
    return [*private, tool("mount", "util-linux"), tool("mkdir", "coreutils"), python.prefix, barred, *become]


def unused_user() -> int | None:
    """The user that root becomes, another one each time: runs at the same time do not share one limit on processes.

    None for everybody else, also for a "root" in a user namespace that maps no such user.
    """
    if os.geteuid() != 0 or not is_mapped(UNUSED_USERS):
        return None
    return secrets.choice(UNUSED_USERS)


def is_mapped(users: range) -> bool:
    if not os.path.exists("/proc/self/uid_map"):
        return True
    table = (tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines())
    return any(first <= users.start and users.stop <= first + count for first, _, count in table)


def first_barred(path: str) -> str | None:
    """The topmost folder on the way to `path` that other users may not pass."""
    way = [*reversed(Path(path).parents), Path(path)]
    return next((str(folder) for folder in way if not folder.stat().st_mode & 0o001), None)


def tool(name: str, package: str) -> str:
    found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin")
    if found is None:
        raise SandboxError(f"{name} is not installed: install {package}")
    return found


BACKENDS = {
    "bubblewrap": Backend(True, bubblewrap, "it needs bubblewrap 0.8 and user namespaces"),
    "unshare": Backend(True, unshare, "it needs util-linux (tested with 2.38), Linux 5.12 and user namespaces"),
    "subprocess": Backend(False, subprocess, "it needs an interpreter that starts with -s -S -P -B"),
}
