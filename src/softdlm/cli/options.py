"""Options that several verbs of the command line share, and the values that they name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from softdlm.errors import UsageError

COMMAS = "separated by commas"
Prompt = Annotated[str | None, typer.Argument(help="The prompt; without it, or with '-', it is read from stdin.")]
Ids = Annotated[bool, typer.Option("--ids", help="Prompts are token ids, separated by spaces or commas.")]
Raw = Annotated[bool, typer.Option("--raw", help="Give the model the raw text, without a chat template.")]
Model = Annotated[str, typer.Option("--model", "-m", help="builtin, a folder, or a Hugging Face id.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the Hugging Face hub.")]
Device = Annotated[str | None, typer.Option(help="cuda, cuda:1, cpu, ... Default: the first GPU, else the CPU.")]
DTYPE_HELP = (
    "bfloat16, float32, ... Default: bfloat16 on a GPU, float32 on a CPU. native: bfloat16 on CPUs that have it."
)
Dtype = Annotated[str | None, typer.Option(help=DTYPE_HELP)]
Attention = Annotated[str, typer.Option(help="LLaDA-2 only: auto, full or block-causal.")]
MaskId = Annotated[int | None, typer.Option(help="Id of the mask token, instead of the checkpoint's.")]
EOS_IDS_HELP = f"Ids that end an answer, EOS first, {COMMAS}, instead of the checkpoint's."
EosIds = Annotated[str | None, typer.Option(help=EOS_IDS_HELP)]
K = Annotated[int, typer.Option("--k", help="Candidates in a soft token.")]
Lam = Annotated[float, typer.Option("--lam", help="Strength of the feedback, from 0 (none) to 1.")]
OwnK = Annotated[int | None, typer.Option("--k", help="Candidates in a soft token. Default: the model's own.")]
OwnLam = Annotated[
    float | None, typer.Option("--lam", help="Strength of the feedback, from 0 to 1. Default: the model's own.")
]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", "-n", help="Length of the answer's canvas, in tokens.")]
PerStep = Annotated[
    int | None, typer.Option("--tokens-per-step", "-t", help="Commit this many tokens in each forward pass.")
]
Tau = Annotated[float | None, typer.Option("--threshold", help="Commit every token of at least this confidence.")]
Gamma = Annotated[
    float | None, typer.Option("--entropy-bound", help="Commit the surest tokens up to this entropy bound, in nats.")
]
FactorF = Annotated[float | None, typer.Option("--factor", help="Commit by Fast-dLLM's factor rule, with this factor.")]
BlockLength = Annotated[int | None, typer.Option(help="Decode in blocks of this many tokens. Default: one block.")]
Cache = Annotated[str | None, typer.Option(help="Reuse keys and values outside the block: prefix or dual.")]
Refresh = Annotated[int | None, typer.Option(help="With --cache: recompute everything every N passes of a block.")]
Renew = Annotated[int, typer.Option(help="With --cache: recompute everything at the start of every N-th block only.")]
Eos = Annotated[str, typer.Option(help="EOS tokens: allow, last (committed after all others) or forbid.")]
Rank = Annotated[
    str | None, typer.Option(help="Commit first by confidence, margin or entropy. Default: the commit rule's own.")
]
TOP_P_HELP = "Nucleus sampling; needs a temperature above 0."
TopP = Annotated[float | None, typer.Option(help=TOP_P_HELP)]
TopK = Annotated[int | None, typer.Option(help="Sample from the K likeliest tokens; needs a temperature above 0.")]
Seed = Annotated[int, typer.Option(help="Random seed for sampling.")]
DataDir = Annotated[str | None, typer.Option(help="Folder with the benchmarks' files.")]
Unsandboxed = Annotated[
    bool, typer.Option("--allow-unsandboxed", help="Where there is no sandbox, run generated code without one.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def load_model(
    model: str,
    revision: str | None,
    device: str | None,
    dtype: str | None,
    attention: Any,
    mask_id: int | None,
    eos_ids: str | None,
) -> Any:
    from softdlm.models.load import load

    ends = None if eos_ids is None else token_ids(eos_ids, "--eos-ids")
    return load(
        model, revision=revision, device=device, dtype=dtype, attention=attention, mask_id=mask_id, eos_ids=ends
    )


def token_ids(text: str, option: str = "--ids") -> list[int]:
    try:
        return [int(token) for token in text.replace(",", " ").split()]
    except ValueError as error:
        raise UsageError(f"{option} needs whole numbers, not {text!r}") from error


def names_in(option: str, text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise UsageError(f"{option} names nothing: {text!r}")
    return found


def read_prompt(prompt: str | None) -> str:
    """The argument, or all of standard input."""
    if prompt not in (None, "-"):
        return prompt
    if sys.stdin.isatty():
        raise UsageError("no prompt: give one as an argument or on standard input")
    return sys.stdin.read().rstrip("\n")


def read_prompts(file: Path) -> list[str]:
    """One prompt a line in a .txt file, else one JSON object a line with a field `prompt`; blank lines are skipped."""
    from softdlm.analysis.prompts import read_lines, text_field

    if file.suffix != ".txt":
        return [text_field(place, line, "prompt") for place, line in read_lines(file)]
    try:
        found = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--prompts {file} cannot be read: {error}") from error
    if not found:
        raise UsageError(f"--prompts {file} holds no lines: give one prompt a line")
    return found


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))
