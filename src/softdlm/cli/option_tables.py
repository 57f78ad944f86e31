"""Options of the command line as tables: how a model is loaded and how an answer is decoded, once for all verbs.

`takes` adds a table's options to a verb, which receives the values that were given as one dictionary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any

import typer
import typer.core

COMMAS = "separated by commas"


def _spellings(option: Any) -> list[str]:
    """An option's own names, of which typer keeps the first as a default; none where its parameter names it."""
    return [each for each in (option.default, *(option.param_decls or ())) if isinstance(each, str)]


Table = Mapping[str, tuple[Any, Any]]
"""Parameter -> (type, typer.Option), which may be left out; or (annotation, default)."""

LOADING: Table = {
    "revision": (str, typer.Option(help="Branch, tag or commit on the Hugging Face hub.")),
    "device": (str, typer.Option(help="cuda, cuda:1, cpu, ... Default: the first GPU, else the CPU.")),
    "dtype": (
        str,
        typer.Option(
            help="bfloat16, float32, ... Default: bfloat16 on a GPU, float32 on a CPU. "
            "native: bfloat16 on CPUs that have it. fp8: eight-bit weights, on Hopper GPUs and later."
        ),
    ),
    "attention": (str, typer.Option(help="LLaDA-2 and A2D: auto, full or block-causal.")),
    "engine": (str, typer.Option(help="How passes are run: auto, dynamic, static or compiled. Default: auto.")),
    "mask_id": (int, typer.Option(help="Id of the mask token, instead of the checkpoint's.")),
    "eos_ids": (str, typer.Option(help=f"Ids that end an answer, EOS first, {COMMAS}, instead of the checkpoint's.")),
    "settings": (
        str,
        typer.Option(
            help="Decoding settings that softdlm tune wrote, or recommended, instead of the checkpoint's own.",
            metavar="FILE",
        ),
    ),
}
PLACE: Table = {name: LOADING[name] for name in ("device", "dtype")}
RULES: Table = {
    "feedback": (str, typer.Option("--feedback", "--method", help="Feedback rule, such as slerp(k=3, lam=0.5).")),
    "k": (int, typer.Option("--k", help="Candidates in a soft token. Default: the model's own.")),
    "lam": (float, typer.Option("--lam", help="Strength of the feedback, from 0 to 1. Default: the model's own.")),
    "commit": (str, typer.Option("--commit", help="Commit rule, such as topn(4) or entropy(0.1).")),
    "tokens_per_step": (int, typer.Option("--tokens-per-step", "-t", help="Commit this many tokens in each pass.")),
    "threshold": (float, typer.Option(help="Commit every token of at least this confidence.")),
    "entropy_bound": (float, typer.Option(help="Commit the surest tokens up to this entropy bound, in nats.")),
    "factor": (float, typer.Option(help="Commit by Fast-dLLM's factor rule, with this factor.")),
}
RULE_LISTS: Table = {
    name: (str, typer.Option(*_spellings(option), help=f"{option.help.rstrip('.')}; several {COMMAS}."))
    for name, (_, option) in RULES.items()
}
"""The same options for verbs that take several values of each."""
SETTINGS: Table = {
    "rank": (str, typer.Option(help="Commit first by confidence, margin or entropy. Default: the commit rule's own.")),
    "max_new_tokens": (
        int, typer.Option("--max-new-tokens", "-n", help="Length of the answer's canvas. Default: the model's own.")
    ),
    "block_length": (int, typer.Option(help="Decode in blocks of this many tokens. Default: one block.")),
    "cache": (str, typer.Option(help="Reuse keys and values outside the block: prefix or dual.")),
    "refresh": (int, typer.Option(help="With --cache: recompute everything every N passes of a block.")),
    "renew": (int, typer.Option(help="With --cache: recompute everything at the start of every N-th block only.")),
    "eos": (str, typer.Option(help="EOS tokens: allow, last (committed after all others), forbid or forbid-first.")),
    "temperature": (float, typer.Option(help="Sampling temperature. Default: 0, the likeliest token.")),
    "top_p": (float, typer.Option(help="Nucleus sampling; needs a temperature above 0.")),
    "top_k": (int, typer.Option(help="Sample from the K likeliest tokens; needs a temperature above 0.")),
    "min_p": (float, typer.Option(help="Sample from tokens at least this many times as likely as the likeliest.")),
    "confidence": (str, typer.Option(help="Rank by the tempered (default) or the untempered distribution.")),
    "last_candidates": (str, typer.Option(help="With --eos last: whether EOS may be in a soft token, true or false.")),
    "seed": (int, typer.Option(help="Random seed for sampling.")),
}  # fmt: skip
DECODING: Table = {**RULES, **SETTINGS}


def takes(**tables: Table) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of tables to a verb: `takes(words=DECODING)` gives its parameter `words` what was given."""

    def add(verb: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(verb, eval_str=True).parameters
        options = [_option(name, *each) for table in tables.values() for name, each in table.items()]

        @wraps(verb)
        def call(**given: Any) -> None:
            split = {
                name: {each: value for each in table if (value := given.pop(each)) is not None}
                for name, table in tables.items()
            }
            verb(**given, **split)

        kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own.values() if each.name not in tables]
        shown = sorted([*kept, *options], key=lambda each: not _is_argument(each))
        call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in shown}
        return call

    return add


class WithRules(typer.core.TyperCommand):
    """A verb whose help ends with the rules by name; they are read from the registry when help is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from softdlm import decoding, registry  # noqa: F401  (declares the rules)

        kinds: list[registry.Kind] = ["feedback", "commit", "cache"]
        lines = [f"{kind.capitalize()} rules:" if kind != "cache" else "Cache policies:" for kind in kinds]
        parts = [
            "\n\n".join([head, *(f"  {each.signature}: {each.about}" for each in registry.described(kind))])
            for head, kind in zip(lines, kinds, strict=True)
        ]
        self.epilog = "\n\n".join([*parts, "Your own rule, in a file: my_rules.py:Mine(k=3)"])
        super().format_help(ctx, formatter)


def _option(name: str, kind: Any, option: Any) -> inspect.Parameter:
    may_be_left_out = isinstance(option, typer.models.OptionInfo)
    wanted, default = (Annotated[kind | None, option], None) if may_be_left_out else (kind, option)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=wanted)


def _is_argument(parameter: inspect.Parameter) -> bool:
    found = getattr(parameter.annotation, "__metadata__", ())
    return any(isinstance(each, typer.models.ArgumentInfo) for each in found)
