"""What programs could do in an earlier version: each law here was once broken by a program."""

import os
import re
import tempfile
from pathlib import Path
from tempfile import gettempdir

import pytest

from softdlm.sandbox import seccomp
from softdlm.sandbox.landlock import SCOPES_SINCE, files_can_be_confined, landlock_version
from softdlm.sandbox.run import Sandbox
from tests.sandbox.calls import CALLS, EVERY_DENIED, NUMBERS
from tests.sandbox.hostile import ACCIDENTS, CHEATS, REFUSALS
from tests.sandbox.working import (
    ALLOW_ALL,
    BACKENDS,
    ISOLATED,
    alive,
    keyctl,
    left_behind,
    new_session_keyring,
    session_keys,
    working,
)

every_backend = pytest.mark.parametrize("backend", BACKENDS)
LEAVE_KEY = f"""
import ctypes
c = ctypes.CDLL(None, use_errno=True)
key = c.syscall({NUMBERS["add_key"]}, b'user', b'softdlm-note', b'x', 1, -3)
assert key > 0, f'errno {{ctypes.get_errno()}}'
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where limited processes get their scratch folders during this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_sixty_hostile_programs_run_on_every_back_end() -> None:
    names = [hostile.name for hostile in (*ACCIDENTS, *REFUSALS, *CHEATS, *CALLS)]
    assert len(set(names)) == len(names) >= 60


@every_backend
def test_calls_are_denied_and_nothing_is_left(backend: str, folder: Path) -> None:
    sandbox = working(backend, seconds=10.0)
    if not sandbox.isolated and not files_can_be_confined():
        pytest.skip("the kernel has no Landlock, so that a limited process may write where its user may")
    before = left_behind(folder)
    outcomes = sandbox.run_all([(hostile.program, "") for hostile in CALLS], workers=2)
    wrong = [
        (hostile.name, outcome)
        for hostile, outcome in zip(CALLS, outcomes, strict=True)
        if outcome.verdict != hostile.verdict or not re.search(hostile.reason, outcome.detail)
    ]
    assert wrong == []
    assert left_behind(folder) == before
    assert alive(str(sandbox.limits.memory_bytes)) == []


@every_backend
def test_every_call_of_the_table_is_denied(backend: str) -> None:
    outcome = working(backend, seconds=10.0).run(EVERY_DENIED)
    assert outcome.passed, outcome


@every_backend
def test_keys_stay_in_their_run_even_without_a_filter(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = working(backend, seconds=10.0)
    new_session_keyring()
    before = session_keys()
    assert "errno 1" in sandbox.run(LEAVE_KEY).detail
    monkeypatch.setattr(seccomp, "compiled", lambda machine, isolated: ALLOW_ALL)
    left = sandbox.run(LEAVE_KEY)
    assert left.passed or re.search("errno (1|38)$", left.detail), left
    assert session_keys() == before


@every_backend
def test_the_filter_lets_the_driver_leave_the_keyring(backend: str) -> None:
    """The driver takes a refusal for a kernel that shares no keys: our own filter must not be the one that refuses."""
    program = f"import ctypes\nassert ctypes.CDLL(None).syscall({NUMBERS['keyctl']}, 1, None) > 0"
    if keyctl(1, None) < 0:
        pytest.skip("the kernel has no keys for this process")
    assert working(backend, seconds=10.0).run(program).passed


@pytest.mark.parametrize("backend", ISOLATED)
def test_namespaces_are_closed_even_without_a_filter(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = working(backend, seconds=10.0)
    monkeypatch.setattr(seccomp, "compiled", lambda machine, isolated: ALLOW_ALL)
    (asked,) = (hostile for hostile in CALLS if hostile.name == "a new user namespace")
    assert re.search("errno (1|28)$", sandbox.run(asked.program).detail)


FORKED = "import os, time\nchild = os.fork()\nif child: time.sleep(0.01 * {n})\n"


@pytest.mark.parametrize("backend", ISOLATED)
def test_a_child_that_comes_to_the_end_leaves_the_verdict_to_its_parent(backend: str) -> None:
    outcomes = working(backend, seconds=5.0).run_all([(FORKED.format(n=n % 4), "assert True") for n in range(12)], 2)
    assert [outcome.verdict for outcome in outcomes] == ["passed"] * 12


FULL = """
import os
assert os.listdir('.') == []
os.mkdir('locked', 0); os.mkdir('hidden', 0o300); os.mkdir('hidden/inner', 0o300); os.mkdir('hidden/inner/locked', 0)
os.symlink('/', 'hidden/link'); os.symlink('/nowhere', 'link'); os.mkfifo('hidden/inner/pipe', 0)
for n in range(500): open(f'file {n}', 'w').close()
os.mkdir('deep'); os.chdir('deep')
for n in range(3000): os.mkdir('d'); os.chdir('d')
"""


def test_the_folder_of_a_limited_process_is_gone_whatever_it_left(folder: Path) -> None:
    sandbox = working("subprocess", seconds=10.0)
    outcome = sandbox.run(FULL)
    assert outcome.passed, outcome
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "attempt",
    [
        "open({file!r}).read()",
        "open({file!r}, 'w')",
        "os.truncate({file!r}, 0)",
        "os.unlink({file!r})",
        "os.rename({file!r}, 'mine')",
        "os.link({file!r}, 'mine')",
        "os.mkdir({folder!r} + '/new')",
        "os.symlink('/', {folder!r} + '/new')",
        "os.mkfifo({folder!r} + '/new')",
        "os.listdir({folder!r})",
        "open({shared!r} + '/softdlm-new', 'w')",
        "open('/dev/shm/softdlm-new', 'w')",
        "os.kill({owner}, 0)",
        "os.setpriority(os.PRIO_PROCESS, 0, 1)",
        "open('own', 'w').close(); os.chmod('own', 0)",
        "open('own', 'w').close(); os.utime('own')",
        "open('own', 'w').close(); os.setxattr('own', 'user.x', b'')",
        "os.execv({file!r}, ['x'])",
    ],
)
def test_a_limited_process_reaches_no_file_and_no_process_of_its_user(attempt: str, tmp_path: Path) -> None:
    """Where the kernel has Landlock; signals from its sixth version on."""
    sandbox = working("subprocess")
    if not files_can_be_confined():
        pytest.skip("the kernel has no Landlock")
    if "kill" in attempt and landlock_version() < SCOPES_SINCE:
        pytest.skip("the kernel's Landlock does not know signals")
    file = tmp_path / "file"
    file.write_text("mine")
    for open_way in (tmp_path, file):
        open_way.chmod(0o777)
    words = attempt.format(file=str(file), folder=str(tmp_path), owner=os.getpid(), shared=gettempdir())
    outcome = sandbox.run(f"import os\n{words}")
    assert re.search("Permission denied|Operation not permitted|cross-device", outcome.detail), outcome
    assert file.read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_the_record_of_a_limited_process_says_whether_files_were_confined() -> None:
    assert Sandbox("subprocess").record()["files confined"] is files_can_be_confined()
    assert "files confined" not in Sandbox("unshare").record()
