"""The analyses of softdlm.analysis with the paper's settings, for a study's model and tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from softdlm.analysis import plans
from softdlm.analysis.prompts import Case, encode_case, encode_cases, figure1_prompt, paper_prompts
from softdlm.analysis.questions import Question
from softdlm.analysis.spans import Rules
from softdlm.evaluate import paper
from softdlm.evaluate.cell import Decoding, Rate
from softdlm.evaluate.executors import LocalExecutor
from softdlm.evaluate.grid import Grid
from softdlm.generation import GenerateOptions
from softdlm.methods import feedback_rule
from softdlm.models.denoiser import Denoiser
from softdlm.reproduce.study import Study

SOFT = ("euclidean", "slerp", "additive", "norm-mix")
ALL = ("vanilla", *SOFT)
AGREEMENT_RATE = 4

Plan = plans.Plan[Any]
"""Named by what it measures on: a task, or "prompts"."""


def _rules(names: tuple[str, ...], k: int, lam: float) -> Rules:
    return {name: feedback_rule(name, k, lam) for name in names}


def joint(study: Study, executor: LocalExecutor) -> Iterator[tuple[str, Plan]]:
    """Figure 1."""
    model = executor.model(study.model)
    case = encode_case(model, figure1_prompt(), study.chat)
    yield "prompts", plans.joint_plan(model, [case], _rules(ALL, 3, 0.3), batch_size=_rows(study, model))


def mixtures(study: Study, executor: LocalExecutor) -> Iterator[tuple[str, Plan]]:
    """Table 1."""
    model = executor.model(study.model)
    yield (
        "prompts",
        plans.mixtures_plan(model, _cases(study, model), _rules(SOFT, 3, 0.3), batch_size=_rows(study, model)),
    )


def consistency(study: Study, executor: LocalExecutor) -> Iterator[tuple[str, Plan]]:
    """Table 4."""
    model = executor.model(study.model)
    rules = _rules(ALL, 3, 0.3)
    yield "prompts", plans.consistency_plan(model, _cases(study, model), rules, batch_size=_rows(study, model))


def geometry(study: Study, executor: LocalExecutor) -> Iterator[tuple[str, Plan]]:
    """Table 3 and appendix B.1, along SLERP at 2 tokens a step."""
    model = executor.model(study.model)
    for task in study.places("gsm8k", "humaneval"):
        questions, options = _questions(study, executor, task, study.scale.geometry, "slerp", 2)
        size = _at_once(study, model)
        yield task, plans.geometry_plan(model, questions, _rules(SOFT, 4, 0.5), options, batch_size=size)


def completions(study: Study, executor: LocalExecutor) -> Iterator[tuple[str, Plan]]:
    """Table 8, on answers of vanilla at one token a step."""
    model = executor.model(study.model)
    for task in study.places("math500", "humaneval"):
        questions, options = _questions(study, executor, task, study.scale.completions, "vanilla", 1)
        size = _at_once(study, model)
        yield task, plans.completions_plan(model, questions, _rules(ALL, 4, 0.3), options, batch_size=size)


def agreement(study: Study, executor: LocalExecutor) -> Iterator[tuple[str, Plan]]:
    """How predictions settle, at 4 tokens a step and temperature 0 (also Dream's)."""
    model = executor.model(study.model)
    for task in study.places("gsm8k", "humaneval"):
        questions, options = _questions(study, executor, task, study.scale.agreement, "vanilla", AGREEMENT_RATE)
        greedy: GenerateOptions = {**options, "temperature": 0.0, "top_p": None}
        size = _at_once(study, model)
        yield task, plans.agreement_plan(model, questions, _rules(SOFT, *study.strength(task)), greedy, batch_size=size)


ANALYSES: dict[str, Callable[[Study, LocalExecutor], Iterator[tuple[str, Plan]]]] = {
    "joint": joint,
    "mixtures": mixtures,
    "consistency": consistency,
    "geometry": geometry,
    "completions": completions,
    "agreement": agreement,
}


def _cases(study: Study, model: Denoiser) -> list[Case]:
    return encode_cases(model, paper_prompts()[: study.scale.prompts], study.chat)


def _questions(
    study: Study, executor: LocalExecutor, task: str, size: int, method: str, tokens_per_step: int
) -> tuple[list[Question], GenerateOptions]:
    """The first items as the accuracy tables put them, and the options those tables decode with."""
    model = executor.model(study.model)
    spec = study.spec(paper.variant(study.family, task), size)
    items, _ = executor.task(spec, model)
    setting = study.setting(task)
    length = study.max_new_tokens or setting.max_new_tokens or items.max_new_tokens
    decoding = _decoding(study, task, method, tokens_per_step, setting, length, setting.eos or items.eos)
    questions = [Question(task, item.id, _ids(model, item.prompt), length) for item in items.items]
    options: Any = decoding.options(model.eos_ids)
    return questions, options


def _decoding(
    study: Study, task: str, method: str, tokens_per_step: int, setting: paper.Setting, length: int, eos: Any
) -> Decoding:
    rates = (Rate("tokens_per_step", tokens_per_step),)
    grid = Grid((study.model,), (study.spec(task),), (method,), rates, recipe="paper", reading=study.reading)
    return list(grid.decodings(setting, length, eos))[-1]


def _ids(model: Denoiser, text: str) -> tuple[int, ...]:
    return tuple(model.tokenizer(text, add_special_tokens=False)["input_ids"])


def _rows(study: Study, model: Denoiser) -> int:
    """Rows in a forward pass over short prompts."""
    return 64 if model.device.type == "cpu" else study.batch_size or 64


def _at_once(study: Study, model: Denoiser) -> int:
    """Prompts decoded at once. A CPU gains nothing beyond a row per core."""
    return torch.get_num_threads() if model.device.type == "cpu" else min(64, study.batch_size or 16)
