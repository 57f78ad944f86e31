"""`softdlm chat` in a real pseudo-terminal of 40 columns, without colours."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import softdlm
from tests.tokenizers import checkpoint

SOURCE = str(Path(softdlm.__file__).parents[1])
COLUMNS = 40
OPTIONS = {"max_new_tokens": 32, "eos": "forbid", "block_length": 1}
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


class Terminal:
    """A process whose standard streams are one terminal, and what it wrote there."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.end, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 30, COLUMNS, 0, 0))
        env = {"PATH": "/usr/bin:/bin", "TERM": "xterm", "NO_COLOR": "1", "PYTHONPATH": SOURCE, "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "softdlm", *words], stdin=inner, stdout=inner, stderr=inner, close_fds=True,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**env, "OMP_NUM_THREADS": "1"}, cwd=folder,
        )  # fmt: skip
        os.close(inner)
        self.text = ""

    def until(self, words: str, seconds: float = 90) -> str:
        """What it wrote since the last call, up to these words."""
        limit = time.monotonic() + seconds
        while words not in ESCAPE.sub("", self.text):
            assert time.monotonic() < limit, f"no {words!r} in {self.text!r}"
            if select.select([self.end], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.end, 65536).decode(errors="replace")
                except OSError:  # nobody writes any more
                    break
        found, self.text = self.text, ""
        assert words in ESCAPE.sub("", found), found
        return found

    def type(self, text: str) -> None:
        os.write(self.end, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C, once the prompt is waiting: readline loses a signal between drawing the prompt and waiting."""
        spent = None
        while spent != (now := self.work()):
            spent = now
            time.sleep(0.5)
        self.type("\x03")

    def work(self) -> str:
        """What it has computed so far: the same twice where it waits. Linux alone tells."""
        status = Path(f"/proc/{self.process.pid}/schedstat")
        return status.read_text().split()[0] if status.exists() else ""


def widest(text: str) -> int:
    """Of what was drawn, the longest line; a carriage return begins one anew."""
    return max(len(part) for part in re.split(r"[\r\n]+", ESCAPE.sub("", text)))


def test_a_conversation_in_a_terminal(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "llada", "llada")
    words = ("-n", "32", "--eos", "forbid", "--block-length", "1", "--no-history", "--pause", "0.2", "--device", "cpu")
    terminal = Terminal(tmp_path, "chat", "-m", "llada", *words)  # a short name: the first line wraps where it does
    try:
        seen = terminal.until("Ctrl-D leaves.\r\n> ")
        assert "loading" in seen
        terminal.type("the cat\r")
        seen += terminal.until("pass 3 ")
        terminal.type("\x03")
        stopped = terminal.until("leaves\r\n> ")
        assert "stopped after" in stopped
        assert "^C" not in stopped
        terminal.type("/method slerp topn(16)\r")
        seen += stopped + terminal.until("topn(16)\r\n> ")
        terminal.type("the dog\r")
        answered = terminal.until("ended by length\r\n> ")
        terminal.interrupt()
        seen += answered + terminal.until("leaves\r\n> ")
        terminal.interrupt()
        assert terminal.process.wait(60) == 0
    finally:
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait()
        os.close(terminal.end)
    wanted = softdlm.generate(
        softdlm.load(folder, device="cpu"), "the dog", feedback="slerp", commit="topn(16)", **OPTIONS
    )
    last = ESCAPE.sub("", answered.rpartition("\x1b[2K")[2])  # behind the canvas, which was wiped
    assert len(wanted.text) > 16
    assert "".join(wanted.text.split()) in "".join(last.split())
    assert re.search(r"committed earlier", answered)
    assert re.search(r"\x1b\[[0-9;]*\b[349][0-7]\b[0-9;]*m", seen) is None  # no colour
    assert widest(seen) <= COLUMNS
