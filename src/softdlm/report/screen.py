"""Progress on standard error: one line that is rewritten on a terminal, a line now and then in a file."""

from __future__ import annotations

import shutil
import sys
import time

LINE_SECONDS = 10.0
"""Between lines of progress where standard error is a file."""


class Screen:
    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.shown = 0.0

    def say(self, text: str) -> None:
        """A line that stays."""
        print(f"\r\033[K{text}" if self.terminal else text, file=sys.stderr, flush=True)

    def show(self, text: str, last: bool = False) -> None:
        """A line that the next one replaces; `last` is shown in any case."""
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1  # a longer line would wrap and stay
            print(f"\r\033[K{text[:width]}", end="", file=sys.stderr, flush=True)
        elif last or time.monotonic() - self.shown >= LINE_SECONDS:
            self.shown = time.monotonic()
            print(text, file=sys.stderr, flush=True)
