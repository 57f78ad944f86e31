"""`softdlm generate`: answer a prompt, or every prompt of a file."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softdlm.cli.answer import record, timed
from softdlm.cli.options import (
    Attention,
    BlockLength,
    Cache,
    Device,
    Dtype,
    Eos,
    EosIds,
    FactorF,
    Gamma,
    Ids,
    Json,
    MaskId,
    Model,
    NewTokens,
    OwnK,
    OwnLam,
    PerStep,
    Prompt,
    Rank,
    Raw,
    Refresh,
    Renew,
    Revision,
    Seed,
    Tau,
    TopK,
    TopP,
    load_model,
    print_json,
    read_prompt,
    read_prompts,
    token_ids,
)
from softdlm.errors import UsageError

if TYPE_CHECKING:
    from softdlm.generation import GenerateOptions

PROMPTS_HELP = "Answer every prompt of this file: one a line in a .txt file, else JSON Lines with a field prompt."
Prompts = Annotated[Path | None, typer.Option(help=PROMPTS_HELP)]
Method = Annotated[str, typer.Option(help="Feedback rule: vanilla, euclidean, slerp, ...")]
Temperature = Annotated[float, typer.Option(help="Sampling temperature; 0 takes the likeliest token.")]
Stop = Annotated[list[str] | None, typer.Option(help="End the text at this string; may be repeated.")]
Watching = Annotated[bool, typer.Option("--watch", help="Show the canvas on standard error while it is decoded.")]
Pause = Annotated[float, typer.Option(help="With --watch: seconds to wait after each pass.")]
TraceFile = Annotated[Path | None, typer.Option(help="Save what happened in each pass, with candidates, to this file.")]


def generate(
    prompt: Prompt = None, prompts: Prompts = None, model: Model = "builtin", method: Method = "slerp", k: OwnK = None,
    lam: OwnLam = None, tokens_per_step: PerStep = None, threshold: Tau = None, entropy_bound: Gamma = None,
    factor: FactorF = None, rank: Rank = None, max_new_tokens: NewTokens = 128, block_length: BlockLength = None,
    cache: Cache = None, refresh: Refresh = None, renew: Renew = 1, eos: Eos = "allow",
    temperature: Temperature = 0.0, top_p: TopP = None, top_k: TopK = None, seed: Seed = 0, stop: Stop = None,
    ids: Ids = False, raw: Raw = False, revision: Revision = None, device: Device = None, dtype: Dtype = None,
    attention: Attention = "auto", mask_id: MaskId = None, eos_ids: EosIds = None, watch: Watching = False,
    pause: Pause = 0.1, trace: TraceFile = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Answer a prompt, or every prompt of a file."""
    check(prompt, prompts, watch, pause, trace)
    texts = [read_prompt(prompt)] if prompts is None else read_prompts(prompts)
    asked = [token_ids(text) if ids else text for text in texts]
    with start_watching(watch, f"{model} · {method}", pause) as screen:
        from softdlm.methods import commit_rule, feedback_rule

        feedback_rule(method, k, lam)  # what it refuses is refused before the weights are read
        options: GenerateOptions = {
            "commit": commit_rule(tokens_per_step, threshold, entropy_bound, factor, rank),  # type: ignore[arg-type]
            "max_new_tokens": max_new_tokens,
            "block_length": block_length,
            "cache": cache,  # type: ignore[typeddict-item]
            "refresh": refresh,
            "renew": renew,
            "eos": eos,  # type: ignore[typeddict-item]
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "seed": seed,
            "stop": stop or (),
            "chat": not raw,
            "record_candidates": trace is not None,
        }
        denoiser = load_model(model, revision, device, dtype, attention, mask_id, eos_ids)
        options["feedback"] = feedback_rule(method, k, lam, denoiser.strength)
        watched: GenerateOptions = {"on_step": screen.watch(denoiser)} if screen else {}
        answers, seconds = timed(denoiser, asked, {**options, **watched})
    seconds -= screen.paused if screen else 0.0
    if trace is not None:
        answers[0].trace.save(trace)
    if as_json:
        print_records(answers, texts if prompts else None, model, options, seconds)
        return
    from softdlm.report.terminal import summary

    for answer in answers:
        print(answer.text if denoiser.tokenizer else " ".join(map(str, answer.ids)))
    print(summary(answers, seconds), file=sys.stderr)


def check(prompt: str | None, prompts: Path | None, watch: bool, pause: float, trace: Path | None) -> None:
    """Refuse what cannot work before anything is loaded."""
    if not (math.isfinite(pause) and pause >= 0):
        raise UsageError(f"--pause must be a finite number of seconds, 0 or more, not {pause}")
    given = {"a prompt": prompt is not None, "--watch": watch, "--trace": trace is not None}
    if prompts is not None and any(given.values()):
        name = next(name for name, there in given.items() if there)
        raise UsageError(f"--prompts {prompts} answers a whole file: leave out {name}")
    if trace is not None and not trace.parent.is_dir():
        raise UsageError(f"--trace {trace}: the folder {trace.parent} does not exist")


def start_watching(wanted: bool, title: str, pause: float) -> AbstractContextManager[Any]:
    if not wanted:
        return nullcontext()
    from rich.console import Console

    from softdlm.report.terminal import Watch

    return Watch(Console(stderr=True), title, pause)


def print_records(
    answers: Sequence[Any], prompts: Sequence[str] | None, model: str, options: GenerateOptions, seconds: float
) -> None:
    """One object for one prompt; a line for each prompt of a file."""
    if prompts is None:
        print_json({"model": model, **record(answers[0], options), "seconds": round(seconds, 4)})
        return
    for prompt, answer in zip(prompts, answers, strict=True):
        print(json.dumps({"model": model, "prompt": prompt, **record(answer, options)}, ensure_ascii=False))
