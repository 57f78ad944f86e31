"""Rows of a result as a table: on a terminal of any width, in Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat, zip_longest
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from softdlm.report.words import SIGNS

GAP = "  "
LONG = 20
"""A cell longer than this is prose, whose lines may be broken between words down to this width."""
_NUMBER = re.compile(r"—|n/a|[-+]?[0-9.,]+(e[-+]?[0-9]+)?( [A-Z%])?\*?( \[.*\])?( p \S+)?")


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    title: str = "",
    *,
    labels: int = 1,
    digits: int | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print a table and its notes on standard output, laid out for the width of the terminal."""
    console = Console()
    shown = table(rows, console.width, title, labels=labels, digits=digits)
    shown.plain = shown.plain if console.encoding.startswith("utf") else shown.plain.translate(SIGNS)
    console.print(shown, soft_wrap=True, end="")
    for note in notes:
        print(*(f"{GAP}{line}" for line in _wrap(note, console.width - len(GAP))), sep="\n")
    print()


def table(
    rows: Sequence[Mapping[str, Any]], width: int, title: str = "", *, labels: int = 1, digits: int | None = None
) -> Text:
    """A table of at most `width` characters, one column per key of the first row; without rows, the title.

    Neither a number nor a word is broken. Columns that do not fit beside each other stand in further tables below,
    each with the first `labels` columns again; a column "x, paper" stays beside column "x". Where not even one fits
    beside the labels, each row is a list of its own. Fractions have `digits` digits, None is a dash.
    """
    columns = {name: [_cell(row[name], digits) for row in rows] for name in (rows[0] if rows else ())}
    heading = "".join(f"{line}\n" for line in _wrap(title, width))
    split = _parts(columns, width, labels) if columns else []
    fits = all(_total(_widths(part, width)) <= width for part in split)
    shown = map(_grid, split, repeat(width)) if fits else _lists(columns, width, labels)
    return Text.assemble((heading, "bold"), "\n".join("".join(f"{line}\n" for line in part) for part in shown))


def _lists(columns: Mapping[str, list[str]], width: int, labels: int) -> Iterator[Iterator[str]]:
    """A row after another, each under its labels, with a line for each column."""
    heads, rest = list(columns)[labels:], width - 2 * len(GAP)
    for row in zip(*columns.values(), strict=True):
        cells = row[labels:]
        first = max(max(map(_word, heads)), min(max(map(_longest, heads)), rest - max(map(_longest, cells))))
        lines = (_lines(pair, (first, rest - first), (False, False)) for pair in zip(heads, cells, strict=True))
        yield chain(_wrap(" · ".join(row[:labels]), width), (GAP + line for line in chain.from_iterable(lines)))


def _parts(columns: Mapping[str, list[str]], width: int, labels: int) -> list[dict[str, list[str]]]:
    """As few tables as will do, with about as many columns each."""
    names = list(columns)
    heads, groups = names[:labels], _groups(names[labels:])
    found: list[dict[str, list[str]]] = []
    for count in range(1, len(groups) + 1):
        size = -(-len(groups) // count)
        chosen = [chain(heads, *groups[start : start + size]) for start in range(0, len(groups), size)]
        found = [{name: columns[name] for name in part} for part in chosen]
        if all(_total(_widths(part, width)) <= width for part in found):
            break
    return found or [dict(columns)]


def _groups(names: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    for name in names:
        if groups and name == f"{groups[-1][0]}, paper":
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def _widths(columns: Mapping[str, list[str]], width: int) -> list[int]:
    """Whole heads where there is room, else heads in several lines; then the widest prose gives way."""
    whole = [max(map(_longest, [name, *cells])) for name, cells in columns.items()]
    if _total(whole) <= width:
        return whole
    words = [max([_word(name), *map(_longest, cells)]) for name, cells in columns.items()]
    for index, cells in sorted(enumerate(columns.values()), key=lambda each: -words[each[0]]):
        over = _total(words) - width
        if over > 0 and words[index] > LONG:
            words[index] = max(LONG, words[index] - over, *map(_word, cells))
    return _widen_heads(words, list(columns), width)


def _widen_heads(widths: list[int], names: Sequence[str], width: int) -> list[int]:
    """Give the room that is left to the heads of most lines."""
    while True:
        lines = [len(_wrap(name, size)) for name, size in zip(names, widths, strict=True)]
        tallest, wider = lines.index(max(lines)), list(widths)
        while len(_wrap(names[tallest], wider[tallest])) >= max(2, lines[tallest]):
            wider[tallest] += 1
        if wider == widths or _total(wider) > width:
            return widths
        widths = wider


def _grid(columns: Mapping[str, list[str]], width: int) -> Iterator[str]:
    widths = _widths(columns, width)
    right = [all(map(_NUMBER.fullmatch, cells)) for cells in columns.values()]
    yield from _lines(list(columns), widths, right)
    yield "─" * _total(widths)
    for cells in zip(*columns.values(), strict=True):
        yield from _lines(cells, widths, right)


def _lines(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    wrapped = [
        [line for part in cell.split("\n") for line in _wrap(part, size) or [""]]
        for cell, size in zip(cells, widths, strict=True)
    ]
    for parts in zip_longest(*wrapped, fillvalue=""):
        yield GAP.join(map(_pad, parts, widths, right)).rstrip()


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _longest(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A GitHub table, one column per key of the first row."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(map(str, row.values())) for row in rows)]
    return "".join(f"| {' | '.join(_escape(value) for value in line)} |\n" for line in lines)


def _escape(value: str) -> str:
    return value.replace("|", "\\|")


def _cell(value: Any, digits: int | None) -> str:
    """Fractions from 10 on, such as degrees or passes, need one digit only."""
    if value is None:
        return "—"
    if digits is None or not isinstance(value, float):
        return str(value)
    return f"{value:.{digits if abs(value) < 10 else 1}f}"
