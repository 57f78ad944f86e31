"""One table value in Markdown, CSV, LaTeX and HTML, and on a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from typing import Any

from softdlm.report.row_tables import markdown as markdown_rows
from softdlm.report.row_tables import print_rows
from softdlm.report.table import Cell, Column, Row, Table

NOTHING = "—"
LONG = 40
"""Rows from which a table of a page is folded."""
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "[": "{[}", "]": "{]}", "—": "---",
    "λ": r"$\lambda$", "≤": r"$\leq$", "≥": r"$\geq$", "<": r"$<$", ">": r"$>$", "·": r"$\cdot$", "|": r"$|$",
}  # fmt: skip


def number(value: float | int | str | None, digits: int) -> str:
    if value is None:
        return NOTHING
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def interval(cell: Cell, digits: int) -> str:
    return "" if cell.low is None else f"[{number(cell.low, digits)}, {number(cell.high, digits)}]"


def to_markdown(table: Table) -> str:
    title = f"**{table.title}**" + (f" ({table.mark})" if table.mark else "")
    lines = [title, "", markdown_rows(list(_words(table, "**{}**"))).rstrip()] if table.rows else [title]
    notes = [f"- {note}" for note in table.notes]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def print_table(table: Table) -> None:
    """On standard output, with the notes below; an asterisk stands for bold."""
    title = table.title + (f" ({table.mark})" if table.mark else "")
    best = any(cell.best for row in table.rows for cell in row.cells)
    notes = (*table.notes, *(["An asterisk stands for bold: the best of those compared."] if best else ()))
    print_rows(list(_words(table, "{}*")), title, labels=len(table.heads), notes=notes)


def _grouped(table: Table) -> Iterator[tuple[Row, bool]]:
    """Each row, and whether it begins a group: of several labels the first is not that of the row before."""
    before = None
    for row in table.rows:
        first, *further = row.labels
        yield row, bool(further) and first != before
        before = first


def _words(table: Table, best: str) -> Iterator[dict[str, str]]:
    for row in table.rows:
        words = dict(zip(table.heads, row.labels, strict=True))
        for index, (column, cell) in enumerate(zip(table.columns, row.cells, strict=True)):
            value = number(cell.value, column.digits)
            parts = [best.format(value) if cell.best else value, interval(cell, column.digits), cell.note]
            words[column.name] = " ".join(part for part in parts if part)
            if table.has_paper(index):
                words[f"{column.name}, paper"] = number(cell.paper, column.paper_digits)
        yield words


def to_csv(table: Table) -> str:
    """Every number in full. Intervals, paper's numbers, `best` and `note` have columns where there are any, and the
    mark of a run has one in every row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = list(_csv_columns(table))
    run = [table.mark] if table.mark else []
    writer.writerow([*table.heads, *(name for name, _ in columns), *(["run"] if run else [])])
    for index, row in enumerate(table.rows):
        writer.writerow([*row.labels, *(values[index] for _, values in columns), *run])
    if run and not table.rows:
        writer.writerow([*[""] * (len(table.heads) + len(columns)), *run])
    return text.getvalue()


def _csv_columns(table: Table) -> Iterator[tuple[str, list[Any]]]:
    for index, column in enumerate(table.columns):
        cells = [row.cells[index] for row in table.rows]
        yield column.name, [cell.value for cell in cells]
        for part in ("low", "high", "paper", "best", "note"):
            values = [("yes" if cell.best else "") if part == "best" else getattr(cell, part) for cell in cells]
            if any(value not in (None, "") for value in values):
                yield f"{column.name} {part}", values


