"""`softdlm analyze`: one command per claim of the paper."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softdlm.cli.analysis_tables import NOTES, tables
from softdlm.cli.option_tables import COMMAS, LOADING, RULES, SETTINGS, Table, takes
from softdlm.cli.options import Json, Model, Raw, load_model, names_in, print_json
from softdlm.errors import UsageError
from softdlm.report.words import count

if TYPE_CHECKING:
    from softdlm.analysis.plans import Plan
    from softdlm.analysis.prompts import Case
    from softdlm.analysis.questions import Question
    from softdlm.decoding import Decoding
    from softdlm.feedback import FeedbackRule

app = typer.Typer(no_args_is_help=True, help="Measure what the paper claims, on any model: one command per claim.")

ALL = "vanilla,euclidean,slerp,additive,norm-mix"
SOFT = "euclidean,slerp,additive,norm-mix"

PROMPTS_HELP = "JSON Lines file with fields prompt, a, b, and optionally masks, lead."
Prompts = Annotated[Path | None, typer.Option(help=PROMPTS_HELP)]
OWN_HELP = "JSON Lines file with a field prompt, and optionally id; instead of tasks."
OwnQuestions = Annotated[Path | None, typer.Option("--prompts", help=OWN_HELP)]
Limit = Annotated[int | None, typer.Option(help="Only the first N prompts, or the first N items of each task.")]
RuleNames = Annotated[str, typer.Option("--rules", help=f"Feedback rules, {COMMAS}.")]
Chat = Annotated[bool, typer.Option("--chat", help="Put prompts into the chat template. Default: raw text.")]
Rows = Annotated[int, typer.Option("--batch-size", help="Rows of a forward pass.")]
AT_ONCE_HELP = "Prompts decoded together. Default: 16 on a GPU, one for each core of a CPU."
AtOnce = Annotated[int | None, typer.Option("--batch-size", help=AT_ONCE_HELP)]
OUT_HELP = "Keep every row in this JSON Lines file; an unfinished file is continued."
Out = Annotated[Path | None, typer.Option(help=OUT_HELP)]
Tasks = Annotated[str, typer.Option(help=f"Built-in tasks, {COMMAS}.")]
Split = Annotated[str, typer.Option(help="Split of the tasks: test, validation or train.")]
K = Annotated[int, typer.Option("--k", help="Candidates in a soft token.")]
Lam = Annotated[float, typer.Option("--lam", help="Strength of the feedback, from 0 (none) to 1.")]
OwnK = Annotated[int | None, typer.Option("--k", help="Candidates in a soft token. Default: the model's own.")]
OwnLam = Annotated[float | None, typer.Option("--lam", help="Strength, from 0 to 1. Default: the model's own.")]
DECODING: Table = {name: each for name, each in {**RULES, **SETTINGS}.items() if name not in ("k", "lam")}
"""How the answers are decoded that an analysis looks at; --k and --lam are those of the rules that it measures."""
ORDER_HELP = "Order of sequential decoding: average (the mean over all orders) or confidence."


@app.command()
@takes(loading=LOADING)
def mixtures(
    loading: dict[str, Any], model: Model = "builtin", prompts: Prompts = None, limit: Limit = None,
    rules: RuleNames = SOFT, k: K = 3, lam: Lam = 0.3, chat: Chat = False, batch_size: Rows = 64,
    as_json: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """Table 1: JS divergence of soft-token predictions to additive and multiplicative mixtures."""
    from softdlm.analysis.plans import mixtures_plan

    chosen = _rules(rules, k, lam)
    denoiser = load_model(model, loading)
    cases = _cases(denoiser, prompts, limit, chat)
    _finish(denoiser, mixtures_plan(denoiser, cases, chosen, k=k, lam=lam, batch_size=batch_size), out, as_json)


@app.command()
@takes(loading=LOADING)
def consistency(
    loading: dict[str, Any], model: Model = "builtin", prompts: Prompts = None, limit: Limit = None,
    rules: RuleNames = ALL, k: K = 3, lam: Lam = 0.3, chat: Chat = False, batch_size: Rows = 64,
    as_json: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """Table 4: reverse KL of the factorised prediction to the order-averaged sequential reference."""
    from softdlm.analysis.plans import consistency_plan

    chosen = _rules(rules, k, lam)
    denoiser = load_model(model, loading)
    plan = consistency_plan(denoiser, _cases(denoiser, prompts, limit, chat), chosen, batch_size=batch_size)
    total = count(plan.settings["of"], "prompt")
    print(f"{plan.settings['qualify']} of {total} can be measured: both alternatives fill the masks", file=sys.stderr)
    _finish(denoiser, plan, out, as_json)


@app.command()
@takes(loading=LOADING)
def joint(
    loading: dict[str, Any], model: Model = "builtin", prompts: Prompts = None, limit: Limit = None,
    rules: RuleNames = ALL, k: K = 3, lam: Lam = 0.3, chat: Chat = False,
    order: Annotated[str, typer.Option(help=ORDER_HELP)] = "average",
    batch_size: Rows = 64, as_json: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """Figure 1: the probability of every combination of two answers, in sequence, in parallel and soft."""
    from softdlm.analysis.plans import joint_plan
    from softdlm.analysis.prompts import encode_case, figure1_prompt

    chosen = _rules(rules, k, lam)
    denoiser = load_model(model, loading)
    figure = prompts is None
    cases = [encode_case(denoiser, figure1_prompt(), chat)] if figure else _cases(denoiser, prompts, limit, chat)
    plan = joint_plan(denoiser, cases, chosen, order=order, batch_size=batch_size)  # type: ignore[arg-type]
    _finish(denoiser, plan, out, as_json)


@app.command()
@takes(words=DECODING, loading=LOADING)
def geometry(
    words: dict[str, Any], loading: dict[str, Any], model: Model = "builtin",
    tasks: Tasks = "mini-math,mini-code", split: Split = "test",
    prompts: OwnQuestions = None, limit: Limit = 100, rules: RuleNames = SOFT,
    k: Annotated[int, typer.Option("--k", help="Candidates for Table 3.")] = 3,
    line_k: Annotated[int, typer.Option(help="Candidates for appendix B.1.")] = 4,
    lam: Annotated[float, typer.Option("--lam", help="Strength of the feedback for appendix B.1.")] = 0.5,
    raw: Raw = False, batch_size: AtOnce = None, as_json: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """Table 3 and appendix B.1: angles and norms at the open positions met while decoding."""
    from softdlm.analysis.plans import geometry_plan

    chosen, decoding = _rules(rules, line_k, lam), _decoding(words, "slerp", 2)
    questions = _questions(tasks, split, prompts, limit, decoding, raw)
    denoiser = load_model(model, loading)
    settled, size = decoding.settled(denoiser.own), _at_once(denoiser, batch_size)
    plan = geometry_plan(denoiser, questions, chosen, settled, k=k, line_k=line_k, batch_size=size)
    _finish(denoiser, plan, out, as_json)


@app.command()
@takes(words=DECODING, loading=LOADING)
def completions(
    words: dict[str, Any], loading: dict[str, Any], model: Model = "builtin",
    tasks: Tasks = "mini-math,mini-code", split: Split = "test",
    prompts: OwnQuestions = None, limit: Limit = 100, rules: RuleNames = ALL,
    k: K = 4, lam: Lam = 0.3, raw: Raw = False, batch_size: AtOnce = None, as_json: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """Table 8: reverse KL on spans of the model's own answers."""
    from softdlm.analysis.completions import SUPPORT
    from softdlm.analysis.plans import completions_plan

    chosen = _rules(",".join([*SUPPORT, rules]), k, lam)
    decoding = _decoding(words, "vanilla", 1)
    questions = _questions(tasks, split, prompts, limit, decoding, raw)
    denoiser = load_model(model, loading)
    settled, size = decoding.settled(denoiser.own), _at_once(denoiser, batch_size)
    plan = completions_plan(denoiser, questions, chosen, settled, batch_size=size)
    _finish(denoiser, plan, out, as_json, digits=6)


