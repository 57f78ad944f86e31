"""`softdlm bench`: speed on this device, beside the targets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from softdlm.cli.option_tables import COMMAS, PLACE, takes
from softdlm.cli.options import names_in

SHAPE_HELP = f"llada-8b, dream-7b, llada2-mini, builtin or tiny-llada ..., {COMMAS}. "
SHAPE_HELP += "Default: the first three on a GPU, builtin on a CPU."


@takes(place=PLACE)
def bench(
    place: dict[str, str],
    shape: Annotated[str | None, typer.Option(help=SHAPE_HELP)] = None,
    only: Annotated[str | None, typer.Option(help=f"Suites to measure: whole, caches, growth, ..., {COMMAS}.")] = None,
    seconds: Annotated[float, typer.Option(help="Time budget in seconds; no suite begins after it.")] = 1400.0,
    out: Annotated[Path, typer.Option(help="Folder for the dated JSON, Markdown and figure.")] = Path("results/bench"),
    engine: Annotated[str, typer.Option(help="How passes are run: auto, dynamic, static or compiled.")] = "auto",
) -> None:
    """Measure speed on this device, beside the plain loop and the device's own ceilings."""
    from softdlm.bench.run import bench as run
    from softdlm.bench.shapes import GPU_SHAPES, find_shape
    from softdlm.models.load import find_device, find_precision
    from softdlm.report.progress import Screen
    from softdlm.report.row_tables import print_rows

    device, screen = find_device(place.get("device")), Screen()
    names = names_in("--shape", shape) if shape else GPU_SHAPES if device.type == "cuda" else ("builtin",)
    report = run(
        [find_shape(name) for name in names],
        device,
        find_precision(place.get("dtype"), device),
        out,
        only=names_in("--only", only) if only else (),
        engine=engine,
        seconds=seconds,
        say=screen.show,
    )
    if screen.terminal:
        screen.show("")
    if verdicts := report.verdicts():
        title = "{device}, {dtype}, load before {load before}".format(**report.conditions)
        print_rows(list(map(in_lines, verdicts)), title, labels=2)
    unfinished = [each for each in report.outcomes if each.status != "measured"]
    for each in unfinished:
        print(f"{each.shape}, {each.part}: {each.status}: {(each.error or '').splitlines()[0]}")
    print(f"Report: {report.markdown_file}")
    if any(each.status == "failed" for each in unfinished):
        raise typer.Exit(1)


def in_lines(verdict: Mapping[str, str]) -> dict[str, str]:
    """What was measured; below it, where there is a target, the target and whether it was met."""
    lines = [verdict["measured"]]
    if verdict["target"] != "—":
        lines += [verdict["target"], verdict["verdict"]]
    return {"shape": verdict["shape"], "what": verdict["what"], "measured": "\n".join(lines)}
