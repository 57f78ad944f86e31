"""The commands of the three back ends: each is an argument list that ends in a bare interpreter and its text.

bubblewrap and unshare give the same sandbox: read-only views of the system's programs and of the interpreter, a small
writable file system, no network, no other process, no capability, a filter of system calls. As root both first become a
user that owns nothing: the kernel excuses root from the limit on processes and lets it write in /proc/sys, also in a
user namespace. The third is a limited process, which is no sandbox.
"""

import marshal
import os
import secrets
import shutil
import sys
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from softdlm.errors import SandboxError
from softdlm.sandbox.seccomp import filter_for, filter_is_known

SYSTEM_VIEWS = ("/bin", "/lib", "/lib32", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64")
SYSTEM_FILES = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
DEVICE_LINKS = {"/dev/fd": "/proc/self/fd", "/dev/shm": "/tmp"}
DEVICE_LINKS |= {f"/dev/{name}": f"/proc/self/fd/{n}" for n, name in enumerate(("stdin", "stdout", "stderr"))}
UNUSED_USERS = range(60706, 61184)
"""Ids that systemd's table of user ids leaves to nobody."""
NOBODY = 65534
ENVIRONMENT = {"PYTHONHASHSEED": "0"}
"""All that a candidate finds in its environment: a fixed seed, so that the order of a set is the same in every run."""
FLAGS = ("-s", "-S", "-P", "-B")
"""No site packages, no import from the working folder; unlike -I they leave PYTHONHASHSEED alone."""

DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
SCRATCH, PYTHON = "/sys/fs", "/sys/kernel"
"""Where bubblewrap finds what `_SUPPLY` mounts: folders that every system has and that hold no interpreter."""
SCRATCH_FILES = 4096

_LIFT = (
    'mount=$1 mkdir=$2 prefix=$3 barred=$4; shift 4; $mount --bind "$prefix" /mnt && '
    '$mount -t tmpfs -o mode=755 none "$barred" && $mkdir -p "$prefix" && $mount --move /mnt "$prefix" && exec "$@"'
)
"""For this command alone: an interpreter that only root can reach is at its own path, in an otherwise empty folder."""
_SUPPLY = (
    'echo 1000 >/proc/self/oom_score_adj && $1 -n -i -t tmpfs -o "$2" none "$3" && '
    '{ [ -z "$4" ] || $1 -n --bind "$4" "$5"; } && shift 5 && exec "$@"'
)
"""For this command alone: what `SCRATCH` and `PYTHON` hold. When memory runs out, the command is the first to go."""


class Descriptors(NamedTuple):
    """What a sandbox inherits: one for the pid of its first process, and the filter where its launcher reads it."""

    status: int
    filter: int = -1


@dataclass(frozen=True)
class Backend:
    """`command(limits, scratch_bytes, descriptors)`: a command that runs the driver under these limits."""

    isolated: bool
    command: Callable[[dict[int, int], int, Descriptors], list[str]]
    remedy: str
    reads_filter: bool = False
    """Whether the launcher puts the filter to work, and not the driver."""


@dataclass(frozen=True)
class Interpreter:
    """The base interpreter (a virtual environment is somebody's files) and the folder it lives in."""

    executable: str
    prefix: str

    def command(self, text: str) -> list[str]:
        return [self.executable, *FLAGS, "-c", text]


@cache
def interpreter() -> Interpreter:
    executable = getattr(sys, "_base_executable", None) or sys.executable
    return Interpreter(os.path.realpath(executable), os.path.realpath(sys.base_prefix))


@cache
def bare_text(*names: str) -> str:
    """The modules of this folder in one line: a bare interpreter does not have the package to import them from.

    They are compiled here and not in every run, by the version that reads them; base64 is the quickest to parse.
    """
    texts = (Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in names)
    kept = (line for text in texts for line in text.splitlines() if not line.startswith("from softdlm."))
    code = compile("\n".join(kept), "driver", "exec", optimize=2)
    return f"import binascii, marshal\nexec(marshal.loads(binascii.a2b_base64({b64encode(marshal.dumps(code))!r})))"


def bubblewrap(limits: dict[int, int], scratch_bytes: int, descriptors: Descriptors) -> list[str]:
    """With --die-with-parent bubblewrap itself dies with this process too."""
    moved = {interpreter().prefix: PYTHON} if first_barred() else {}
    launcher, python, (views, links) = tool("bwrap", "bubblewrap"), interpreter(), visible_paths()
    return [
        *supplied(scratch_bytes),
        *(as_nobody() if unused_user() is not None else ()),
        launcher,
        *(f"--unshare-{kind}" for kind in ("user", "ipc", "pid", "net", "uts", "cgroup-try")),
        *("--disable-userns", "--die-with-parent", "--new-session", "--clearenv"),
        *("--uid", str(NOBODY), "--gid", str(NOBODY), "--cap-drop", "ALL", "--hostname", "sandbox"),
        *(word for name, value in ENVIRONMENT.items() for word in ("--setenv", name, value)),
        *(word for path in views for word in ("--ro-bind", moved.get(path, path), path)),
        *(word for path in DEVICES for word in ("--dev-bind", path, path)),
        *(word for path, target in (links | DEVICE_LINKS).items() for word in ("--symlink", target, path)),
        *("--proc", "/proc", "--bind", SCRATCH, "/tmp"),
        *(word for path in ("/proc", "/") for word in ("--remount-ro", path)),
        *("--chdir", "/tmp", "--seccomp", str(descriptors.filter)),
        *("--json-status-fd", str(descriptors.status), "--"),
        *python.command(f"{bare_text('kernel', 'driver')}\nmain({limits}, None, b'')"),
    ]


def unshare(limits: dict[int, int], scratch_bytes: int, descriptors: Descriptors) -> list[str]:
    python, (views, links) = interpreter(), visible_paths()
    options = scratch_options(scratch_bytes)
    enter = f"enter({views!r}, {links | DEVICE_LINKS!r}, {options!r}, {descriptors.status})"
    text = f"{bare_text('kernel', 'namespaces', 'driver')}\n{enter}\nmain({limits}, None, {filter_for(True)!r})"
    return [
        *lifted(python),
        *as_nobody(),
        tool("unshare", "util-linux"),
        *("--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--keep-caps"),
        *("--mount", "--propagation", "private", "--pid", "--net", "--ipc", "--uts", "--cgroup"),
        *("--fork", "--kill-child", "--"),
        *python.command(text),
    ]


def subprocess(limits: dict[int, int], scratch_bytes: int, descriptors: Descriptors) -> list[str]:
    """No file grows, so that nothing needs the limit on scratch space."""
    user, program = unused_user(), filter_for(False) if filter_is_known() else b""
    if user is None and os.geteuid() == 0:
        raise SandboxError("root here has no unused user to become: run softdlm as an ordinary user")
    views, _ = visible_paths()
    confine = f"be_first_to_go()\nconfine_files({[*views, *DEVICES]!r}, ['.', {os.devnull!r}])"
    text = f"{bare_text('kernel', 'landlock', 'driver')}\n{confine}\nmain({limits}, {user}, {program!r})"
    return interpreter().command(text)


def scratch_options(scratch_bytes: int) -> str:
    return f"size={scratch_bytes},nr_inodes={SCRATCH_FILES},mode=1777"


def visible_paths() -> tuple[list[str], dict[str, str]]:
    """Folders of the host to show, and links to repeat: /bin is a link to usr/bin on most systems."""
    links = {path: os.readlink(path) for path in SYSTEM_VIEWS if os.path.islink(path)}
    views = [path for path in SYSTEM_VIEWS if os.path.isdir(path) and path not in links]
    prefix = interpreter().prefix
    if prefix not in ("/", "/usr"):
        views.append(prefix)
    return views + [path for path in SYSTEM_FILES if os.path.exists(path)], links


def supplied(scratch_bytes: int) -> list[str]:
    """Words before `as_nobody`: they mount /tmp, since bubblewrap's own has no limit on the number of files, and an
    interpreter that only root can reach. Root may mount; an ordinary user may do so in a user namespace of its own.
    """
    own = [] if unused_user() is not None else ["--user", "--map-root-user"]
    options = f"{scratch_options(scratch_bytes)},nosuid,nodev"
    barred = interpreter().prefix if first_barred() else ""
    return [*private_mounts(*own), _SUPPLY, "supply", tool("mount", "util-linux"), options, SCRATCH, barred, PYTHON]


def lifted(python: Interpreter) -> list[str]:
    """Words before `as_nobody`, where root's interpreter is out of reach for everybody else."""
    barred = first_barred()
    if barred is None:
        return []
    tools = tool("mount", "util-linux"), tool("mkdir", "coreutils")
    return [*private_mounts(), _LIFT, "lift", *tools, python.prefix, barred]


def private_mounts(*words: str) -> list[str]:
    return [tool("unshare", "util-linux"), *words, "--mount", "--propagation", "private", "/bin/sh", "-c"]


def as_nobody() -> list[str]:
    """The words before a launcher: it dies with this process, and as root it first becomes an unused user."""
    become, user = [tool("setpriv", "util-linux"), "--pdeathsig", "KILL"], unused_user()
    if user is None:
        return [*become, "--"]
    return [*become, "--reuid", str(user), "--regid", str(user), "--clear-groups", "--"]


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


def first_barred() -> str | None:
    """The topmost folder on the way to the interpreter that root may pass and the unused user may not."""
    if unused_user() is None:
        return None
    prefix = Path(interpreter().prefix)
    way = [*reversed(prefix.parents), prefix]
    return next((str(folder) for folder in way if not folder.stat().st_mode & 0o001), None)


def tool(name: str, package: str) -> str:
    found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin")
    if found is None:
        raise SandboxError(f"{name} is not installed: install {package}")
    return found


_NEEDS = "Linux 5.12, util-linux (tested with 2.38), user namespaces and seccomp"
BACKENDS = {
    "bubblewrap": Backend(True, bubblewrap, f"it needs bubblewrap 0.8, {_NEEDS}", reads_filter=True),
    "unshare": Backend(True, unshare, f"it needs {_NEEDS}"),
    "subprocess": Backend(False, subprocess, "it needs an interpreter that starts with -s -S -P -B"),
}
