"""`softdlm train`: a masked diffusion language model on the built-in tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from softdlm.cli.option_tables import LOADING, takes
from softdlm.cli.options import print_json


@takes(place={"device": LOADING["device"]})
def train(
    place: dict[str, str],
    out: Annotated[Path, typer.Option(help="New or empty folder for the checkpoint, its card and the metrics.")],
    recipe: Annotated[str, typer.Option(help="builtin (a GPU, 5 minutes) or toy (a CPU, 1 to 3 minutes).")] = "builtin",
    seed: Annotated[int | None, typer.Option(help="Random seed for weights, data and masks.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of training steps.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for about this long instead of --steps.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe: key=JSON; may be repeated.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the state saved in the folder.")] = False,
    workers: Annotated[
        int | None, typer.Option(help="Processes that make rows. Default: all cores but one with a GPU, 0 on a CPU.")
    ] = None,
    no_compile: Annotated[bool, typer.Option("--no-compile", help="Do not compile the model on a GPU.")] = False,
    validation_items: Annotated[int, typer.Option(help="Held-out items per task to decode at the end.")] = 64,
    save_seconds: Annotated[float, typer.Option(help="Seconds between saved states.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
) -> None:
    """Train a masked diffusion language model on the built-in tasks."""
    from softdlm.models.load import find_device
    from softdlm.report.progress import Screen
    from softdlm.report.words import count
    from softdlm.train.batches import default_workers
    from softdlm.train.loop import Run
    from softdlm.train.loop import train as run_training
    from softdlm.train.recipe import find_recipe

    named = [f"{key}={value}" for key, value in (("seed", seed), ("steps", steps)) if value is not None]
    chosen = find_recipe(recipe, [*named, *(settings or ())])
    device = find_device(place.get("device"))
    run = Run(
        out=out,
        device=device,
        workers=default_workers(device) if workers is None else workers,
        compile=not no_compile,
        minutes=minutes,
        resume=resume,
        save_seconds=save_seconds,
        validation_items=validation_items,
    )
    screen = Screen()
    card = run_training(
        chosen, run, screen.say, lambda now: screen.show(progress(now), last=now["step"] == now["steps"])
    )
    if as_json:
        print_json(card)
        return
    screen.say(f"loss {card['final_loss']:.4f} after {count(card['steps'], 'step')}, {card['minutes']} minutes")
    print(out)


def progress(metrics: dict[str, Any]) -> str:
    line = "step {step}/{steps}  loss {loss:.4f}  {items_per_second:,.0f} rows/s  {seconds_left:.0f} s left"
    return line.format(**metrics)
