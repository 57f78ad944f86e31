"""Analyses (softdlm.analysis) with the paper's settings, on controlled prompts or along decodes of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from softdlm.analysis.plans import Plan
from softdlm.analysis.prompts import Alternatives, encode_cases, paper_prompts
from softdlm.analysis.questions import Question
from softdlm.analysis.spans import Rules
from softdlm.decoding import Decoding
from softdlm.evaluate.executors import LocalExecutor
from softdlm.evaluate.grid import task_source
from softdlm.evaluate.paper import Source
from softdlm.registry import build, title
from softdlm.reproduce.study import Study

SOFT = ("euclidean", "slerp", "additive", "norm-mix(k=1)")
"""Spelled; Additive and NormMix keep strengths of their own whatever the task's k and lambda."""
ALL = ("vanilla", *SOFT)
CONTROLLED = "k = 3, λ = 0.3"
"""The strength on controlled prompts, whatever a task's own is."""


@dataclass(frozen=True)
class Analysis:
    """An analysis with the paper's settings; experiments that name the same one share its rows."""

    name: str
    plans: Callable[[Study, LocalExecutor], Iterator[tuple[str, Plan[Any]]]]
    """Each plan with the name of what it is measured on: a task, or "prompts"."""
    choices: Callable[[Study], list[Any]] = lambda _: []
    """Everything by which a reading can change the rows, as values; nothing is loaded for it."""


def on_prompts(
    name: str,
    make: Callable[..., Plan[Any]],
    methods: Sequence[str],
    prompts: Callable[[], Sequence[Alternatives]] = paper_prompts,
) -> Analysis:
    """An analysis of controlled prompts, all methods with k = 3 and lambda = 0.3."""

    def plans(study: Study, executor: LocalExecutor) -> Iterator[tuple[str, Plan[Any]]]:
        model = executor.model(study.loaded)
        cases = encode_cases(model, prompts()[: study.scale.prompts], study.chat, study.chat_lead)
        size = 64 if model.device.type == "cpu" else study.batch_size or 64
        yield "prompts", make(model, cases, rules_of(methods, 3, 0.3), batch_size=size)

    return Analysis(name, plans, lambda study: [study.loaded, study.chat, study.chat and study.chat_lead])


def on_tasks(
    name: str,
    make: Callable[..., Plan[Any]],
    benchmarks: Sequence[str],
    methods: Sequence[str],
    strength: tuple[int, float] | None,
    decode: tuple[str, str],
    **changes: Any,
) -> Analysis:
    """An analysis along decodes of the first items of each task, as many as the scale's field of that name says.

    `decode` is a method and a commit rule; the other settings are those of the accuracy tables, but for `changes`.
    `strength` is k and lambda of the methods looked at; None is each task's own.
    """

    def plans(study: Study, executor: LocalExecutor) -> Iterator[tuple[str, Plan[Any]]]:
        model = executor.model(study.loaded)
        size = torch.get_num_threads() if model.device.type == "cpu" else min(64, study.batch_size or 16)
        for task in study.places(*benchmarks):
            questions, decoding = _questions(study, executor, task, getattr(study.scale, name), *decode)
            rules = rules_of(methods, *(strength or study.strength(task)))
            yield task, make(model, questions, rules, replace(decoding, **changes), batch_size=size)

    def choices(study: Study) -> list[Any]:
        return [
            (study.loaded, study.recipe.variant(task), replace(_decoding(study, task, *decode), **changes))
            for task in study.places(*benchmarks)
        ]

    return Analysis(name, plans, choices)


def rules_of(names: Sequence[str], k: int, lam: float) -> Rules:
    return {title(rule): rule for rule in (build("feedback", name, {"k": k, "lam": lam}) for name in names)}


def _questions(
    study: Study, executor: LocalExecutor, task: str, items: int, method: str, commit: str
) -> tuple[list[Question], Decoding]:
    """The first items as the accuracy tables ask them, and the Decoding of those tables."""
    model = executor.model(study.loaded)
    asked, _ = executor.task(study.spec(study.recipe.variant(task), items), model)
    decoding = _decoding(study, task, method, commit, task_source(asked))
    length = decoding.max_new_tokens
    assert length is not None
    prompts = {item.id: model.tokenizer(item.prompt, add_special_tokens=False)["input_ids"] for item in asked.items}
    return [Question(task, item, tuple(ids), length) for item, ids in prompts.items()], decoding


def _decoding(study: Study, task: str, method: str, commit: str, *sources: Source) -> Decoding:
    """The Decoding of the accuracy tables."""
    asked = Decoding(commit=commit, feedback=method, max_new_tokens=study.max_new_tokens)
    return study.recipe.settled(asked, task, [*sources, study.own])
