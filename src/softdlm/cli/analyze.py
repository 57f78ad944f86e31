"""`softdlm analyze`: one command per claim of the paper."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softdlm.cli.analysis_tables import NOTES, tables
from softdlm.cli.option_tables import COMMAS, LOADING, RULES, SETTINGS, Table, takes
from softdlm.cli.options import Json, Model, Raw, load_model, names_in, option, print_json
from softdlm.errors import UsageError
from softdlm.report.words import count

if TYPE_CHECKING:
    from softdlm.analysis.plans import Plan
    from softdlm.analysis.prompts import Alternatives, Case
    from softdlm.analysis.questions import Question
    from softdlm.decoding import Decoding
    from softdlm.feedback import FeedbackRule

app = typer.Typer(no_args_is_help=True, help="Measure what the paper claims, on any model: one command per claim.")

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


@app.command()
@takes(asked=on_prompts(SOFT), loading=LOADING)
def mixtures(asked: dict[str, Any], loading: dict[str, Any]) -> None:
    """Table 1: JS divergence of soft-token predictions to additive and multiplicative mixtures."""
    from softdlm.analysis.plans import mixtures_plan

    denoiser, cases, rules = _read(asked, loading)
    strength = {name: asked[name] for name in ("k", "lam")}
    _finish(denoiser, mixtures_plan(denoiser, cases, rules, **strength, batch_size=asked["batch_size"]), asked)


@app.command()
@takes(asked=on_prompts(ALL), loading=LOADING)
def consistency(asked: dict[str, Any], loading: dict[str, Any]) -> None:
    """Table 4: reverse KL of the factorised prediction to the order-averaged sequential reference."""
    from softdlm.analysis.plans import consistency_plan

    denoiser, cases, rules = _read(asked, loading)
    plan = consistency_plan(denoiser, cases, rules, batch_size=asked["batch_size"])
    total = count(plan.settings["of"], "prompt")
    print(f"{plan.settings['qualify']} of {total} can be measured: both alternatives fill the masks", file=sys.stderr)
    _finish(denoiser, plan, asked)


@app.command()
@takes(asked=on_prompts(ALL, order=(Annotated[str, typer.Option(help=ORDER_HELP)], "average")), loading=LOADING)
def joint(asked: dict[str, Any], loading: dict[str, Any]) -> None:
    """Figure 1: the probability of every combination of two answers, in sequence, in parallel and soft."""
    from softdlm.analysis.plans import joint_plan
    from softdlm.analysis.prompts import figure1_prompt

    denoiser, cases, rules = _read(asked, loading, lambda: [figure1_prompt()])
    _finish(denoiser, joint_plan(denoiser, cases, rules, order=asked["order"], batch_size=asked["batch_size"]), asked)


TABLE3_K = Annotated[int, typer.Option("--k", help="Candidates for Table 3.")]
B1_K = Annotated[int, typer.Option(help="Candidates for appendix B.1.")]
B1_LAM = Annotated[float, typer.Option("--lam", help="Strength of the feedback for appendix B.1.")]


@app.command()
@takes(asked=on_decodes(SOFT, k=(TABLE3_K, 3), line_k=(B1_K, 4), lam=(B1_LAM, 0.5)), words=DECODING, loading=LOADING)
def geometry(asked: dict[str, Any], words: dict[str, Any], loading: dict[str, Any]) -> None:
    """Table 3 and appendix B.1: angles and norms at the open positions met while decoding."""
    from softdlm.analysis.plans import geometry_plan

    make = partial(geometry_plan, k=asked["k"], line_k=asked["line_k"])
    _look(make, asked | {"k": asked["line_k"]}, partial(_decoding, words, "slerp", 2), loading)


@app.command()
@takes(asked=on_decodes(ALL, k=(K, 4), lam=(Lam, 0.3)), words=DECODING, loading=LOADING)
def completions(asked: dict[str, Any], words: dict[str, Any], loading: dict[str, Any]) -> None:
    """Table 8: reverse KL on spans of the model's own answers."""
    from softdlm.analysis.completions import SUPPORT
    from softdlm.analysis.plans import completions_plan

    asked["rules"] = ",".join([*SUPPORT, asked["rules"]])
    _look(completions_plan, asked, partial(_decoding, words, "vanilla", 1), loading, digits=6)


@app.command()
@takes(asked=on_decodes(SOFT, k=(OwnK, None), lam=(OwnLam, None)), words=DECODING, loading=LOADING)
def agreement(asked: dict[str, Any], words: dict[str, Any], loading: dict[str, Any]) -> None:
    """How predictions settle from pass to pass, and where feedback changes the order of commits."""
    from softdlm.analysis.plans import agreement_plan

    _look(agreement_plan, asked, partial(_decoding, words, "vanilla", 4), loading)