@app.command()
@takes(words=DECODING, loading=LOADING)
def agreement(
    words: dict[str, Any], loading: dict[str, Any], model: Model = "builtin",
    tasks: Tasks = "mini-math,mini-code", split: Split = "test",
    prompts: OwnQuestions = None, limit: Limit = 100, rules: RuleNames = SOFT,
    k: OwnK = None, lam: OwnLam = None, raw: Raw = False, batch_size: AtOnce = None, as_json: Json = False,
    out: Out = None,
) -> None:  # fmt: skip
    """How predictions settle from pass to pass, and where feedback changes the order of commits."""
    from softdlm.analysis.plans import agreement_plan

    _rules(rules, k, lam)  # what they refuse is refused before the weights are read
    decoding = _decoding(words, "vanilla", 4)
    questions = _questions(tasks, split, prompts, limit, decoding, raw)
    denoiser = load_model(model, loading)
    chosen = _rules(rules, denoiser.own.k if k is None else k, denoiser.own.lam if lam is None else lam)
    settled, size = decoding.settled(denoiser.own), _at_once(denoiser, batch_size)
    plan = agreement_plan(denoiser, questions, chosen, settled, batch_size=size)
    _finish(denoiser, plan, out, as_json)


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


def _cases(model: Any, prompts: Path | None, limit: int | None, chat: bool) -> list[Case]:
    from softdlm.analysis.prompts import encode_cases, paper_prompts, read_alternatives

    _check_limit(limit)
    return encode_cases(model, (paper_prompts() if prompts is None else read_alternatives(prompts))[:limit], chat)


def _questions(
    tasks: str, split: str, prompts: Path | None, limit: int | None, decoding: Decoding, raw: bool
) -> list[Question]:
    from softdlm.analysis.questions import read_questions, task_questions

    _check_limit(limit)
    length = decoding.max_new_tokens
    if prompts is not None:
        return read_questions(prompts, length, not raw)[:limit]
    names = names_in("--tasks", tasks)
    return [each for name in names for each in task_questions(name, limit, split, length, not raw)]


def _at_once(model: Any, batch_size: int | None) -> int:
    """A CPU gains nothing beyond a row per core, and with few rows each is shown and kept sooner."""
    import torch

    return batch_size if batch_size is not None else torch.get_num_threads() if model.device.type == "cpu" else 16


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be at least 1, not {limit}")


def _finish(model: Any, plan: Plan[Any], out: Path | None, as_json: bool, digits: int = 4) -> None:
    from softdlm.analysis.plans import run
    from softdlm.report.progress import Screen, clock, progress_line
    from softdlm.report.row_tables import print_rows

    screen, began = Screen(), time.monotonic()

    def show(done: int, total: int) -> None:
        facts = f"{done}/{total}", f"{clock(time.monotonic() - began)} so far"
        text = progress_line(done / total, plan.settings["analysis"], *facts, width=screen.width)
        screen.say(text) if screen.terminal and done == total else screen.show(text, last=done == total)

    result = run(model, plan, out, show)
    if as_json:
        print_json(result.record())
        return
    *before, last = tables(result).items()
    for title, rows in before:
        print_rows(rows, title, digits=digits)
    print_rows(last[1], last[0], digits=digits, notes=NOTES.get(plan.settings["analysis"], ()))
