"""Canvases on a terminal while they are decoded: one for `--watch` and `chat`, several beside each other to compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from softdlm.report.words import for_screen

if TYPE_CHECKING:
    from softdlm.types import Step

COLUMN = 36
"""Characters that a method's text needs beside others."""
TICK = 0.05
"""Seconds between looks at whether a pause is to end."""
OPEN, END, NEW_LINE = "·", "∎", "⏎ "
NEW, SOFT, CLOSED, DOT = "bold green", "dim yellow", "", "dim"
LEGEND = (
    ("committed in this pass", NEW),
    ("committed earlier", CLOSED),
    ("open: likeliest token", SOFT),
    (f"{OPEN} open", CLOSED),
    (f"{END} end", CLOSED),
)


def tokens_text(model: Any, ids: Sequence[int], encoding: str = "utf-8") -> str:
    """Tokens as they read on a line: line ends as a sign, a run of end marks as its length; without tokenizer, ids."""
    parts = []
    for ends, run in groupby(ids, model.eos_ids.__contains__):
        same = list(run)
        if ends:
            parts.append(END if len(same) == 1 else f"{END}\N{MULTIPLICATION SIGN}{len(same)} ")
        elif model.tokenizer is None:
            parts.append("".join(f"{token} " for token in same))
        else:
            parts.append(model.tokenizer.decode(same).replace("\n", NEW_LINE))
    return for_screen("".join(parts), encoding)


def canvas_text(model: Any, step: Step, row: int, encoding: str = "utf-8") -> Text:
    """One row after a pass: committed tokens plain, this pass's green, open ones their best candidate, dimmed.

    A candidate shows once it is more likely than not; before that the position is a dot.
    """
    answer = step.canvas.free[row]
    ids, open, new = (value[row][answer].tolist() for value in (step.canvas.ids, step.canvas.open, step.committed))
    best_ids = step.prediction.topk_ids[row, :, 0][answer].tolist()
    shares = step.prediction.topk_probs[row, :, 0][answer].tolist()
    styles = [
        (SOFT if share > 0.5 else DOT) if is_open else NEW if is_new else CLOSED
        for is_open, is_new, share in zip(open, new, shares, strict=True)
    ]
    shown = [best if is_open else token for token, is_open, best in zip(ids, open, best_ids, strict=True)]
    line = Text()
    for style, cells in groupby(zip(styles, shown, strict=True), lambda cell: cell[0]):
        run = [token for _, token in cells]
        line.append(for_screen(OPEN, encoding) * len(run) if style == DOT else tokens_text(model, run, encoding), style)
    return line


def side_by_side(panels: Sequence[Panel], width: int) -> RenderableType:
    """Panels beside each other where there is room, else one below the other."""
    if width < COLUMN * len(panels):
        return Group(*panels)
    columns = Table.grid(*[""] * len(panels), expand=True)
    for column in columns.columns:
        column.ratio, column.overflow = 1, "fold"
    columns.add_row(*panels)
    return columns


def legend(width: int, encoding: str) -> Text:
    """What the styles and signs mean; no entry is broken over two lines where the width allows it."""
    text, used = Text(), 0
    for words, style in LEGEND:
        if used:
            text.append("  " if used + 2 + len(words) <= width else "\n")
            used = used + 2 if used + 2 + len(words) <= width else 0
        text.append(for_screen(words, encoding), style)
        used += len(words)
    return text


class Shown(NamedTuple):
    """A canvas after a pass."""

    text: Text
    caption: str


class LiveCanvas:
    """Canvases on a terminal, drawn anew after each pass; until the first one, a spinner with the seconds that passed.

    Where the console is no terminal, the last picture is printed at the end, and nothing if it is `transient`.
    """

    def __init__(
        self,
        console: Console,
        waiting: str,
        pause: float = 0.0,
        *,
        transient: bool = False,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`waiting` stands beside the spinner. `pause` is for how many seconds each pass is shown at least, unless
        `stopped` says that nobody wants to see more.
        """
        self.console, self.waiting, self.pause, self.stopped = console, waiting, pause, stopped
        self.encoding, self.animated = console.encoding, console.is_terminal and not console.is_dumb_terminal
        self.paused, self.whole = 0.0, not self.animated
        self.began = self.drawn = time.perf_counter()
        self.canvases: dict[str, Shown] = {}
        self.spinner = Spinner("dots" if self.encoding.startswith("utf") else "line")
        self.live = Live(self, console=console, auto_refresh=self.animated, refresh_per_second=8, transient=transient)

    def watch(self, model: Any, title: str) -> Callable[[Step, Sequence[int]], None]:
        """For `generate(on_step=...)`: shows row 0. Seconds spent on drawing and waiting are counted in `paused`."""
        title = for_screen(title, self.encoding)

        def show(step: Step, requests: Sequence[int]) -> None:
            text, left = canvas_text(model, step, 0, self.encoding), int(step.canvas.open[0].sum())
            began = time.perf_counter()
            caption = f"pass {step.index} · {int(step.committed[0].sum())} committed · {left} open"
            self._linger()
            self.canvases[title] = Shown(text, for_screen(caption, self.encoding))
            self.live.refresh()
            self.drawn = time.perf_counter()
            self.paused += self.drawn - began

        return show

    def _linger(self) -> None:
        """Leave the last picture on the screen for as long as it is to be seen."""
        if self.canvases and self.animated:
            while (left := self.drawn + self.pause - time.perf_counter()) > 0 and not self.stopped():
                time.sleep(min(left, TICK))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if not self.canvases:
            self.spinner.update(text=f"{self.waiting} {time.perf_counter() - self.began:.0f} s")
            yield self.spinner
            return
        below = legend(options.max_width, self.encoding)
        beside = options.max_width >= COLUMN * len(self.canvases)
        rows = 1 if beside else len(self.canvases)
        width = options.max_width // (len(self.canvases) if beside else 1) - 4
        height = max(1, (console.height - 1 - len(below.split())) // rows - 2)
        texts = {title: self._part(each.text, width, height) for title, each in self.canvases.items()}
        panels = [Panel(texts[title], title=title, subtitle=each.caption) for title, each in self.canvases.items()]
        yield side_by_side(panels, options.max_width)
        yield below

    def _part(self, text: Text, width: int, height: int) -> Text:
        """Of a canvas higher than the terminal, the lines up to the last one that this pass committed to."""
        lines = text.wrap(self.console, width)
        if self.whole or len(lines) <= height:
            return text
        new = [number for number, line in enumerate(lines) if any(span.style == NEW for span in line.spans)]
        end = max(height, 1 + max(new, default=0))
        return Text("\n").join(lines[end - height : end])

    def __enter__(self) -> LiveCanvas:
        self.live.start(refresh=self.animated)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._linger()
        self.live.transient |= not self.canvases
        self.whole |= not self.live.transient
        self.live.stop()
        if not (self.animated or self.live.transient):
            self.console.print()
