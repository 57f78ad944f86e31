"""Prompts to decode, for the analyses that watch a decode or read its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from softdlm.analysis.completions import Completion
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.generation import Generation, generate
from softdlm.models.denoiser import Denoiser
from softdlm.records.objects import known_fields, read_objects, text_field
from softdlm.tasks import load_task


@dataclass(frozen=True)
class Question:
    task: str
    item: str
    prompt: str | Sequence[int]
    """Text, a user's turn; or ids."""
    max_new_tokens: int
    chat: bool = True
    """Whether a text stands inside the chat template."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise UsageError(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")


def task_questions(
    name: str, size: int | None = None, split: str = "test", max_new_tokens: int | None = None, chat: bool = True
) -> list[Question]:
    """The first `size` items of a built-in task."""
    try:
        task = load_task(name, size=size, split=split)
    except ValueError as error:
        raise UsageError(str(error)) from error
    length = task.max_new_tokens if max_new_tokens is None else max_new_tokens
    return [Question(name, item.id, item.prompt, length, chat) for item in task]


def read_questions(path: str | Path, max_new_tokens: int | None, chat: bool = True) -> list[Question]:
    """Own prompts, one JSON object a line: prompt, and where wanted an id."""
    if max_new_tokens is None:
        raise UsageError(f"prompts of your own ({path}) need max_new_tokens, the length of the answer's canvas")
    found = []
    for number, (place, line) in enumerate(read_objects(path)):
        known_fields(place, line, "prompt", "id")
        item = text_field(place, line, "id", str(number))
        found.append(Question(Path(path).stem, item, text_field(place, line, "prompt"), max_new_tokens, chat))
    return found


def batches(questions: Sequence[Question], size: int) -> Iterator[list[Question]]:
    """In order; a batch has one task, one length of answer, and one wording (chat template or raw text)."""
    if size < 1:
        raise UsageError(f"batch_size must be at least 1, not {size}")
    for _, group in groupby(questions, key=lambda each: (each.task, each.max_new_tokens, each.chat)):
        same = list(group)
        yield from (same[start : start + size] for start in range(0, len(same), size))


def decode(model: Denoiser, batch: Sequence[Question], decoding: Decoding, **keywords: Any) -> list[Generation]:
    """Answers to one batch, as long as its questions ask for; `keywords` are those of `generate`."""
    how = {"decoding": replace(decoding, max_new_tokens=batch[0].max_new_tokens), "chat": batch[0].chat}
    return generate(model, [question.prompt for question in batch], batch_size=len(batch), **how, **keywords)


def complete(model: Denoiser, batch: Sequence[Question], decoding: Decoding) -> list[Completion]:
    """The model's own answers as contexts; an answer that ended by EOS keeps it visible."""
    found = []
    for question, made in zip(batch, decode(model, batch, decoding), strict=True):
        tail = made.canvas_ids[len(made.ids) :][:1]
        found.append(Completion(question.task, question.item, made.trace.prompt_ids, made.ids, tail))
    return found
