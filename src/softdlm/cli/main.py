"""The command line: each verb parses, calls the library, and prints."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softdlm.cli.analyze import app as analyze
from softdlm.cli.bench import bench
from softdlm.cli.evaluate import evaluate, results
from softdlm.cli.options import (
    Attention,
    Cache,
    Device,
    Dtype,
    Eos,
    EosIds,
    Json,
    MaskId,
    Model,
    OwnK,
    OwnLam,
    Refresh,
    Renew,
    Revision,
    load_model,
    token_ids,
)
from softdlm.cli.reproduce import redraw, reproduce
from softdlm.cli.train import train
from softdlm.errors import SoftDLMError, UsageError

if TYPE_CHECKING:
    from softdlm.generation import GenerateOptions

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Parallel decoding of frozen masked diffusion language models with soft-token feedback.",
)

Prompt = Annotated[str | None, typer.Argument(help="The prompt; left out or '-', it is read from standard input.")]
Ids = Annotated[bool, typer.Option("--ids", help="The prompt is token ids, spaces or commas between.")]
Raw = Annotated[bool, typer.Option("--raw", help="Raw text: no chat template.")]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", "-n", help="Length of the answer's canvas.")]
PerStep = Annotated[int | None, typer.Option("--tokens-per-step", "-t", help="Tokens committed per pass.")]
Tau = Annotated[float | None, typer.Option("--threshold", help="Commit all at or above this confidence.")]
Gamma = Annotated[float | None, typer.Option("--entropy-bound", help="Commit within this entropy bound, nats.")]
FactorF = Annotated[float | None, typer.Option("--factor", help="Fast-dLLM's factor rule.")]
BlockLength = Annotated[int | None, typer.Option(help="Decode in blocks; one block by default.")]
Temperature = Annotated[float, typer.Option(help="0 is greedy.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus, with a temperature.")]
Seed = Annotated[int, typer.Option(help="Of the draws.")]
Stop = Annotated[list[str] | None, typer.Option(help="End the text at this string; may be repeated.")]


@app.command()
def generate(
    prompt: Prompt = None,
    model: Model = "builtin",
    method: Annotated[str, typer.Option(help="vanilla, euclidean, slerp, ...")] = "slerp",
    k: OwnK = None,
    lam: OwnLam = None,
    tokens_per_step: PerStep = None,
    threshold: Tau = None,
    entropy_bound: Gamma = None,
    factor: FactorF = None,
    max_new_tokens: NewTokens = 128,
    block_length: BlockLength = None,
    cache: Cache = None,
    refresh: Refresh = None,
    renew: Renew = 1,
    eos: Eos = "allow",
    temperature: Temperature = 0.0,
    top_p: TopP = None,
    seed: Seed = 0,
    stop: Stop = None,
    ids: Ids = False,
    raw: Raw = False,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = None,
    attention: Attention = "auto",
    mask_id: MaskId = None,
    eos_ids: EosIds = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show the canvas while it is decoded.")] = False,
    pause: Annotated[float, typer.Option(help="Seconds between passes while watching.")] = 0.1,
    trace: Annotated[Path | None, typer.Option(help="Save the trace, with candidates, to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Answer one prompt."""
    from softdlm.methods import commit_rule, feedback_rule

    text = _prompt(prompt)
    if trace is not None and not trace.parent.is_dir():
        raise UsageError(f"--trace {trace}: the folder {trace.parent} does not exist")
    feedback_rule(method, k, lam)  # what it refuses is refused before the weights are read
    options: GenerateOptions = {
        "commit": commit_rule(tokens_per_step, threshold, entropy_bound, factor),
        "max_new_tokens": max_new_tokens,
        "block_length": block_length,
        "cache": cache,  # type: ignore[typeddict-item]
        "refresh": refresh,
        "renew": renew,
        "eos": eos,  # type: ignore[typeddict-item]
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
        "stop": stop or (),
        "chat": not raw,
        "record_candidates": trace is not None,
    }
    denoiser = load_model(model, revision, device, dtype, attention, mask_id, eos_ids)
    options["feedback"] = feedback_rule(method, k, lam, denoiser.strength)
    answer, seconds = _answer(denoiser, token_ids(text) if ids else text, options, f"{model} · {method}", watch, pause)
    if trace:
        answer.trace.save(trace)
    if as_json:
        _print_json({"model": model, **_record(answer, options, seconds)})
        return
    from softdlm.report.terminal import summary

    if not watch:
        print(answer.text if denoiser.tokenizer else " ".join(map(str, answer.ids)))
    print(summary(answer, seconds), file=sys.stderr)