def _rules(names: str, k: int | None, lam: float | None) -> dict[str, FeedbackRule]:
    from softdlm import feedback  # noqa: F401  (declares the rules)
    from softdlm.registry import build

    return {name: build("feedback", name, {"k": k, "lam": lam}) for name in names_in("--rules", names)}


def _decoding(words: Mapping[str, Any], feedback: str, tokens_per_step: int) -> Decoding:
    """How answers are decoded; by default with this feedback rule, this many tokens a step."""
    from softdlm.decoding import Decoding
    from softdlm.shortcuts import RATES

    rate = {} if words.keys() & {"commit", *RATES} else {"tokens_per_step": tokens_per_step}
    return Decoding.of(**{"feedback": feedback, **rate, **words})


def _read(
    asked: Mapping[str, Any], loading: Mapping[str, Any], default: Callable[[], Sequence[Alternatives]] | None = None
) -> tuple[Any, list[Case], dict[str, FeedbackRule]]:
    """The model, its controlled prompts (those of a file, else `default`, else the paper's) and the rules."""
    from softdlm.analysis.prompts import encode_cases, paper_prompts, read_alternatives

    file, limit = asked.get("prompts"), asked.get("limit")
    _check_limit(limit)
    rules = _rules(asked["rules"], asked["k"], asked["lam"])
    if "chat_lead" in asked and not asked["chat"]:
        raise UsageError("--chat-lead is for --chat, raw text keeps its space: leave it out")
    layout = asked["chat"], asked.get("chat_lead", "none")
    model = load_model(asked["model"], loading)
    if file is None and default:
        return model, encode_cases(model, default(), *layout), rules
    found = paper_prompts() if file is None else read_alternatives(file)
    return model, encode_cases(model, found[:limit], *layout), rules


def _look(
    make: Callable[..., Plan[Any]],
    asked: Mapping[str, Any],
    decoding: Callable[[], Decoding],
    loading: Mapping[str, Any],
    digits: int = 4,
) -> None:
    """An analysis along decodes. What can be refused is refused before the weights are read."""
    k, lam = asked.get("k"), asked.get("lam")
    _rules(asked["rules"], k, lam)
    wanted = decoding()
    questions = _questions(asked, wanted)
    model = load_model(asked["model"], loading)
    own, size = model.own, _at_once(model, asked.get("batch_size"))
    rules = _rules(asked["rules"], own.k if k is None else k, own.lam if lam is None else lam)
    _finish(model, make(model, questions, rules, wanted.settled(own), batch_size=size), asked, digits)


def _questions(asked: Mapping[str, Any], decoding: Decoding) -> list[Question]:
    from softdlm.analysis.questions import read_questions, task_questions

    limit, length, chat = asked.get("limit"), decoding.max_new_tokens, not asked["raw"]
    _check_limit(limit)
    if "prompts" in asked:
        return read_questions(asked["prompts"], length, chat)[:limit]
    names = names_in("--tasks", asked["tasks"])
    return [each for name in names for each in task_questions(name, limit, asked["split"], length, chat)]


def _at_once(model: Any, batch_size: int | None) -> int:
    """A CPU gains nothing beyond a row per core, and with few rows each is shown and kept sooner."""
    import torch

    return batch_size if batch_size is not None else torch.get_num_threads() if model.device.type == "cpu" else 16


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be at least 1, not {limit}")


def _finish(model: Any, plan: Plan[Any], asked: Mapping[str, Any], digits: int = 4) -> None:
    from softdlm.analysis.plans import run
    from softdlm.report.progress import Screen, clock, progress_line
    from softdlm.report.row_tables import print_rows

    screen, began = Screen(), time.monotonic()

    def show(done: int, total: int) -> None:
        facts = f"{done}/{total}", f"{clock(time.monotonic() - began)} so far"
        text = progress_line(done / total, plan.settings["analysis"], *facts, width=screen.width)
        screen.say(text) if screen.terminal and done == total else screen.show(text, last=done == total)

    result = run(model, plan, asked.get("out"), show)
    if asked["as_json"]:
        print_json(result.record())
        return
    *before, last = tables(result).items()
    for title, rows in before:
        print_rows(rows, title, digits=digits)
    print_rows(last[1], last[0], digits=digits, notes=NOTES.get(plan.settings["analysis"], ()))
