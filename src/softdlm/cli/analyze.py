"""`softdlm analyze`: one command per claim of the paper."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softdlm.cli.analysis_tables import NOTES, tables
from softdlm.cli.options import (
    COMMAS,
    Attention,
    Device,
    Dtype,
    Eos,
    EosIds,
    Json,
    K,
    Lam,
    MaskId,
    Model,
    OwnK,
    OwnLam,
    Raw,
    Revision,
    load_model,
    names_in,
    print_json,
)
from softdlm.errors import UsageError
from softdlm.report.words import count

if TYPE_CHECKING:
    from softdlm.analysis.plans import Plan
    from softdlm.analysis.prompts import Case
    from softdlm.analysis.questions import Question
    from softdlm.feedback import FeedbackRule
    from softdlm.models.denoiser import Denoiser, Strength

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
NewTokens = Annotated[
    int | None, typer.Option("--max-new-tokens", "-n", help="Length of the answer's canvas. Default: the task's.")
]
PerStep = Annotated[int, typer.Option("--tokens-per-step", "-t", help="Commit this many tokens in each pass.")]
Method = Annotated[str, typer.Option(help="Feedback rule to decode with.")]
ORDER_HELP = "Order of sequential decoding: average (the mean over all orders) or confidence."


@app.command()
def mixtures(
    model: Model = "builtin", prompts: Prompts = None, limit: Limit = None, rules: RuleNames = SOFT, k: K = 3,
    lam: Lam = 0.3, chat: Chat = False, batch_size: Rows = 64, revision: Revision = None, device: Device = None,
    dtype: Dtype = None, attention: Attention = "auto", mask_id: MaskId = None, eos_ids: EosIds = None,
    as_json: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """Table 1: JS divergence of soft-token predictions to additive and multiplicative mixtures."""
    from softdlm.analysis.plans import mixtures_plan

    chosen = _rules(rules, k, lam)
    denoiser = load_model(model, revision, device, dtype, attention, mask_id, eos_ids)
    cases = _cases(denoiser, prompts, limit, chat)
    _finish(denoiser, mixtures_plan(denoiser, cases, chosen, k=k, lam=lam, batch_size=batch_size), out, as_json)


@app.command()
def consistency(
    model: Model = "builtin", prompts: Prompts = None, limit: Limit = None, rules: RuleNames = ALL, k: K = 3,
    lam: Lam = 0.3, chat: Chat = False, batch_size: Rows = 64, revision: Revision = None, device: Device = None,
    dtype: Dtype = None, attention: Attention = "auto", mask_id: MaskId = None, eos_ids: EosIds = None,
    as_json: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """Table 4: reverse KL of the factorised prediction to the order-averaged sequential reference."""
    from softdlm.analysis.plans import consistency_plan

    chosen = _rules(rules, k, lam)
    denoiser = load_model(model, revision, device, dtype, attention, mask_id, eos_ids)
    plan = consistency_plan(denoiser, _cases(denoiser, prompts, limit, chat), chosen, batch_size=batch_size)
    total = count(plan.settings["of"], "prompt")
    print(f"{plan.settings['qualify']} of {total} can be measured: both alternatives fill the masks", file=sys.stderr)
    _finish(denoiser, plan, out, as_json)


@app.command()
def joint(
    model: Model = "builtin", prompts: Prompts = None, limit: Limit = None, rules: RuleNames = ALL, k: K = 3,
    lam: Lam = 0.3, chat: Chat = False,
    order: Annotated[str, typer.Option(help=ORDER_HELP)] = "average",
    batch_size: Rows = 64, revision: Revision = None, device: Device = None, dtype: Dtype = None,
    attention: Attention = "auto", mask_id: MaskId = None, eos_ids: EosIds = None, as_json: Json = False,
    out: Out = None,
) -> None:  # fmt: skip
    """Figure 1: the probability of every combination of two answers, in sequence, in parallel and soft."""
    from softdlm.analysis.plans import joint_plan
    from softdlm.analysis.prompts import encode_case, figure1_prompt

    chosen = _rules(rules, k, lam)
    denoiser = load_model(model, revision, device, dtype, attention, mask_id, eos_ids)
    figure = prompts is None
    cases = [encode_case(denoiser, figure1_prompt(), chat)] if figure else _cases(denoiser, prompts, limit, chat)
    plan = joint_plan(denoiser, cases, chosen, order=order, batch_size=batch_size)  # type: ignore[arg-type]
    _finish(denoiser, plan, out, as_json)


@app.command()
def geometry(
    model: Model = "builtin", tasks: Tasks = "mini-math,mini-code", split: Split = "test",
    prompts: OwnQuestions = None, max_new_tokens: NewTokens = None, limit: Limit = 100, rules: RuleNames = SOFT,
    k: Annotated[int, typer.Option("--k", help="Candidates for Table 3.")] = 3,
    line_k: Annotated[int, typer.Option(help="Candidates for appendix B.1.")] = 4,
    lam: Annotated[float, typer.Option("--lam", help="Strength of the feedback for appendix B.1.")] = 0.5,
    method: Method = "slerp", tokens_per_step: PerStep = 2, eos: Eos = "allow", raw: Raw = False,
    batch_size: AtOnce = None, revision: Revision = None, device: Device = None, dtype: Dtype = None,
    attention: Attention = "auto", mask_id: MaskId = None, eos_ids: EosIds = None, as_json: Json = False,
    out: Out = None,
) -> None:  # fmt: skip
    """Table 3 and appendix B.1: angles and norms at the open positions met while decoding."""
    from softdlm.analysis.plans import geometry_plan

    chosen, options = _rules(rules, line_k, lam), _options(method, tokens_per_step, eos, raw)
    questions = _questions(tasks, split, prompts, limit, max_new_tokens)
    denoiser = load_model(model, revision, device, dtype, attention, mask_id, eos_ids)
    options = _at_own_strength(denoiser, method, options)
    plan = geometry_plan(
        denoiser, questions, chosen, options, k=k, line_k=line_k, batch_size=_at_once(denoiser, batch_size)
    )
    _finish(denoiser, plan, out, as_json)


@app.command()
def completions(
    model: Model = "builtin", tasks: Tasks = "mini-math,mini-code", split: Split = "test",
    prompts: OwnQuestions = None, max_new_tokens: NewTokens = None, limit: Limit = 100, rules: RuleNames = ALL,
    k: K = 4, lam: Lam = 0.3, method: Method = "vanilla", tokens_per_step: PerStep = 1, eos: Eos = "allow",
    raw: Raw = False, batch_size: AtOnce = None, revision: Revision = None, device: Device = None, dtype: Dtype = None,
    attention: Attention = "auto", mask_id: MaskId = None, eos_ids: EosIds = None, as_json: Json = False,
    out: Out = None,
) -> None:  # fmt: skip
    """Table 8: reverse KL on spans of the model's own answers."""
    from softdlm.analysis.completions import SUPPORT
    from softdlm.analysis.plans import completions_plan

    chosen = _rules(",".join([*SUPPORT, rules]), k, lam)
    options = _options(method, tokens_per_step, eos, raw)
    questions = _questions(tasks, split, prompts, limit, max_new_tokens)
    denoiser = load_model(model, revision, device, dtype, attention, mask_id, eos_ids)
    options = _at_own_strength(denoiser, method, options)
    plan = completions_plan(denoiser, questions, chosen, options, batch_size=_at_once(denoiser, batch_size))
    _finish(denoiser, plan, out, as_json, digits=6)


