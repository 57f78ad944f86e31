"""Programs that mean harm, each with the right verdict and the reason that must stand in its detail.

The checks of a cheat are `assert False`: if it passes, it has cheated. All others have none: if one passes, it got
what it wanted.
"""

from typing import NamedTuple


class Hostile(NamedTuple):
    name: str
    verdict: str
    reason: str
    program: str
    checks: str = ""


ENDED = "^ended before its checks did: exit status"

ACCIDENTS = [
    Hostile("infinite loop", "timeout", "", "while True: pass"),
    Hostile("long sleep", "timeout", "", "import time\ntime.sleep(60)"),
    Hostile("deep recursion", "failed", "RecursionError", "def f(n):\n    return f(n + 1) + 1\nf(0)"),
    Hostile(
        "recursion in C without a limit",
        "failed",
        f"{ENDED}|RecursionError",
        """
import sys
sys.setrecursionlimit(2**31 - 1)
class A:
    def __repr__(self): return repr([self])
repr(A())
""",
    ),
    Hostile(
        "source nested too deep",
        "failed",
        f"SyntaxError|MemoryError|RecursionError|{ENDED}",
        "x = " + "(" * 50_000 + ")" * 50_000,
    ),
    Hostile("source that is no text", "failed", "UnicodeEncodeError", "\ud800"),
    Hostile("source with a null", "failed", "null bytes", "x = 1\0"),
    Hostile("memory at once", "failed", "MemoryError", "x = bytearray(4 * 2**30)"),
    Hostile("memory bit by bit", "failed", "MemoryError", "x = []\nwhile True: x.append(bytearray(2**24))"),
    Hostile("reading what is not there", "failed", "EOFError", "input()"),
    Hostile("segmentation fault", "failed", ENDED, "import ctypes\nctypes.string_at(0)"),
    Hostile("abort", "failed", ENDED, "import os\nos.abort()"),
    Hostile("message without end", "failed", r"Exception: a \[31ma", "raise Exception('a\\n\\x1b[31m' * 10**6)"),
    Hostile(
        "message that raises",
        "failed",
        "cannot be shown",
        "class E(Exception):\n    def __str__(self): raise SystemExit(0)\nraise E",
    ),
    Hostile("a file of 100 MB", "failed", "File too large", "open('big', 'wb').write(bytes(10**8))"),
    Hostile(
        "ten thousand threads",
        "failed",
        "can't start new thread",
        """
import threading, time
for _ in range(10_000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
""",
    ),
    Hostile(
        "a fork bomb",
        "timeout",
        "",
        """
import os
while True:
    try: os.fork()
    except OSError: pass
""",
    ),
]

