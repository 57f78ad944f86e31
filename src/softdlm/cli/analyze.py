"""`softdlm analyze`: one command per claim of the paper."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softdlm.cli.analysis_options import (
    ALL,
    B1_K,
    B1_LAM,
    DECODING,
    ON_STATES,
    ORDER_HELP,
    SOFT,
    TABLE3_K,
    K,
    Lam,
    OwnK,
    OwnLam,
    on_decodes,
    on_prompts,
)
from softdlm.cli.analysis_tables import NOTES, labels, tables
from softdlm.cli.option_tables import LOADING, takes
from softdlm.cli.options import load_model, names_in, print_json
from softdlm.errors import UsageError
from softdlm.parsing import from_one
from softdlm.records.files import ready_file
from softdlm.report.words import count

if TYPE_CHECKING:
    from softdlm.analysis.plans import Plan, Result
    from softdlm.analysis.prompts import Alternatives, Case
    from softdlm.analysis.questions import Question
    from softdlm.decoding import Decoding
    from softdlm.feedback import FeedbackRule

app = typer.Typer(no_args_is_help=True, help="Measure what the paper claims, on any model: one command per claim.")


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


@app.command()
@takes(asked=ON_STATES, words=DECODING, loading=LOADING)
def reliability(asked: dict[str, Any], words: dict[str, Any], loading: dict[str, Any]) -> None:
    """Are predictions as often right as they are sure, with and without their own soft token?"""
    from softdlm.analysis.plans import reliability_plan
    from softdlm.analysis.states import task_scorer
    from softdlm.report.figures import draw_reliability

    tasks, plot = names_in("--tasks", asked["tasks"]), asked.get("plot")
    counts = {name: from_one(f"--{name}", asked[name]) for name in ("states", "positions")}
    _check_limit(asked["limit"])
    _check_plot(plot, tasks)
    score = task_scorer(tasks, asked["limit"], asked["split"], asked["allow_unsandboxed"])
    make = partial(reliability_plan, score=score, **counts)
    result = _look(make, asked, partial(_state_decoding, words), loading, digits=1)
    if plot is not None:
        draw_reliability(result.record()["summary"], plot)


def _state_decoding(words: Mapping[str, Any]) -> Decoding:
    """How states are come by: with the model's own feedback and, unless told otherwise, the entropy bound 0.1."""
    from softdlm.analysis.reliability import check
    from softdlm.decoding import Decoding
    from softdlm.shortcuts import RATES

    found = Decoding.of(**({} if words.keys() & {"commit", *RATES} else {"commit": "entropy(0.1)"}), **words)
    check({}, found)
    return found


def _check_plot(file: Path | None, tasks: Sequence[str]) -> None:
    """Refuse a file that cannot be drawn before anything is decoded."""
    from softdlm.report.figures import check_format

    if file is None:
        return
    check_format(file)
    if len(tasks) > 1:
        raise UsageError(f"--plot {file} draws one task: give a single one with --tasks")
    ready_file(file)


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
) -> Result:
    """An analysis along decodes. What can be refused is refused before the weights are read."""
    k, lam = asked.get("k"), asked.get("lam")
    _rules(asked["rules"], k, lam)
    wanted = decoding()
    questions = _questions(asked, wanted)
    model = load_model(asked["model"], loading)
    own, size = model.own, _at_once(model, asked.get("batch_size"))
    rules = _rules(asked["rules"], own.k if k is None else k, own.lam if lam is None else lam)
    return _finish(model, make(model, questions, rules, wanted.settled(own), batch_size=size), asked, digits)


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


def _finish(model: Any, plan: Plan[Any], asked: Mapping[str, Any], digits: int = 4) -> Result:
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
        return result
    shown, notes = tables(result), NOTES.get(plan.settings["analysis"], ())
    for title, rows in shown.items():
        below = notes if title == list(shown)[-1] else ()
        print_rows(rows, title, labels=labels(rows), digits=digits, notes=below)
    return result
