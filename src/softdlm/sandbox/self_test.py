"""The program of the self-test: it passes only if everything that the back end promises holds here."""

from dataclasses import asdict, dataclass

HONEST = """
import collections, ctypes, dataclasses, decimal, errno, hashlib, heapq, itertools, json, math, os, random, re, string
import typing

@dataclasses.dataclass
class Point:
    x: int
assert Point(1) == Point(1) and json.loads("[1]") == [1] and math.sqrt(4) == 2 and re.match("a+", "aa")
assert "".encode("utf-16-le") == b"", "encodings are out of reach"
leaked = set(os.environ) - {"PYTHONHASHSEED", "PWD", "OLDPWD", "LC_CTYPE"}
assert not leaked, f"the environment is visible: {leaked}"

def refused(path, how=os.O_CREAT | os.O_WRONLY):
    try:
        os.close(os.open(path, how))
    except OSError:
        return True
    return False

libc = ctypes.CDLL(None, use_errno=True)
def denied(name, *arguments):
    return getattr(libc, name)(*arguments) == -1 and ctypes.get_errno() == errno.EPERM
if FILTERED:
    asked = denied("unshare", 0), denied("shmget", 1, 1, 0), denied("ptrace", 16, 0, 0, 0), denied("socket", 16, 3, 0)
    assert all(asked), "system calls are not filtered"
if CONFINED:
    assert all(refused(path, os.O_RDONLY) and refused(path, os.O_WRONLY) for path in HIDDEN), "host files are in reach"
    assert all(refused(os.path.join(folder, "new")) for folder in ("/", "/dev", *SHOWN)), "folders are writable"
    assert refused("/proc/sys/vm/swappiness", os.O_WRONLY), "settings of the kernel are writable"
    assert refused("/proc/self/oom_score_adj", os.O_WRONLY), "it can spare itself when memory runs out"
"""

ISOLATED = """
seen = os.listdir(HOME) if os.path.isdir(HOME) else []
seen = [name for name in seen if os.path.join(HOME, name) not in (*SHOWN, *OWN)]
assert not seen, f"the home folder {HOME} is visible, it has {seen[0]}"
assert not any(map(os.path.exists, HIDDEN)), "files of the host are visible"
interfaces = {line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line}
assert interfaces <= {"lo"}, "the network is visible"
assert sum(name.isdigit() for name in os.listdir("/proc")) <= 3, "processes of the host are visible"
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
left = [name for name, value in status.items() if name[:3] == "Cap" and name != "CapBnd" and value.strip().strip("0")]
assert not left, "capabilities are left"
assert status["Seccomp"].strip() == "2", "system calls are not filtered"
assert all(0 < os.statvfs(path).f_files <= SCRATCH_FILES for path in ("/tmp", "/dev/shm")), "files are not counted"
with open("scratch", "w") as file:
    file.write("x")
"""


@dataclass(frozen=True)
class Promises:
    """`shown` and `own` may be seen; `hidden` are files of the host that anybody may read, and perhaps write."""

    home: str
    shown: list[str]
    own: list[str]
    hidden: list[str]
    scratch_files: int
    filtered: bool
    """Whether system calls are filtered."""
    confined: bool
    """Whether files of the host are out of reach."""


def self_test(promises: Promises, isolated: bool) -> str:
    known = "".join(f"{name.upper()} = {value!r}\n" for name, value in asdict(promises).items())
    return known + HONEST + (ISOLATED if isolated else "")
