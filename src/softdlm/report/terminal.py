"""The canvas and its results on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from softdlm.report.row_tables import print_rows
from softdlm.report.words import count

if TYPE_CHECKING:
    from softdlm.engine.answer import Generation
    from softdlm.types import Step

COLUMN = 36
"""Characters that a method's text needs beside others."""
OPEN, END = "·", "∎"
NEW, SOFT, CLOSED = "bold green", "dim yellow", ""
LEGEND = Text.assemble(
    ("committed in this pass", NEW),
    "  committed earlier  ",
    ("open: likeliest token", SOFT),
    f"  {OPEN} open  {END} end",
)


def word(model: Any, token: int) -> str:
    """A token as it reads on a line; without a tokenizer, its id."""
    if token in model.eos_ids:
        return END
    return f"{token} " if model.tokenizer is None else model.tokenizer.decode([token]).replace("\n", "⏎ ")


def canvas_text(model: Any, step: Step, row: int) -> Text:
    """One row after a pass: committed tokens plain, this pass's green, open ones their best candidate, dimmed.

    A candidate shows once it is more likely than not; before that the position is a dot.
    """
    answer = step.canvas.free[row]
    ids, open, new = (value[row][answer].tolist() for value in (step.canvas.ids, step.canvas.open, step.committed))
    best_ids = step.prediction.topk_ids[row, :, 0][answer].tolist()
    best = step.prediction.topk_probs[row, :, 0][answer].tolist()
    line = Text()
    for token, is_open, is_new, candidate, share in zip(ids, open, new, best_ids, best, strict=True):
        if not is_open:
            line.append(word(model, token), style=NEW if is_new else CLOSED)
        elif share > 0.5:
            line.append(word(model, candidate), style=SOFT)
        else:
            line.append(OPEN, style="dim")
    return line


class Watch:
    """A live canvas of one answer. It says that the model is loading until `watch` is told the model."""

    def __init__(self, console: Console, title: str, pause: float) -> None:
        self.title, self.pause, self.paused = title, pause, 0.0
        self.live = Live(Panel(Text("loading ..."), title=title), console=console, auto_refresh=False)

    def watch(self, model: Any) -> Callable[[Step, Sequence[int]], None]:
        """For `generate(on_step=...)`. Seconds that it waits between passes are counted in `paused`."""

        def show(step: Step, requests: Sequence[int]) -> None:
            left = int(step.canvas.open[0].sum())
            caption = f"pass {step.index} · {int(step.committed[0].sum())} committed · {left} open"
            canvas = Panel(canvas_text(model, step, 0), title=self.title, subtitle=caption)
            self.live.update(Group(canvas, LEGEND), refresh=True)
            began = time.perf_counter()
            time.sleep(self.pause)
            self.paused += time.perf_counter() - began

        return show

    def __enter__(self) -> Watch:
        self.live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()
        if not self.live.console.is_terminal:
            self.live.console.print()


def summary(answers: Sequence[Generation], seconds: float) -> str:
    """A line on what was decoded; how it ended is said of a single answer."""
    tokens, passes = (sum(values) for values in zip(*((len(each.ids), each.forwards) for each in answers), strict=True))
    many = f"{count(len(answers), 'answer')}: " if len(answers) > 1 else ""
    ended = "" if many else f", ended by {answers[0].finish_reason}"
    rate = f"{tokens / passes:.2f} a pass" if passes else "no pass"
    return f"{many}{count(tokens, 'token')} in {count(passes, 'pass')} ({rate}), {seconds:.2f} s{ended}"


def print_comparison(model: Any, answers: Mapping[str, Generation]) -> None:
    """Methods side by side where there is room, else one under another; tokens unlike the first method's are marked."""
    console, (first, *_) = Console(), answers.values()
    panels, rows = [], []
    for name, answer in answers.items():
        places = differences(first, answer)
        line = Text()
        for index, token in enumerate(answer.ids):
            line.append(word(model, token), style="bold magenta" if index in places else "")
        panels.append(Panel(line, title=name, title_align="left"))
        where = ", ".join(map(str, places[:8])) + (f" … ({len(places)})" if len(places) > 8 else "")
        counts = {"passes": answer.forwards, "tokens": len(answer.ids), "tokens a pass": answer.tokens_per_forward}
        rows.append({"method": name, **counts, "differs from the first at": where or None})
    if console.width < COLUMN * len(panels):
        console.print(*panels, sep="\n")
    else:
        columns = Table.grid(*[""] * len(panels), expand=True)
        for column in columns.columns:
            column.ratio = 1
        columns.add_row(*panels)
        console.print(columns)
    print_rows(rows, digits=2)


def differences(first: Generation, other: Generation) -> list[int]:
    """Answer positions where two texts have different tokens, up to the longer one's end."""
    length = max(len(first.ids), len(other.ids))
    padded = [[*answer.ids, *[-1] * (length - len(answer.ids))] for answer in (first, other)]
    return [index for index, (one, two) in enumerate(zip(*padded, strict=True)) if one != two]
