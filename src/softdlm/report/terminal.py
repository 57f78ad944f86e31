"""The canvas and its results on a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from softdlm.generation import Generation
from softdlm.types import Step

COLUMN = 36
"""Characters that a method's text needs beside others."""
OPEN, END = "·", "∎"
NEW, SOFT, CLOSED = "bold green", "dim yellow", ""


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
    """A live canvas; give its `step` to `generate(on_step=...)`."""

    def __init__(self, model: Any, console: Console, title: str, pause: float) -> None:
        self.model, self.title, self.pause = model, title, pause
        self.live = Live(console=console, refresh_per_second=30, transient=False)

    def step(self, step: Step, requests: Sequence[int]) -> None:
        left = int(step.canvas.open[0].sum())
        caption = f"pass {step.index} · {int(step.committed[0].sum())} committed · {left} open"
        self.live.update(Panel(canvas_text(self.model, step, 0), title=self.title, subtitle=caption), refresh=True)
        time.sleep(self.pause)

    def __enter__(self) -> Watch:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()


def summary(answer: Generation, seconds: float) -> str:
    return (
        f"{len(answer.ids)} tokens in {answer.forwards} passes"
        f" ({answer.tokens_per_forward:.2f} a pass), {seconds:.2f} s, ended by {answer.finish_reason}"
    )


def comparison(model: Any, answers: dict[str, Generation], width: int) -> Group:
    """Methods side by side where there is room, else one under another; tokens unlike the first method's are marked."""
    (_, first), *_ = answers.items()
    panels: list[Any] = []
    table = Table("method", "passes", "tokens", "tokens a pass", "differs from the first at")
    for name, answer in answers.items():
        places = differences(first, answer)
        line = Text()
        for index, token in enumerate(answer.ids):
            line.append(word(model, token), style="bold magenta" if index in places else "")
        panels.append(Panel(line, title=name, title_align="left"))
        where = ", ".join(map(str, places[:8])) + (f" … ({len(places)})" if len(places) > 8 else "")
        table.add_row(
            name, str(answer.forwards), str(len(answer.ids)), f"{answer.tokens_per_forward:.2f}", where or "—"
        )
    if width < COLUMN * len(panels):
        return Group(*panels, table)
    columns = Table.grid(*[""] * len(panels), expand=True)
    for column in columns.columns:
        column.ratio = 1
    columns.add_row(*panels)
    return Group(columns, table)


def differences(first: Generation, other: Generation) -> list[int]:
    """Answer positions where two texts have different tokens, up to the longer one's end."""
    length = max(len(first.ids), len(other.ids))
    padded = [[*answer.ids, *[-1] * (length - len(answer.ids))] for answer in (first, other)]
    return [index for index, (one, two) in enumerate(zip(*padded, strict=True)) if one != two]
