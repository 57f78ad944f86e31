"""Answers on a terminal: one in words, several beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from softdlm.report.canvas import side_by_side, tokens_text
from softdlm.report.row_tables import print_rows
from softdlm.report.words import count, for_screen

if TYPE_CHECKING:
    from softdlm.engine.answer import Generation

PARTING, OTHER = "▸", "bold magenta"
"""The sign before the first token that differs from the first answer's, and the style of all tokens that do."""


def say(text: str, style: str = "") -> None:
    """A line on standard error; on a terminal it is broken between words, elsewhere it stays whole."""
    console = Console(stderr=True, highlight=False)
    console.print(Text(for_screen(text, console.encoding), style), soft_wrap=not console.is_terminal)


def summary(answers: Sequence[Generation], seconds: float) -> str:
    """A line on what was decoded; how it ended is said of a single answer."""
    tokens, passes = (sum(values) for values in zip(*((len(each.ids), each.forwards) for each in answers), strict=True))
    many = f"{count(len(answers), 'answer')}: " if len(answers) > 1 else ""
    ended = "" if many else f", ended by {answers[0].finish_reason}"
    rate = f"{tokens / passes:.2f} a pass" if passes else "no pass"
    return f"{many}{count(tokens, 'token')} in {count(passes, 'pass')} ({rate}), {seconds:.2f} s{ended}"


def print_comparison(model: Any, answers: Mapping[str, Generation], seconds: Mapping[str, float]) -> None:
    """Methods side by side where there is room, else one below the other; a sign marks where each leaves the first."""
    console, (first, *_) = Console(), answers.values()
    panels, rows = [], []
    for name, answer in answers.items():
        places = differences(first, answer)
        line = compared(model, answer, places, console.encoding)
        panels.append(Panel(line, title=for_screen(name, console.encoding), title_align="left"))
        where = ", ".join(map(str, places[:8])) + (f" … ({len(places)})" if len(places) > 8 else "")
        counts = {"passes": answer.forwards, "tokens": len(answer.ids), "tokens a pass": answer.tokens_per_forward}
        times = {"seconds": seconds[name]}
        rows.append({"method": name, **counts, **times, "differs from the first at": where or None})
    console.print(side_by_side(panels, console.width))
    print_rows(rows, digits=2)


def compared(model: Any, answer: Generation, places: Sequence[int], encoding: str) -> Text:
    """An answer in which the tokens at `places` are marked."""
    start = places[0] if places else len(answer.ids)
    line = Text(tokens_text(model, answer.ids[:start], encoding))
    if places:
        line.append(for_screen(PARTING, encoding), OTHER)
    rest = enumerate(answer.ids[start:], start)
    for differs, run in groupby(rest, lambda each: each[0] in places):
        line.append(tokens_text(model, [token for _, token in run], encoding), OTHER if differs else "")
    return line


def differences(first: Generation, other: Generation) -> list[int]:
    """Answer positions where two texts have different tokens, up to the longer one's end."""
    length = max(len(first.ids), len(other.ids))
    padded = [[*answer.ids, *[-1] * (length - len(answer.ids))] for answer in (first, other)]
    return [index for index, (one, two) in enumerate(zip(*padded, strict=True)) if one != two]
