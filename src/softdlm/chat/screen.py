"""Both ends of a conversation: lines in, answers on standard output, everything else on standard error."""

from __future__ import annotations

import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from types import FrameType

from rich.console import Console
from rich.text import Text

from softdlm.errors import UsageError
from softdlm.report.canvas import LiveCanvas
from softdlm.report.terminal import say
from softdlm.report.words import for_screen

try:
    import readline
    import termios
except ImportError:  # neither is everywhere: then lines cannot be edited
    readline = termios = None

PROMPT = "> "


class SecondInterrupt(KeyboardInterrupt):
    """Ctrl-C again, before the first was heeded."""


class Interrupts:
    """Within, the first Ctrl-C is noted, so that the pass that is being made ends whole; the second is raised.

    What is typed meanwhile is not echoed: it would stand in the canvas.
    """

    def __init__(self) -> None:
        self.noted = False

    def stopped(self) -> bool:
        return self.noted

    def __enter__(self) -> Interrupts:
        self.handler = signal.signal(signal.SIGINT, self._note)
        self.echo = _echo(False)
        return self

    def __exit__(self, *_: object) -> None:
        if self.echo:
            _echo(True)
        signal.signal(signal.SIGINT, self.handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted:
            raise SecondInterrupt
        self.noted = True


def _echo(wanted: bool) -> bool:
    """Whether the terminal echoed what is typed; from now on it does so if `wanted`."""
    if termios is None or sys.stdin is None or not sys.stdin.isatty():
        return False
    flags = termios.tcgetattr(sys.stdin)
    before = bool(flags[3] & termios.ECHO)
    flags[3] = flags[3] | termios.ECHO if wanted else flags[3] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, flags)
    return before


class Screen:
    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.interactive = sys.stdin is not None and sys.stdin.isatty()
        self.out, self.err = Console(soft_wrap=False, highlight=False), Console(stderr=True, highlight=False)

    def read(self) -> str | None:
        """The next line without its end; None after the last."""
        try:
            if self.interactive and sys.stdout.isatty():
                return input(PROMPT)
            if self.interactive:
                print(PROMPT, end="", file=sys.stderr, flush=True)
            line = b"" if sys.stdin is None else sys.stdin.buffer.readline()
            return line.decode().rstrip("\r\n") if line else None
        except EOFError:
            return None
        except UnicodeDecodeError as error:
            raise UsageError(f"the line is not UTF-8 text: {error}") from error

    def answer(self, text: str) -> None:
        """As it is; on a terminal without what would steer it, and broken between words."""
        if not sys.stdout.isatty():
            print(text, flush=True)
            return
        lines = [for_screen(line.replace("\t", "    "), self.out.encoding) for line in text.split("\n")]
        self.out.print(Text("\n".join(lines)))

    def say(self, text: str, style: str = "dim") -> None:
        """A line beside the conversation."""
        say(text, style)

    def help(self, commands: Sequence[tuple[str, str]]) -> None:
        """Each command, and beside or below it what it does."""
        column = max(len(usage) for usage, _ in commands) + 2
        for usage, about in commands:
            beside = self.err.width >= column + 30
            lines = textwrap.wrap(about, self.err.width - (column if beside else 2))
            first = lines.pop(0) if beside else ""
            self.err.print(Text(f"{usage:{column}}{first}".rstrip(), "bold" if not beside else ""))
            for line in lines:
                self.err.print(Text(" " * (column if beside else 2) + line))

    def canvas(self, waiting: str, stopped: Callable[[], bool] = lambda: False) -> LiveCanvas:
        """A live canvas that leaves nothing behind."""
        return LiveCanvas(self.err, waiting, self.pause, transient=True, stopped=stopped)

    def complete(self, words: Sequence[str]) -> None:
        """Let the tab key complete these words, where lines can be edited."""
        if readline is not None and self.interactive:
            readline.set_completer_delims(" ")
            readline.set_completer(
                lambda start, number: [*(each for each in words if start and each.startswith(start)), None][number]
            )
            readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