REFUSALS = [
    Hostile(
        "signals ignored",
        "timeout",
        "",
        """
import signal
for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
while True: pass
""",
    ),
    Hostile(
        "a handler that goes on",
        "timeout",
        "",
        "import signal\nsignal.signal(signal.SIGTERM, lambda *a: None)\nwhile True: signal.pause()",
    ),
    Hostile(
        "exceptions swallowed",
        "timeout",
        "",
        "while True:\n    try: raise KeyboardInterrupt\n    except BaseException: pass",
    ),
    Hostile("stopping itself", "timeout", "", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"),
    Hostile("report closed, then a loop", "timeout", "", "import os\nos.closerange(0, 64)\nwhile True: pass"),
    Hostile("killing its group", "failed", ENDED, "import os\nos.killpg(0, 9)"),
]

CHEATS = [
    Hostile("sys.exit(0)", "failed", "SystemExit: 0", "import sys\nsys.exit(0)", "assert False"),
    Hostile("exit(0) in a check", "failed", "SystemExit: 0", "def f(x): raise SystemExit(0)", "assert f(1) == 2"),
    Hostile("os._exit(0)", "failed", f"{ENDED} 0", "import os\nos._exit(0)", "assert False"),
    Hostile(
        "os._exit(0) from another thread",
        "failed",
        f"{ENDED} 0|can't start new thread",
        "import _thread, os, time\n_thread.start_new_thread(os._exit, (0,))\ntime.sleep(9)",
        "assert False",
    ),
    Hostile(
        "another program in its place",
        "failed",
        f"{ENDED} 0",
        "import os\nos.execv('/bin/true', ['true'])",
        "assert False",
    ),
    Hostile("printing marks", "failed", "AssertionError", "print('ready\\npassed\\nok', flush=True)", "assert False"),
    Hostile(
        "marks on every descriptor",
        "failed",
        "^ready",
        """
import os
for fd in range(64):
    try: os.write(fd, b'ready\\npassed\\n')
    except OSError: pass
""",
        "assert False",
    ),
    Hostile(
        "echo of every descriptor",
        "failed",
        "^[0-9a-f]{64}$",
        """
import os
found = b''
for fd in range(64):
    try:
        os.set_blocking(fd, False)
        found += os.read(fd, 4096)
    except OSError: pass
for fd in range(64):
    try: os.write(fd, found)
    except OSError: pass
os._exit(0)
""",
        "assert False",
    ),
    Hostile(
        "every large number of memory",
        "failed",
        "^[0-9a-f]{64}",
        """
import gc, os, sys
frame, held = sys._getframe(), []
while frame:
    held += [*frame.f_locals.values(), *frame.f_globals.values(), *frame.f_code.co_consts]
    frame = frame.f_back
held += [x for o in gc.get_objects() for x in gc.get_referents(o)]
for number in {w for w in held if type(w) is int and w > 2**200}:
    for fd in range(64):
        try: os.write(fd, b'%064x\\n' % number)
        except OSError: pass
os._exit(0)
""",
        "assert False",
    ),
    Hostile(
        "every long word of memory and every descriptor",
        "failed",
        "^[0-9a-f]{110,128}$",
        """
import gc, os, sys
frame, held = sys._getframe(), []
while frame:
    held += [*frame.f_locals.values(), *frame.f_globals.values(), *frame.f_code.co_consts]
    frame = frame.f_back
held += [x for o in gc.get_objects() for x in gc.get_referents(o)]
found = [w if isinstance(w, bytes) else w.encode() for w in held
         if isinstance(w, (str, bytes)) and len(w) == 64 and w.isalnum()]
found += [b'%x' % w for w in held if type(w) is int and w > 2**200]
for fd in range(3, 64):
    try:
        os.set_blocking(fd, False)
        found[1:] = [os.read(fd, 4096)]
    except OSError: pass
for fd in range(3, 64):
    try: os.write(fd, b''.join(found))
    except OSError: pass
os._exit(0)
""",
        "assert False",
    ),
    Hostile(
        "taking the checks out of every list and iterator",
        "failed",
        "^checks, line 1: AssertionError",
        """
import gc, sys, types
code = type(sys._getframe().f_code)
frame = sys._getframe().f_back
while frame:
    for value in frame.f_locals.values():
        if isinstance(value, list): value.clear()
    frame = frame.f_back
for thing in gc.get_objects():
    if type(thing) is list and any(type(part) is code for part in thing): thing.clear()
    if type(thing) is map:
        for part in gc.get_referents(thing): [*part] if hasattr(part, '__next__') else None
""",
        "assert False",
    ),
    Hostile(
        "taking the checks off the variables",
        "failed",
        "^checks, line 1: AssertionError",
        """
import ctypes, sys
frame = sys._getframe().f_back
while frame:
    for name in frame.f_locals:
        if name in ('stages', 'second', 'checks'): frame.f_locals[name] = compile('', 'checks', 'exec')
    if hasattr(ctypes.pythonapi, 'PyFrame_LocalsToFast'):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    frame = frame.f_back
""",
        "assert False",
    ),
    Hostile(
        "patching the checker",
        "failed",
        "^checks, line 1: AssertionError",
        """
import builtins, os, sys
nothing = lambda *a, **k: None
frame = sys._getframe().f_back
while frame:
    for name in ('stages', 'checks'): frame.f_locals[name] = ''
    for name in ('judge', 'compile', 'exec', 'map', 'any', 'int', 'error_line'): frame.f_globals[name] = nothing
    frame = frame.f_back
builtins.exec = builtins.compile = builtins.AssertionError = builtins.map = builtins.any = nothing
os.getpid = os._exit = os.read = os.write = nothing
sys.excepthook = sys.exit = nothing
""",
        "assert False",
    ),
    Hostile("a flood on standard output", "timeout", "", "while True: print('x' * 10_000)"),
    Hostile(
        "a flood on every descriptor",
        "output",
        "",
        """
import os
while True:
    for fd in range(64):
        try: os.write(fd, b'x' * 10_000)
        except OSError: pass
""",
    ),
]
