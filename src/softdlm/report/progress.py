"""Progress on standard error: one line that is rewritten on a terminal, a line now and then in a file."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LINE_SECONDS = 10.0
"""Between lines of progress where standard error is a file."""


class Screen:
    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.shown = 0.0
        self.interrupted = False

    def say(self, text: str) -> None:
        """A line that stays."""
        print(f"\r\033[K{text}" if self.terminal else text, file=sys.stderr, flush=True)

    def show(self, text: str, last: bool = False) -> None:
        """A line that the next one replaces; `last` is shown in any case."""
        if self.interrupted:
            raise KeyboardInterrupt
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1  # a longer line would wrap and stay
            print(f"\r\033[K{text[:width]}", end="", file=sys.stderr, flush=True)
        elif last or time.monotonic() - self.shown >= LINE_SECONDS:
            self.shown = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Within, Ctrl-C stops the work for certain, at the next line of progress at the latest.

        Python drops an exception that comes up while it finalises an object, and an interrupt may come at any time.
        """

        def note(number: int, frame: FrameType | None) -> None:
            self.interrupted = True
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