@app.command()
def agreement(
    model: Model = "builtin", tasks: Tasks = "mini-math,mini-code", split: Split = "test",
    prompts: OwnQuestions = None, max_new_tokens: NewTokens = None, limit: Limit = 100, rules: RuleNames = SOFT,
    k: OwnK = None, lam: OwnLam = None, tokens_per_step: PerStep = 4, eos: Eos = "allow", raw: Raw = False,
    batch_size: AtOnce = None, revision: Revision = None, device: Device = None, dtype: Dtype = None,
    attention: Attention = "auto", mask_id: MaskId = None, eos_ids: EosIds = None, as_json: Json = False,
    out: Out = None,
) -> None:  # fmt: skip
    """How predictions settle from pass to pass, and where feedback changes the order of commits."""
    from softdlm.analysis.plans import agreement_plan

    _rules(rules, k, lam)  # what they refuse is refused before the weights are read
    options = _options("vanilla", tokens_per_step, eos, raw)
    questions = _questions(tasks, split, prompts, limit, max_new_tokens)
    denoiser = load_model(model, revision, device, dtype, attention, mask_id, eos_ids)
    chosen = _rules(rules, k, lam, denoiser.strength)
    plan = agreement_plan(denoiser, questions, chosen, options, batch_size=_at_once(denoiser, batch_size))
    _finish(denoiser, plan, out, as_json)


def _rules(names: str, k: int | None, lam: float | None, *own: Strength) -> dict[str, FeedbackRule]:
    from softdlm.methods import feedback_rule

    return {name: feedback_rule(name, k, lam, *own) for name in names_in("--rules", names)}


def _options(method: str, tokens_per_step: int, eos: str, raw: bool) -> Any:
    from softdlm.methods import commit_rule, feedback_rule

    return {"feedback": feedback_rule(method), "commit": commit_rule(tokens_per_step), "eos": eos, "chat": not raw}


def _at_own_strength(model: Denoiser, method: str, options: Any) -> Any:
    from softdlm.methods import feedback_rule

    return {**options, "feedback": feedback_rule(method, own=model.strength)}


def _cases(model: Any, prompts: Path | None, limit: int | None, chat: bool) -> list[Case]:
    from softdlm.analysis.prompts import encode_cases, paper_prompts, read_alternatives

    _check_limit(limit)
    return encode_cases(model, (paper_prompts() if prompts is None else read_alternatives(prompts))[:limit], chat)


def _questions(
    tasks: str, split: str, prompts: Path | None, limit: int | None, max_new_tokens: int | None
) -> list[Question]:
    from softdlm.analysis.questions import read_questions, task_questions

    _check_limit(limit)
    if prompts is not None:
        return read_questions(prompts, max_new_tokens)[:limit]
    return [each for name in names_in("--tasks", tasks) for each in task_questions(name, limit, split, max_new_tokens)]


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
