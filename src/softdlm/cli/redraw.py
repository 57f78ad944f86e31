"""`softdlm redraw`: a reproduction's tables, figures and page, from its data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def redraw(
    data: Annotated[Path, typer.Argument(help="The file data/report.json of a reproduction.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write to. Default: the reproduction's own.")] = None,
) -> None:
    """Write a reproduction's tables, figures and page again from its data. Measures nothing."""
    from softdlm.report.document import Report
    from softdlm.report.figures import check_format
    from softdlm.report.page import write

    report = Report.read(data)
    folder = out or data.absolute().parent.parent
    check_format(folder / "figure.svg")
    print(f"Report: {write(report, folder, data.name.removesuffix('.gz').removesuffix('.json'))}")
