"""A control group (version 2) for each run: it bounds the memory and the number of processes of a whole tree.

Used where the system has delegated one to us: a group that we may make groups in, with the controllers of memory and of
processes, such as that of `systemd-run --user --scope -p Delegate=yes`. Elsewhere there is none, and each process has
its own limits only.
"""

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CONTROLLERS = ("memory", "pids")
LAUNCHERS = 8
"""Processes that start a sandbox and wait for it; they are in the group too."""
DELEGATED = "user.delegate"
SWAP = "memory.swap.max"
"""Not there where the kernel does not count swap."""
REMOVAL_SECONDS = 5.0
ENTER = ("/bin/sh", "-c", 'echo 0 >"$1" && shift && exec "$@"', "enter")
"""A command that is its first process's first deed: nothing of the tree is ever outside."""


@dataclass(frozen=True)
class ControlGroup:
    folder: Path

    def entering(self, command: list[str]) -> list[str]:
        return [*ENTER, str(self.folder / "cgroup.procs"), *command]

    def end(self) -> None:
        """Kill whatever is in it, and remove it as soon as that is gone."""
        put(self.folder / "cgroup.kill", "1")
        until = time.monotonic() + REMOVAL_SECONDS
        while not self._removed():
            if time.monotonic() > until:
                raise OSError(f"the control group {self.folder} cannot be removed: end what is in it")
            time.sleep(0.001)

    def _removed(self) -> bool:
        with suppress(OSError):
            os.rmdir(self.folder)
        return not self.folder.exists()


@contextmanager
def control_group(memory_bytes: int, processes: int) -> Iterator[ControlGroup | None]:
    """A new group with these limits for the tree as a whole; None where no group is delegated to us."""
    parent = delegated()
    if parent is None:
        yield None
        return
    limits = {"memory.max": memory_bytes, SWAP: 0, "memory.oom.group": 1, "pids.max": processes + LAUNCHERS}
    with made(parent, limits) as group:
        yield group


@contextmanager
def made(parent: Path, limits: Mapping[str, int]) -> Iterator[ControlGroup]:
    group = ControlGroup(parent / f"softdlm-{secrets.token_hex(8)}")
    os.mkdir(group.folder)
    try:
        for name, most in limits.items():
            if name != SWAP or (group.folder / name).exists():
                put(group.folder / name, str(most))
        yield group
    finally:
        group.end()


@cache
def delegated() -> Path | None:
    """Our own group, or the one above it, if groups below it may have the controllers.

    A group that holds processes passes no controllers on, so it is mostly the one above.
    """
    own = own_group()
    return next((each for each in (own, own.parent) if is_ours(each) and passes_on(each)), None) if own else None


def is_ours(folder: Path) -> bool:
    """Whether it was given to us: to an ordinary user as its owner, to root by the mark that systemd sets.

    Root may write everywhere, also where systemd alone may make groups.
    """
    with suppress(OSError):
        if os.geteuid() and folder.stat().st_uid == os.geteuid():
            return True
        return os.getxattr(folder, DELEGATED) == b"1"
    return False


def own_group() -> Path | None:
    """The folder of our group, where the second version is mounted."""
    with suppress(OSError):
        mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
        place = next((each[4] for each in mounts if each[each.index("-") + 1] == "cgroup2"), None)
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        path = next((line[3:] for line in lines if line.startswith("0::")), None)
        if place and path:
            return Path(place, path.lstrip("/"))
    return None


def passes_on(folder: Path) -> bool:
    """Whether groups can be made in the folder that have the controllers, which are switched on for them."""
    with suppress(OSError):
        if not set(CONTROLLERS) <= set((folder / "cgroup.controllers").read_text().split()):
            return False
        if not set(CONTROLLERS) <= set((folder / "cgroup.subtree_control").read_text().split()):
            put(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in CONTROLLERS))
        return os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
    return False


def put(file: Path, words: str) -> None:
    """Into a file of the kernel: one that is not there is an error, it is never made."""
    handle = os.open(file, os.O_WRONLY)
    try:
        os.write(handle, words.encode())
    finally:
        os.close(handle)