@app.command()
def compare(
    prompt: Prompt = None,
    model: Model = "builtin",
    methods: Annotated[str, typer.Option(help="Names with commas between.")] = "vanilla,euclidean,slerp",
    k: OwnK = None,
    lam: OwnLam = None,
    tokens_per_step: PerStep = None,
    threshold: Tau = None,
    entropy_bound: Gamma = None,
    factor: FactorF = None,
    max_new_tokens: NewTokens = 128,
    block_length: BlockLength = None,
    cache: Cache = None,
    refresh: Refresh = None,
    renew: Renew = 1,
    eos: Eos = "allow",
    ids: Ids = False,
    raw: Raw = False,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = None,
    attention: Attention = "auto",
    mask_id: MaskId = None,
    eos_ids: EosIds = None,
    as_json: Json = False,
) -> None:
    """Answer one prompt with several methods, and show where they differ."""
    from softdlm.methods import commit_rule, feedback_rule

    text = _prompt(prompt)
    names = [name.strip() for name in methods.split(",")]
    for name in names:
        feedback_rule(name, k, lam)  # what it refuses is refused before the weights are read
    options: GenerateOptions = {
        "commit": commit_rule(tokens_per_step, threshold, entropy_bound, factor),
        "max_new_tokens": max_new_tokens,
        "block_length": block_length,
        "cache": cache,  # type: ignore[typeddict-item]
        "refresh": refresh,
        "renew": renew,
        "eos": eos,  # type: ignore[typeddict-item]
        "chat": not raw,
    }
    denoiser = load_model(model, revision, device, dtype, attention, mask_id, eos_ids)
    rules = {name: feedback_rule(name, k, lam, denoiser.strength) for name in names}
    asked = token_ids(text) if ids else text
    runs = {name: _answer(denoiser, asked, {**options, "feedback": rule}) for name, rule in rules.items()}
    from softdlm.report.terminal import comparison, differences

    (_, (first, _)), *_ = runs.items()
    if as_json:
        rows = [
            {"method": name, **_record(answer, {**options, "feedback": rules[name]}, seconds)}
            | {"differs_at": differences(first, answer)}
            for name, (answer, seconds) in runs.items()
        ]
        _print_json({"model": model, "prompt": text, "methods": rows})
        return
    from rich.console import Console

    console = Console()
    console.print(comparison(denoiser, {name: answer for name, (answer, _) in runs.items()}, console.width))


@app.command()
def models(as_json: Json = False) -> None:
    """List the models that are known by name."""
    from softdlm.cli.doctor import known_models
    from softdlm.report.row_tables import print_rows

    rows = known_models()
    _print_json(rows) if as_json else print_rows(rows)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Show versions, devices, memory, and what each model would need here."""
    from softdlm.cli.doctor import examine
    from softdlm.report.row_tables import print_rows

    report = examine()
    if as_json:
        _print_json(report)
        return
    print_rows([{"what": name, "found": str(value)} for name, value in report["machine"].items()])
    print_rows(report["models"])


app.command()(bench)
app.command()(train)
app.command("eval")(evaluate)
app.command()(results)
app.command()(reproduce)
app.command()(redraw)
app.add_typer(analyze, name="analyze")


def main() -> None:
    """Entry point: an error that the user can mend is one line and exit code 2."""
    try:
        app()
    except SoftDLMError as error:
        print(f"softdlm: {error}", file=sys.stderr)
        sys.exit(2)


def _prompt(prompt: str | None) -> str:
    if prompt not in (None, "-"):
        return prompt
    if sys.stdin.isatty():
        raise UsageError("no prompt: give one as an argument or on standard input")
    return sys.stdin.read().rstrip("\n")


def _answer(
    model: Any, prompt: Any, options: GenerateOptions, title: str = "", watch: bool = False, pause: float = 0.0
) -> tuple[Any, float]:
    from softdlm.generation import generate as run

    start = time.perf_counter()
    if not watch:
        return run(model, prompt, **options), time.perf_counter() - start
    from rich.console import Console

    from softdlm.report.terminal import Watch

    with Watch(model, Console(stderr=True), title, pause) as screen:
        watched: GenerateOptions = {**options, "on_step": screen.step}
        answer = run(model, prompt, **watched)
    return answer, time.perf_counter() - start


def _record(answer: Any, options: GenerateOptions, seconds: float) -> dict[str, Any]:
    return {
        "text": answer.text,
        "ids": answer.ids,
        "forwards": answer.forwards,
        "tokens_per_forward": round(answer.tokens_per_forward, 4),
        "finish_reason": answer.finish_reason,
        "seconds": round(seconds, 4),
        "options": {name: str(value) for name, value in options.items()},
    }


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


if __name__ == "__main__":
    main()
