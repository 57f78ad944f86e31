"""Runs a candidate program and its checks in a separate, limited Python process.

The process sees no environment and no site packages, may use little time and memory, start nothing and
write no file. It succeeds only by printing a secret of this run after the last check, so a candidate that
leaves early or prints "ok" does not pass. This contains accidents (loops, memory, crashes); it is no jail
for hostile code.
"""

import secrets
import subprocess
import sys
from tempfile import TemporaryDirectory

_DRIVER = """
import os, resource, sys
program, checks, secret = {program!r}, {checks!r}, {secret!r}
for limit, most in {limits!r}.items():
    resource.setrlimit(getattr(resource, limit), (most, most))
report = os.dup(1)
null = os.open(os.devnull, os.O_RDWR)
for stream in (0, 1, 2):
    os.dup2(null, stream)
scope = {{"__name__": "candidate"}}
exec(compile(program, "program", "exec"), scope)
exec(compile(checks, "checks", "exec"), scope)
os.write(report, secret.encode())
"""
_LIMITS = {
    "RLIMIT_CPU": 2,
    "RLIMIT_AS": 512 * 2**20,
    "RLIMIT_NPROC": 0,
    "RLIMIT_FSIZE": 0,
    "RLIMIT_NOFILE": 16,
    "RLIMIT_CORE": 0,
}


def passes(program: str, checks: str, timeout: float = 4.0) -> bool:
    """Whether `program` runs and then `checks` (assert statements) run to their end in its namespace."""
    secret = secrets.token_hex(16)
    script = _DRIVER.format(program=program, checks=checks, secret=secret, limits=_LIMITS)
    try:
        with TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-"],
                input=script.encode("utf-8", errors="surrogatepass"),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=timeout,
                env={},
                cwd=folder,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and done.stdout == secret.encode()
