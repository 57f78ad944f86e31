"""`softdlm bench`: parses, calls the library, prints what was asked and measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softdlm.cli.options import Device, Dtype


def bench(
    shape: Annotated[
        str | None,
        typer.Option(
            help="llada-8b, dream-7b, llada2-mini, builtin or tiny-llada ..., commas between. "
            "By default the first three on a GPU, builtin on a CPU."
        ),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Parts, commas between: whole, caches, growth, ...")] = None,
    seconds: Annotated[float, typer.Option(help="No part begins after so many.")] = 900.0,
    out: Annotated[Path, typer.Option(help="Folder for the dated JSON, Markdown and figure.")] = Path("results/bench"),
    engine: Annotated[str, typer.Option(help="How passes are run, as in generate.")] = "auto",
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Measure speed on this device, beside the plain loop and the device's own ceilings."""
    from softdlm.bench.run import bench as run
    from softdlm.bench.shapes import GPU_SHAPES, find_shape
    from softdlm.models.load import find_device, find_dtype
    from softdlm.report.progress import Screen
    from softdlm.report.row_tables import print_titled

    place, screen = find_device(device), Screen()
    names = shape.split(",") if shape else GPU_SHAPES if place.type == "cuda" else ("builtin",)
    report = run(
        [find_shape(name.strip()) for name in names],
        place,
        find_dtype(dtype, place),
        out,
        only=[part.strip() for part in (only or "").split(",") if part.strip()],
        engine=engine,
        seconds=seconds,
        say=screen.show,
    )
    if screen.terminal:
        screen.show("")
    if verdicts := report.verdicts():
        title = "{device}, {dtype}, load before {load before}".format(**report.conditions)
        print_titled(title, verdicts)
    unfinished = [each for each in report.outcomes if each.status != "measured"]
    for each in unfinished:
        print(f"{each.shape}, {each.part}: {each.status}: {(each.error or '').splitlines()[0]}")
    print(f"all of it: {report.markdown_file}")
    if any(each.status == "failed" for each in unfinished):
        raise typer.Exit(1)
