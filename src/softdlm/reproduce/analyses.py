"""Analyses (softdlm.analysis) with the paper's settings, on controlled prompts or along decodes of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from softdlm.analysis.plans import Plan
from softdlm.analysis.prompts import Alternatives, encode_cases, paper_prompts
from softdlm.analysis.questions import Question
from softdlm.analysis.spans import Rules
from softdlm.evaluate import paper
from softdlm.evaluate.executors import LocalExecutor
from softdlm.methods import feedback_rule
from softdlm.reproduce.study import Study, steps

SOFT = ("euclidean", "slerp", "additive", "norm-mix")
ALL = ("vanilla", *SOFT)


@dataclass(frozen=True)
class Analysis:
    """An analysis with the paper's settings; experiments that name the same one share its rows."""

    name: str
    plans: Callable[[Study, LocalExecutor], Iterator[tuple[str, Plan[Any]]]]
    """Each plan with the name of what it is measured on: a task, or "prompts"."""


def on_prompts(
    name: str,
    make: Callable[..., Plan[Any]],
    methods: Sequence[str],
    prompts: Callable[[], Sequence[Alternatives]] = paper_prompts,
) -> Analysis:
    """An analysis of controlled prompts, all methods with k = 3 and lambda = 0.3."""

    def plans(study: Study, executor: LocalExecutor) -> Iterator[tuple[str, Plan[Any]]]:
        model = executor.model(study.model)
        cases = encode_cases(model, prompts()[: study.scale.prompts], study.chat)
        size = 64 if model.device.type == "cpu" else study.batch_size or 64
        yield "prompts", make(model, cases, _rules(methods, 3, 0.3), batch_size=size)

    return Analysis(name, plans)


def on_tasks(
    name: str,
    make: Callable[..., Plan[Any]],
    benchmarks: Sequence[str],
    methods: Sequence[str],
    strength: tuple[int, float] | None,
    decode: tuple[str, int],
    **changes: Any,
) -> Analysis:
    """An analysis along decodes of the first items of each task, as many as the scale's field of that name says.

    `decode` is a method and its tokens a step; the options are those of the accuracy tables, but for `changes`.
    `strength` is k and lambda of the methods looked at; None is each task's own.
    """

    def plans(study: Study, executor: LocalExecutor) -> Iterator[tuple[str, Plan[Any]]]:
        model = executor.model(study.model)
        size = torch.get_num_threads() if model.device.type == "cpu" else min(64, study.batch_size or 16)
        for task in study.places(*benchmarks):
            questions, options = _questions(study, executor, task, getattr(study.scale, name), *decode)
            rules = _rules(methods, *(strength or study.strength(task)))
            yield task, make(model, questions, rules, {**options, **changes}, batch_size=size)

    return Analysis(name, plans)


def _rules(names: Sequence[str], k: int, lam: float) -> Rules:
    return {name: feedback_rule(name, k, lam) for name in names}


def _questions(
    study: Study, executor: LocalExecutor, task: str, items: int, method: str, tokens_per_step: int
) -> tuple[list[Question], dict[str, Any]]:
    """The first items as the accuracy tables ask them, and the options that those tables decode with."""
    model, setting = executor.model(study.model), study.setting(task)
    asked, _ = executor.task(study.spec(paper.variant(study.family, task), items), model)
    length = study.max_new_tokens or setting.max_new_tokens or asked.max_new_tokens
    (grid,) = study.grids([task], [method], [steps(tokens_per_step)])
    (decoding,) = grid.decodings(setting, length, setting.eos or asked.eos)
    prompts = {item.id: model.tokenizer(item.prompt, add_special_tokens=False)["input_ids"] for item in asked.items}
    questions = [Question(task, item, tuple(ids), length) for item, ids in prompts.items()]
    return questions, {**decoding.options(model.eos_ids)}
