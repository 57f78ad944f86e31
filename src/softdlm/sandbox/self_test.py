"""The program of the self-test: in a sandbox, it passes only if everything that the back end promises holds here."""

import os
from pathlib import Path

HONEST = """
import collections, dataclasses, decimal, hashlib, heapq, itertools, json, math, os, random, re, socket, string, typing

@dataclasses.dataclass
class Point:
    x: int
assert Point(1) == Point(1) and json.loads("[1]") == [1] and math.sqrt(4) == 2 and re.match("a+", "aa")
leaked = set(os.environ) - {"PYTHONHASHSEED", "PWD", "OLDPWD", "LC_CTYPE"}
assert not leaked, f"the environment is visible: {leaked}"
"""

ISOLATED = """
def refused(path):
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    except OSError:
        return True
    return False

seen = os.listdir(HOME) if os.path.isdir(HOME) else []
seen = [name for name in seen if os.path.join(HOME, name) not in (*SHOWN, *OWN)]
assert not seen, f"the home folder {HOME} is visible, it has {seen[0]}"
assert not any(map(os.path.exists, HIDDEN)), "files of the host are visible"
assert all(refused(os.path.join(folder, "new")) for folder in ("/", "/dev", *SHOWN)), "folders are writable"
assert refused("/proc/sys/vm/swappiness"), "settings of the kernel are writable"
assert {name for _, name in socket.if_nameindex()} <= {"lo"}, "the network is visible"
assert sum(name.isdigit() for name in os.listdir("/proc")) <= 3, "processes of the host are visible"
assert not any(line.split()[1].strip("0") for line in open("/proc/self/status") if line.startswith("Cap")
    and line[:6] != "CapBnd"), "capabilities are left"
with open("scratch", "w") as file:
    file.write("x")
"""


def self_test(isolated: bool, views: list[str], links: list[str], hidden: list[str]) -> str:
    """`views` and `links` may be seen, with the folders that lead there; `hidden` are paths that exist on the host."""
    if not isolated:
        return HONEST
    shown = sorted({str(folder) for view in views for folder in (Path(view), *Path(view).parents)})
    known = {
        "HOME": os.path.expanduser("~"),
        "SHOWN": shown,
        "OWN": ["/dev", "/proc", "/tmp", *links],
        "HIDDEN": hidden,
    }
    return HONEST + "".join(f"{name} = {value!r}\n" for name, value in known.items()) + ISOLATED
