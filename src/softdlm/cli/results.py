"""`softdlm results`: the table of results on disk; `softdlm eval` ends with the same table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from softdlm.cli.options import Json

Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]
Folder = Annotated[Path, typer.Argument(help="Folder of results, or of a single cell.")]


def results(folder: Folder = Path("results"), markdown: Markdown = False, as_json: Json = False) -> None:
    """Print the table of results on disk, finished or not. Decodes nothing."""
    from softdlm.evaluate.summary import find_cells

    show(find_cells(folder), as_json=as_json, as_markdown=markdown, cells=True)


def show(
    folders: Sequence[Path], *, as_json: bool, as_markdown: bool, failed: Sequence[str] = (), cells: bool = False
) -> None:
    """The cells' table on standard output; `cells` adds the names of their folders."""
    from softdlm.evaluate.summary import Result, rows, tables, words
    from softdlm.records.journal import MANIFEST
    from softdlm.report.row_tables import markdown, print_rows

    found = rows([Result.read(folder) for folder in folders if (folder / MANIFEST).exists()])
    if as_json:
        print(json.dumps({"rows": found, "failed": list(failed)}, ensure_ascii=False, indent=1))
    elif as_markdown and found:
        print(markdown([words(row) for row in found]), end="")
        for note in dict.fromkeys(note for each in tables(found) for note in each.notes):
            print(f"\n{note}")
    else:
        for each in tables(found, cells=cells):
            print_rows(each.rows, each.title, labels=2, notes=each.notes)
