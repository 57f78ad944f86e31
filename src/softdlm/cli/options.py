"""Options that several verbs of the command line share, and the values that they name."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from softdlm.errors import UsageError
from softdlm.parsing import between_commas, token_ids


def option(about: str, *names: str) -> Any:
    """An option by its help, and by its names where they are not made of the parameter's."""
    return typer.Option(*names, help=about)


Prompt = Annotated[str | None, typer.Argument(help="The prompt; without it, or with '-', it is read from stdin.")]
Ids = Annotated[bool, typer.Option("--ids", help="Prompts are token ids, separated by spaces or commas.")]
Raw = Annotated[bool, typer.Option("--raw", help="Give the model the raw text, without a chat template.")]
Model = Annotated[str, typer.Option("--model", "-m", help="builtin, a folder, or a Hugging Face id.")]
DataDir = Annotated[str | None, typer.Option(help="Folder with the benchmarks' files.")]
Unsandboxed = Annotated[
    bool, typer.Option("--allow-unsandboxed", help="Where there is no sandbox, run generated code without one.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def load_model(model: str, loading: Mapping[str, Any]) -> Any:
    from softdlm.models.load import load

    return load(model, **loading_values(loading))


def loading_values(loading: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say how a model is loaded, as `softdlm.load` takes them."""
    given = dict(loading)
    if "eos_ids" in given:
        given["eos_ids"] = token_ids("--eos-ids", given["eos_ids"])
    if "settings" in given:
        from softdlm.evaluate.cell import read_own

        given["settings"] = read_own(given["settings"])
    return given


def prompt_ids(text: str) -> list[int]:
    return list(token_ids("--ids", text))


def names_in(option: str, text: str) -> tuple[str, ...]:
    """Words separated by commas; a comma inside brackets belongs to its word, as in `slerp(k=1, lam=0.5)`."""
    found = tuple(dict.fromkeys(word.strip() for word in between_commas(text) if word.strip()))
    if not found:
        raise UsageError(f"{option} names nothing: {text!r}")
    return found


def read_prompt(prompt: str | None) -> str:
    """The argument, or all of standard input."""
    if prompt not in (None, "-"):
        return prompt
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("no prompt: give one as an argument or on standard input")
    try:
        return sys.stdin.buffer.read().decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"the prompt on standard input is not UTF-8 text: {error}") from error


def read_prompts(file: Path) -> list[str]:
    """One prompt a line in a .txt file, else one JSON object a line with a field `prompt`; blank lines are skipped."""
    from softdlm.records.objects import read_objects, text_field

    if file.suffix != ".txt":
        return [text_field(place, line, "prompt") for place, line in read_objects(file)]
    try:
        found = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--prompts {file} cannot be read: {error}") from error
    if not found:
        raise UsageError(f"--prompts {file} holds no lines: give one prompt a line")
    return found


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))
