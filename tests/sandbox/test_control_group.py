"""Control groups: the logic on a folder that looks like one, the rest on the kernel's own where it has one for us."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from softdlm.sandbox import control_group as groups
from softdlm.sandbox import run as running
from softdlm.sandbox.control_group import control_group, delegated, is_ours, made, own_group, passes_on
from softdlm.sandbox.run import Limits, Sandbox

FILES = ("cgroup.procs", "cgroup.kill", "cgroup.subtree_control", "memory.max", "memory.oom.group", "pids.max")


def fill(folder: Path, controllers: str = "cpu memory pids") -> Path:
    for name in FILES:
        (folder / name).write_text("")
    (folder / "cgroup.controllers").write_text(controllers)
    return folder


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a group; as in the kernel, a new one has its files and goes with them. `ended` keeps its last."""
    group, ended, make, take = tmp_path / "group", tmp_path / "ended", os.mkdir, os.rmdir
    group.mkdir()

    def mkdir(folder: str | Path, *mode: int) -> None:
        make(folder, *mode)
        if Path(folder).parent == group:
            fill(Path(folder))

    def rmdir(folder: str | Path) -> None:
        if Path(folder).parent != group:
            take(folder)
        else:
            assert (Path(folder) / "cgroup.kill").read_text() == "1"
            shutil.move(folder, ended)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", mkdir)
        patch.setattr(os, "rmdir", rmdir)
        patch.setattr(groups, "delegated", lambda: group)
        yield fill(group)


def test_a_run_has_limits_as_a_whole_and_is_in_the_group_from_its_first_deed(fake: Path) -> None:
    with control_group(2**30, 32) as group:
        assert group is not None
        assert group.folder.parent == fake
        assert (group.folder / "memory.max").read_text() == str(2**30)
        assert (group.folder / "pids.max").read_text() == "40"
        said = subprocess.run(group.entering(["echo", "a b", "$0"]), capture_output=True, text=True)
        assert said.stdout == "a b $0\n"
        assert (group.folder / "cgroup.procs").read_text() == "0\n"
    assert (fake.parent / "ended" / "cgroup.kill").read_text() == "1"
    assert not [each for each in fake.iterdir() if each.is_dir()]


def test_nothing_is_left_of_a_group_whose_limits_are_refused(fake: Path) -> None:
    with pytest.raises(FileNotFoundError), made(fake, {"no.such.limit": 1}):
        pass
    assert not [each for each in fake.iterdir() if each.is_dir()]


@pytest.mark.parametrize("backend", running.BACKENDS)
def test_every_back_end_runs_in_its_group(fake: Path, backend: str) -> None:
    outcome = Sandbox(backend, Limits(memory_bytes=2**28, scratch_bytes=2**20)).run("x = 1", "assert x == 1")
    assert outcome.passed, outcome
    assert (fake.parent / "ended" / "cgroup.procs").read_text() == "0\n"
    assert (fake.parent / "ended" / "memory.max").read_text() == str(2**28 + 2**20)


def test_a_group_counts_only_with_both_controllers_and_they_are_switched_on(tmp_path: Path) -> None:
    assert not passes_on(tmp_path)
    assert not passes_on(fill(tmp_path, "cpu memory"))
    assert passes_on(fill(tmp_path))
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids"


@pytest.mark.parametrize(
    ("user", "owner", "mark", "ours"),
    [(0, 0, b"", False), (0, 0, b"1", True), (7, 0, b"", False), (7, 7, b"", True), (7, 0, b"1", True)],
)
def test_root_takes_only_what_is_marked_for_it(
    monkeypatch: pytest.MonkeyPatch, user: int, owner: int, mark: bytes, ours: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "getxattr", lambda folder, name: mark, raising=False)
    monkeypatch.setattr(Path, "stat", lambda folder: SimpleNamespace(st_uid=owner))
    assert is_ours(Path("/group")) == ours


def test_what_is_left_in_a_real_group_is_killed_and_the_group_removed() -> None:
    """Needs no controller, only a group that we may make groups in."""
    place = own_group() or Path("/nowhere")
    try:
        (place / "softdlm-probe").mkdir()
        (place / "softdlm-probe").rmdir()
    except OSError as problem:
        pytest.skip(f"no control group can be made here: {problem}")
    fork = [sys.executable, "-c", "import os, time\nos.fork() or os.setsid()\nprint(flush=True)\ntime.sleep(60)"]
    with made(place, {}) as group:
        tree = subprocess.Popen(group.entering(fork), stdout=subprocess.PIPE, start_new_session=True)
        assert tree.stdout is not None
        tree.stdout.read(2)
        inside = (group.folder / "cgroup.procs").read_text().split()
    with tree:
        assert tree.wait(5) == -9
    assert str(tree.pid) in inside
    assert len(inside) == 2
    assert not group.folder.exists()


def test_a_tree_cannot_have_more_memory_than_its_group() -> None:
    """Eight processes of 128 MiB each, in a group of 257."""
    if delegated() is None:
        pytest.skip("no control group with the controllers of memory and processes is delegated to us here")
    sandbox = Sandbox("subprocess", Limits(memory_bytes=2**28, scratch_bytes=2**20))
    assert sandbox.record()["control group"]
    program = "import os\nfor _ in range(3): os.fork()\nx = bytearray(2**27)\nimport time\ntime.sleep(1)"
    assert not Sandbox("unshare", Limits(memory_bytes=2**28, scratch_bytes=2**20)).run(program).passed
    assert sandbox.run("x = 1", "assert x == 1").passed
