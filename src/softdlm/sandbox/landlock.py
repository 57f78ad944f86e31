"""Confines the files of a limited process with Landlock, where the kernel has it; elsewhere it sees what its user sees.

Part of the text that runs beside a candidate: see `backends`.
"""

import os
from _ctypes import Structure, byref, sizeof

from softdlm.sandbox.kernel import PR_SET_NO_NEW_PRIVS, Int, Long, answer, call

SYS_CREATE_RULESET, SYS_ADD_RULE, SYS_RESTRICT_SELF = 444, 445, 446
"""The same on every machine."""
ASK_VERSION, RULE_PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
FILE_RIGHTS_SINCE = {1: (1 << 13) - 1, 2: 1 << 13, 3: TRUNCATE, 5: 1 << 15}
"""New rights by version: 13 to start with, moving between folders, truncating, commands to devices."""
TCP_SINCE, TCP_RIGHTS = 4, 3
SCOPES_SINCE, SCOPES = 6, 3
"""Abstract sockets and signals that leave the process."""
TRUNCATES_SINCE = 3


class Ruleset(Structure):
    _fields_ = (("files", Long), ("network", Long), ("scopes", Long))


class PathRule(Structure):
    _pack_ = 1
    _fields_ = (("rights", Long), ("folder", Int))


def landlock_version() -> int:
    """0 where Landlock is missing, switched off, or denied."""
    if os.uname().sysname != "Linux":
        return 0
    return max(0, answer("syscall", SYS_CREATE_RULESET, None, Long(0), ASK_VERSION))


def files_can_be_confined() -> bool:
    """Below version 3 a process may still empty every file of its user: that is not worth a promise."""
    return landlock_version() >= TRUNCATES_SINCE


def confine_files(readable: list[str], writable: list[str]) -> None:
    """From here on only these are there to be read, and only those to be written; where the kernel can do that."""
    if not files_can_be_confined():
        return
    version = landlock_version()
    handled = sum(rights for since, rights in FILE_RIGHTS_SINCE.items() if version >= since)
    network = TCP_RIGHTS if version >= TCP_SINCE else 0
    wanted = Ruleset(handled, network, SCOPES if version >= SCOPES_SINCE else 0)
    rules = call("syscall", SYS_CREATE_RULESET, byref(wanted), sizeof(wanted), 0)
    for path in readable:
        allow(rules, path, EXECUTE | READ_FILE | READ_DIR)
    for path in writable:
        allow(rules, path, handled)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("syscall", SYS_RESTRICT_SELF, rules, 0)
    os.close(rules)


def allow(rules: int, path: str, rights: int) -> None:
    """A rule for a folder and all below it, or for one file, which takes the rights of files only."""
    folder = os.open(path, os.O_PATH)
    rights &= -1 if os.path.isdir(path) else EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
    call("syscall", SYS_ADD_RULE, rules, RULE_PATH_BENEATH, byref(PathRule(rights, folder)), 0)
    os.close(folder)
