"""`softdlm compare`: one prompt, several methods, where they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from softdlm.cli.answer import record, timed
from softdlm.cli.options import (
    COMMAS,
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
    Raw,
    Refresh,
    Renew,
    Revision,
    Tau,
    load_model,
    names_in,
    print_json,
    read_prompt,
    token_ids,
)

if TYPE_CHECKING:
    from softdlm.generation import GenerateOptions

Methods = Annotated[str, typer.Option(help=f"Feedback rules, {COMMAS}; the others are compared with the first.")]


def compare(
    prompt: Prompt = None, model: Model = "builtin", methods: Methods = "vanilla,euclidean,slerp", k: OwnK = None,
    lam: OwnLam = None, tokens_per_step: PerStep = None, threshold: Tau = None, entropy_bound: Gamma = None,
    factor: FactorF = None, max_new_tokens: NewTokens = 128, block_length: BlockLength = None, cache: Cache = None,
    refresh: Refresh = None, renew: Renew = 1, eos: Eos = "allow", ids: Ids = False, raw: Raw = False,
    revision: Revision = None, device: Device = None, dtype: Dtype = None, attention: Attention = "auto",
    mask_id: MaskId = None, eos_ids: EosIds = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Answer one prompt with several methods, and show where they differ."""
    from softdlm.methods import commit_rule, feedback_rule

    text, names = read_prompt(prompt), names_in("--methods", methods)
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
    chosen: dict[str, GenerateOptions] = {
        name: {**options, "feedback": feedback_rule(name, k, lam, denoiser.strength)} for name in names
    }
    asked = token_ids(text) if ids else text
    runs = {name: timed(denoiser, asked, each) for name, each in chosen.items()}
    from softdlm.report.terminal import differences, print_comparison

    answers = {name: answer for name, (answer, _) in runs.items()}
    if not as_json:
        print_comparison(denoiser, answers)
        return
    rows = [
        {"method": name, **record(answer, chosen[name]), "seconds": round(seconds, 4)}
        | {"differs_at": differences(answers[names[0]], answer)}
        for name, (answer, seconds) in runs.items()
    ]
    print_json({"model": model, "prompt": text, "methods": rows})
