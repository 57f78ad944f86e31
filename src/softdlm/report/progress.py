"""Progress on standard error: one line that is rewritten on a terminal, a line now and then in a file."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from softdlm.report.words import SIGNS

BAR = 10
"""Characters of a progress bar."""
LINE_SECONDS = 10.0
"""Between lines of progress where standard error is a file."""


def progress_line(share: float, label: str, *facts: str, width: int | None = None) -> str:
    """A bar, what is being done, and facts such as the time left; the label is shortened first to fit the width.

    A label's parts stand between dots. Those in front, which change least, are left out until two remain, and the
    first of these loses its end. Where there is no room for the facts, the bar gives way, then facts in front.
    """
    full = int(share * BAR)
    before, after = f"{'█' * full}{'░' * (BAR - full)} ", "".join(f"  {fact}" for fact in facts)
    if width is not None and len(before) + len(after) > width:
        while facts and len("  ".join(facts)) > width:
            facts = facts[1:]
        return "  ".join(facts)
    room = len(label) if width is None else max(0, width - len(before) - len(after))
    while len(label) > room and label.count(" · ") > 1:
        label = label.partition(" · ")[2]
    if len(label) > room:
        head, dot, tail = label.rpartition(" · ")
        head = head[: max(0, room - len(dot) - len(tail) - 1)].rstrip()
        label = f"{head}…{dot}{tail}" if head else label[:room]
    return f"{before}{label}{after}"


def clock(seconds: float) -> str:
    """`1:22`, or `2:01:22` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Screen:
    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.unicode = (sys.stderr.encoding or "utf-8").lower().startswith("utf")
        self.shown = 0.0
        self.interrupted = False

    @property
    def width(self) -> int | None:
        """Characters of a line that is rewritten: a longer one would wrap and stay. In a file any length will do."""
        return shutil.get_terminal_size().columns - 1 if self.terminal else None

    def say(self, text: str) -> None:
        """A line that stays."""
        text = self._fit(text)
        print(f"\r\033[K{text}" if self.terminal else text, file=sys.stderr, flush=True)

    def show(self, text: str, last: bool = False) -> None:
        """A line that the next one replaces; `last` is shown in any case."""
        if self.interrupted:
            raise KeyboardInterrupt
        text = self._fit(text)
        if self.terminal:
            print(f"\r\033[K{text[: self.width]}", end="", file=sys.stderr, flush=True)
        elif last or time.monotonic() - self.shown >= LINE_SECONDS:
            self.shown = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def _fit(self, text: str) -> str:
        """Our signs as others where there is no Unicode."""
        return text if self.unicode else text.translate(SIGNS)

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
