"""The command line: one file per verb, registered here."""

from __future__ import annotations

import io
import os
import sys
import traceback
from itertools import takewhile
from typing import Annotated

import typer

from softdlm.cli.analyze import app as analyze
from softdlm.cli.bench import bench
from softdlm.cli.chat import chat
from softdlm.cli.compare import compare
from softdlm.cli.doctor import doctor
from softdlm.cli.evaluate import evaluate
from softdlm.cli.generate import generate
from softdlm.cli.models import models
from softdlm.cli.option_tables import WithRules
from softdlm.cli.redraw import redraw
from softdlm.cli.reproduce import reproduce
from softdlm.cli.results import results
from softdlm.cli.serve import serve
from softdlm.cli.train import train
from softdlm.cli.tune import tune
from softdlm.errors import SoftDLMError, one_line
from softdlm.version import __version__

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.command(cls=WithRules)(generate)
app.command(cls=WithRules)(compare)
app.command(cls=WithRules)(chat)
app.command("eval", cls=WithRules)(evaluate)
app.command()(results)
app.command(cls=WithRules)(tune)
app.add_typer(analyze, name="analyze")
app.command()(reproduce)
app.command()(redraw)
app.command()(serve)
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
    debug: Annotated[bool, typer.Option("--debug", help="Before the verb: show where an error came from.")] = False,
) -> None:
    """Parallel decoding of frozen masked diffusion language models with soft-token feedback."""


def main() -> None:
    """Run the command line. An error is one line: exit code 2 for what was asked, 1 for what could not be done."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an answer may hold what a terminal cannot show
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except Exception as error:
        sys.exit(_failed(error))


def _drop_output() -> None:
    """Where standard output refuses what is left for it, Python is not to try again at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(error: Exception) -> int:
    """Say in one line what went wrong, with --debug also where; the exit code."""
    if "--debug" in takewhile(lambda word: word.startswith("-"), sys.argv[1:]):
        traceback.print_exception(error)
    if isinstance(error, SoftDLMError):
        text, code = str(error), error.exit_code
    elif isinstance(error, OSError):
        _drop_output()
        text, code = f"{error}: make room or choose another place", 1
    else:
        hint = "this is a mistake in softdlm; softdlm --debug shows where"
        text, code = f"{type(error).__name__}: {error}: {hint}", 1
    print(f"softdlm: {one_line(text)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
