"""`softdlm view`: traces as one page to look at, that needs no server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softdlm.errors import UsageError

MOST = 6
"""Traces on one page: more have no room side by side."""


def view(
    traces: Annotated[list[Path], typer.Argument(help="Files that softdlm generate --trace wrote.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write. Default: beside the first trace.")
    ] = None,
) -> None:
    """Write traces as one HTML page that plays them side by side. It fetches nothing and can be sent to others."""
    from softdlm.records.files import ready_file, write_text
    from softdlm.report.player.page import data_of, read_methods, saved_page

    if len(traces) > MOST:
        raise UsageError(f"{len(traces)} traces have no room on one page: give at most {MOST}")
    if out is not None and out.absolute() in [each.absolute() for each in traces]:
        raise UsageError(f"--out {out} is one of the traces: choose another name")
    methods = read_methods(traces)
    file = traces[0].with_suffix(".html") if out is None else out
    if out is None and file in traces:
        raise UsageError(f"{file} is a trace, where the page would be written: name another place with --out")
    ready_file(file)
    write_text(file, saved_page(data_of(methods, title=methods[0].trace.prompt[:60])))
    print(f"Page: {file}")
