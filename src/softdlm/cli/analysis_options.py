"""The options of `softdlm analyze`, as tables: of prompts, of decodes, of states in a decode."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from softdlm.cli.option_tables import COMMAS, RULES, SETTINGS, Table
from softdlm.cli.options import Json, Model, Raw, Unsandboxed, option

ALL = "vanilla,euclidean,slerp,additive,norm-mix"
SOFT = "euclidean,slerp,additive,norm-mix"

Prompts = Annotated[Path | None, option("JSON Lines file with fields prompt, a, b, and optionally masks, lead.")]
OWN_HELP = "JSON Lines file with a field prompt, and optionally id; instead of tasks."
OwnQuestions = Annotated[Path | None, typer.Option("--prompts", help=OWN_HELP)]
Limit = Annotated[int | None, typer.Option(help="Only the first N prompts, or the first N items of each task.")]
RuleNames = Annotated[str, typer.Option("--rules", help=f"Feedback rules, {COMMAS}.")]
Chat = Annotated[bool, typer.Option("--chat", help="Put prompts into the chat template. Default: raw text.")]
LEAD_HELP = "With --chat, what stands before the alternatives: none or space. Raw text keeps its space."
Lead = Annotated[str | None, typer.Option("--chat-lead", help=LEAD_HELP)]
Rows = Annotated[int, typer.Option("--batch-size", help="Rows of a forward pass.")]
AT_ONCE_HELP = "Prompts decoded together. Default: 16 on a GPU, one for each core of a CPU."
AtOnce = Annotated[int | None, typer.Option("--batch-size", help=AT_ONCE_HELP)]
Out = Annotated[Path | None, option("Keep every row in this JSON Lines file; an unfinished file is continued.")]
Tasks = Annotated[str, typer.Option(help=f"Built-in tasks, {COMMAS}.")]
Split = Annotated[str, typer.Option(help="Split of the tasks: test, validation or train.")]
K = Annotated[int, typer.Option("--k", help="Candidates in a soft token.")]
Lam = Annotated[float, typer.Option("--lam", help="Strength of the feedback, from 0 (none) to 1.")]
OwnK = Annotated[int | None, typer.Option("--k", help="Candidates in a soft token. Default: the model's own.")]
OwnLam = Annotated[float | None, typer.Option("--lam", help="Strength, from 0 to 1. Default: the model's own.")]
DECODING: Table = {name: each for name, each in {**RULES, **SETTINGS}.items() if name not in ("k", "lam")}
"""How the answers are decoded that an analysis looks at; --k and --lam are those of the rules that it measures."""
ORDER_HELP = "Order of sequential decoding: average (the mean over all orders) or confidence."
TABLE3_K = Annotated[int, typer.Option("--k", help="Candidates for Table 3.")]
B1_K = Annotated[int, typer.Option(help="Candidates for appendix B.1.")]
B1_LAM = Annotated[float, typer.Option("--lam", help="Strength of the feedback for appendix B.1.")]
States = Annotated[int, option("States of each decode that are looked at; --seed chooses them.")]
Positions = Annotated[int, option("Open positions of a state that are looked at, at most.")]
Plot = Annotated[Path | None, option("Draw right against sure to this file (png, svg or pdf).")]


def on_prompts(rules: str, **more: tuple[Any, Any]) -> Table:
    """The options of an analysis of controlled prompts, with its default rules."""
    head = {
        "model": (Model, "builtin"),
        "prompts": (Prompts, None),
        "limit": (Limit, None),
        "rules": (RuleNames, rules),
    }
    strength = {"k": (K, 3), "lam": (Lam, 0.3), "chat": (Chat, False), "chat_lead": (Lead, None)}
    return {**head, **strength, **more, "batch_size": (Rows, 64), "as_json": (Json, False), "out": (Out, None)}


def on_decodes(rules: str, **strength: tuple[Any, Any]) -> Table:
    """The options of an analysis that looks at decodes, with its default rules and their strength."""
    head = {"model": (Model, "builtin"), "tasks": (Tasks, "mini-math,mini-code"), "split": (Split, "test")}
    asked = {"prompts": (OwnQuestions, None), "limit": (Limit, 100), "rules": (RuleNames, rules)}
    tail = {"raw": (Raw, False), "batch_size": (AtOnce, None), "as_json": (Json, False), "out": (Out, None)}
    return {**head, **asked, **strength, **tail}


ON_STATES: Table = {
    **{name: each for name, each in on_decodes("").items() if name != "prompts"},
    "tasks": (Tasks, "mini-math"), "split": (Split, "validation"), "states": (States, 2), "positions": (Positions, 6),
    "rules": (RuleNames, "slerp(k=1, lam=0.5),slerp(k=3, lam=0.5)"), "k": (OwnK, None), "lam": (OwnLam, None),
    "allow_unsandboxed": (Unsandboxed, False), "plot": (Plot, None),
}  # fmt: skip
