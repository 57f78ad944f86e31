"""The command line: one file per verb, registered here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from softdlm.cli.analyze import app as analyze
from softdlm.cli.bench import bench
from softdlm.cli.compare import compare
from softdlm.cli.doctor import doctor
from softdlm.cli.evaluate import evaluate
from softdlm.cli.generate import generate
from softdlm.cli.models import models
from softdlm.cli.option_tables import WithRules
from softdlm.cli.redraw import redraw
from softdlm.cli.reproduce import reproduce
from softdlm.cli.results import results
from softdlm.cli.train import train
from softdlm.errors import SoftDLMError
from softdlm.version import __version__

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.command(cls=WithRules)(generate)
app.command(cls=WithRules)(compare)
app.command("eval", cls=WithRules)(evaluate)
app.command()(results)
app.add_typer(analyze, name="analyze")
app.command()(reproduce)
app.command()(redraw)
app.command()(bench)
app.command()(train)
app.command()(models)
app.command()(doctor)


def _version(wanted: bool) -> bool:
    if wanted:
        print(f"softdlm {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def softdlm(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Parallel decoding of frozen masked diffusion language models with soft-token feedback."""


def main() -> None:
    """Run the command line; an error that the user can mend is one line and exit code 2."""
    try:
        app()
    except SoftDLMError as error:
        print(f"softdlm: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