def to_latex(table: Table) -> str:
    """For booktabs: the paper's numbers in a column of their own, notes in the caption."""
    twice = [table.has_paper(index) for index in range(len(table.columns))]
    layout = "l" * len(table.heads) + "".join("rr" if both else "r" for both in twice)
    pairs = list(zip(table.columns, twice, strict=True))
    heads = [latex(head) for head in table.heads]
    if any(twice):
        above = [rf"\multicolumn{{{1 + both}}}{{c}}{{{latex(column.name)}}}" for column, both in pairs]
        below = [word for _, both in pairs for word in (("ours", "paper") if both else ("ours",))]
        lines = [" & ".join([*[""] * len(heads), *above]) + r" \\", " & ".join([*heads, *below]) + r" \\"]
    else:
        lines = [" & ".join([*heads, *(latex(column.name) for column in table.columns)]) + r" \\"]
    caption = " ".join([latex(f"{table.title}."), *([rf"\textbf{{{latex(table.mark)}.}}"] if table.mark else [])])
    return "\n".join(
        [
            r"\begin{table}[t]", r"\centering", r"\small",
            rf"\caption{{{' '.join([caption, *map(latex, table.notes)])}}}", rf"\label{{tab:softdlm-{table.name}}}",
            rf"\begin{{tabular}}{{{layout}}}", r"\toprule", *lines, r"\midrule",
            *_latex_rows(table, twice), r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
        ]
    )  # fmt: skip


def _latex_rows(table: Table, twice: list[bool]) -> Iterator[str]:
    for row, new in _grouped(table):
        if new and row is not table.rows[0]:
            yield r"\midrule"
        words = [latex(label) for label in row.labels]
        for column, cell, both in zip(table.columns, row.cells, twice, strict=True):
            words.append(_latex_cell(column, cell))
            words += [latex(number(cell.paper, column.paper_digits))] if both else []
        yield " & ".join(words) + r" \\"


def _latex_cell(column: Column, cell: Cell) -> str:
    value = latex(number(cell.value, column.digits))
    small = " ".join(part for part in (interval(cell, column.digits), cell.note) if part)
    value = rf"\textbf{{{value}}}" if cell.best else value
    return rf"{value} {{\scriptsize {latex(small)}}}" if small else value


def latex(text: str) -> str:
    """Text as LaTeX reads it; brackets in braces, since one after a line's end would be an argument."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def to_html(table: Table) -> str:
    """The paper's number stands under ours, small; a long table is folded, and a wide one scrolls within itself."""
    mark = f' <span class="mark">{escape(table.mark)}</span>' if table.mark else ""
    *first, last = table.heads
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in first)
    heads += f'<th scope="col" class="key">{escape(last)}</th>'
    heads += "".join(f'<th scope="col" class="n">{escape(column.name)}</th>' for column in table.columns)
    body = "".join(_html_rows(table))
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    grid = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    size = "" if len(table.rows) > LONG else " short"
    grid = f'<div class="scroll{size}" role="region" tabindex="0" aria-label="{escape(table.title)}">{grid}</div>'
    grid = grid if size else f"<details><summary>All {len(table.rows)} rows</summary>{grid}</details>"
    return f"<h3>{escape(table.title)}{mark}</h3>{grid if table.rows else ''}{notes}"


def _html_rows(table: Table) -> Iterator[str]:
    """A first label that repeats stands once, over all its rows, and a rule stands where it changes."""
    grouped = list(_grouped(table))
    starts = [place for place, (_, new) in enumerate(grouped) if new]
    spans = {start: end - start for start, end in pairwise([*starts, len(grouped)])}
    for place, (row, new) in enumerate(grouped):
        *first, last = row.labels
        first = first if new else first[1:]
        span = f' rowspan="{spans[place]}"' if new else ""
        labels = [f'<th scope="row"{span * (not index)}>{escape(word)}</th>' for index, word in enumerate(first)]
        labels.append(f'<th scope="row" class="key">{escape(last)}</th>')
        cells = [
            _html_cell(column, cell, table.paper_of) for column, cell in zip(table.columns, row.cells, strict=True)
        ]
        yield f"<tr{' class=group' if new else ''}>{''.join([*labels, *cells])}</tr>"


def _html_cell(column: Column, cell: Cell, paper_of: str) -> str:
    value = escape(number(cell.value, column.digits))
    paper = "" if cell.paper is None else f"<i>{escape(paper_of)} {number(cell.paper, column.paper_digits)}</i>"
    words = [f"<b>{value}</b>" if cell.best else value]
    words += [f"<small>{escape(interval(cell, column.digits))}</small>"] if cell.low is not None else []
    words += [f'<small class="below">{each}</small>' for each in (escape(cell.note), paper) if each]
    return f'<td class="n">{" ".join(words)}</td>'
