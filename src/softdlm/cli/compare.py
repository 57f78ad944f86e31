"""`softdlm compare`: one prompt, several feedback rules, where the answers differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import typer

from softdlm.cli.answer import record, timed
from softdlm.cli.option_tables import COMMAS, DECODING, LOADING, Table, takes
from softdlm.cli.options import Ids, Json, Model, Prompt, Raw, load_model, names_in, print_json, prompt_ids, read_prompt

FEEDBACK_HELP = f"Feedback rules, {COMMAS}; the others are compared with the first."
OPTIONS: Table = {**DECODING, "feedback": (str, typer.Option("--feedback", "--methods", help=FEEDBACK_HELP))}


@takes(words=OPTIONS, loading=LOADING)
def compare(
    words: dict[str, Any], loading: dict[str, Any], prompt: Prompt = None, model: Model = "builtin", ids: Ids = False,
    raw: Raw = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Answer one prompt with several feedback rules, and show where the answers differ."""
    from softdlm.decoding import Decoding

    text, names = read_prompt(prompt), names_in("--feedback", words.pop("feedback", "vanilla,euclidean,slerp"))
    strength = {name: words.pop(name, None) for name in ("k", "lam")}  # a rule without a strength ignores it
    wanted = {name: replace(Decoding.of(**words), feedback=name) for name in names}
    for each in wanted.values():
        each.settled(strength)  # what it refuses is refused before the weights are read
    asked = prompt_ids(text) if ids else text
    from rich.console import Console

    from softdlm.report.canvas import LiveCanvas

    answers, seconds = {}, {}
    with LiveCanvas(Console(stderr=True), f"loading {model} ...", transient=True) as screen:
        denoiser = load_model(model, loading)
        chosen = {name: each.settled(strength, denoiser.own) for name, each in wanted.items()}
        for name, each in chosen.items():
            paused, watch = screen.paused, screen.watch(denoiser, name) if screen.animated else None
            answers[name], spent = timed(denoiser, asked, each, chat=not raw, on_step=watch)
            seconds[name] = spent - (screen.paused - paused)
    from softdlm.report.terminal import differences, print_comparison

    if not as_json:
        print_comparison(denoiser, answers, seconds)
        return
    rows = [
        {"method": name, **record(answer, chosen[name]), "seconds": round(seconds[name], 4)}
        | {"differs_at": differences(answers[names[0]], answer)}
        for name, answer in answers.items()
    ]
    print_json({"model": model, "prompt": text, "methods": rows})
