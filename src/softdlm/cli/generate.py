"""`softdlm generate`: answer a prompt, or every prompt of a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softdlm.cli.answer import check_pause, record, timed
from softdlm.cli.option_tables import DECODING, LOADING, takes
from softdlm.cli.options import (
    Ids,
    Json,
    Model,
    Prompt,
    Raw,
    load_model,
    print_json,
    prompt_ids,
    read_prompt,
    read_prompts,
)
from softdlm.errors import UsageError
from softdlm.records.files import ready_file

if TYPE_CHECKING:
    from softdlm.decoding import Decoding

PROMPTS_HELP = "Answer every prompt of this file: one a line in a .txt file, else JSON Lines with a field prompt."
Prompts = Annotated[Path | None, typer.Option(help=PROMPTS_HELP)]
Stop = Annotated[list[str] | None, typer.Option(help="End the text at this string; may be repeated.")]
Watching = Annotated[bool, typer.Option("--watch", help="Show the canvas on standard error while it is decoded.")]
Pause = Annotated[float, typer.Option(help="With --watch: show each pass for at least so many seconds.")]
TraceFile = Annotated[Path | None, typer.Option(help="Save what happened in each pass, with candidates, to this file.")]


@takes(words=DECODING, loading=LOADING)
def generate(
    words: dict[str, Any], loading: dict[str, Any], prompt: Prompt = None, prompts: Prompts = None,
    model: Model = "builtin", stop: Stop = None, ids: Ids = False, raw: Raw = False, watch: Watching = False,
    pause: Pause = 0.1, trace: TraceFile = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Answer a prompt, or every prompt of a file. What is left out is filled from the model's own settings."""
    check_pause(pause)
    check(prompt, prompts, watch, trace)
    texts = [read_prompt(prompt)] if prompts is None else read_prompts(prompts)
    asked = [prompt_ids(text) if ids else text for text in texts]
    with start_watching(watch, model, pause) as screen:
        from softdlm.decoding import Decoding

        wanted = Decoding.of(**words, stop=stop or ())  # what it refuses is refused before the weights are read
        denoiser = load_model(model, loading)
        decoding = wanted.settled(denoiser.own)
        options = {"on_step": screen.watch(denoiser, model)} if screen else {}
        answers, seconds = timed(
            denoiser, asked, decoding, chat=not raw, record_candidates=trace is not None, **options
        )
    seconds -= screen.paused if screen else 0.0
    if trace is not None:
        answers[0].trace.save(trace)
    if as_json:
        print_records(answers, texts if prompts else None, model, decoding, seconds)
        return
    from softdlm.report.terminal import say, summary

    for answer in answers:
        print(answer.text if denoiser.tokenizer else " ".join(map(str, answer.ids)))
    say(summary(answers, seconds))


def check(prompt: str | None, prompts: Path | None, watch: bool, trace: Path | None) -> None:
    """Refuse what cannot work before anything is loaded."""
    given = {"a prompt": prompt is not None, "--watch": watch, "--trace": trace is not None}
    if prompts is not None and any(given.values()):
        name = next(name for name, there in given.items() if there)
        raise UsageError(f"--prompts {prompts} answers a whole file: leave out {name}")
    if trace is not None and not trace.parent.is_dir():
        raise UsageError(f"--trace {trace}: the folder {trace.parent} does not exist")
    if trace is not None:
        ready_file(trace)


def start_watching(wanted: bool, title: str, pause: float) -> AbstractContextManager[Any]:
    if not wanted:
        return nullcontext()
    from rich.console import Console

    from softdlm.report.canvas import LiveCanvas

    return LiveCanvas(Console(stderr=True), f"loading {title} ...", pause)


def print_records(
    answers: Sequence[Any], prompts: Sequence[str] | None, model: str, decoding: Decoding, seconds: float
) -> None:
    """One object for one prompt; a line for each prompt of a file."""
    if prompts is None:
        print_json({"model": model, **record(answers[0], decoding), "seconds": round(seconds, 4)})
        return
    for prompt, answer in zip(prompts, answers, strict=True):
        print(json.dumps({"model": model, "prompt": prompt, **record(answer, decoding)}, ensure_ascii=False))
