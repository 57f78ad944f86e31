"""Problems of a user's own, from a file of JSON Lines with `prompt`, `answer` and, optionally, `id`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from softdlm.decoding import EosPolicy
from softdlm.errors import UsageError
from softdlm.evaluate.cell import TaskSpec
from softdlm.evaluate.extract import last_number, plain_number
from softdlm.evaluate.task import as_user_turns, check_tokenizer
from softdlm.models.denoiser import Denoiser
from softdlm.models.load import Checkpoint
from softdlm.records.canonical import digest
from softdlm.records.objects import known_fields, read_objects, text_field
from softdlm.tasks.consistency import CONSISTENT, true_equations

VERSION = 1
"""Of the score: raise it when a verdict on the same text changes."""


@dataclass(frozen=True)
class Problem:
    """A line of the file; the prompt is one user turn."""

    id: str
    prompt: str
    answer: str
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileTask:
    """The problems of a file. The length of an answer is left to the checkpoint."""

    items: tuple[Problem, ...]
    max_new_tokens: None = None
    eos: EosPolicy = "allow"

    @staticmethod
    def of(spec: TaskSpec, model: Checkpoint | Denoiser) -> FileTask:
        """The first `limit` problems; all lines are checked."""
        check_tokenizer(spec, model)
        found = [_problem(place, line, number) for number, (place, line) in enumerate(read_objects(spec.name), 1)]
        chosen = found[: spec.limit]
        prompts = as_user_turns(model, [each.prompt for each in chosen])
        pairs = zip(chosen, prompts, strict=True)
        return FileTask(tuple(Problem(each.id, prompt, each.answer) for each, prompt in pairs))

    def score(self, item: Problem, text: str) -> dict[str, Any]:
        correct = agrees(item.answer, text)
        reason = "solved" if correct else "wrong" if text.strip() else "empty"
        return {"correct": correct, "reason": reason, CONSISTENT: true_equations(text)}

    def protocol(self) -> dict[str, Any]:
        references = [[item.id, item.answer] for item in self.items]
        return {"name": "file", "version": VERSION, "references": digest(references)}


def agrees(answer: str, text: str) -> bool:
    """Whether a text gives the answer: of a number its last number, else itself or its last line that is not empty.

    White space and case do not count.
    """
    if (wanted := _number(answer)) is not None:
        return _number(last_number(text)) == wanted
    lines = [line for line in text.splitlines() if line.strip()]
    return _plain(answer) in {_plain(text), _plain(lines[-1] if lines else "")}


def _number(text: str) -> Decimal | None:
    """A number as people write it, such as 1,200 or $3.50; None for any other text."""
    try:
        found = Decimal(plain_number(text.strip()))
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _problem(place: str, line: Mapping[str, Any], number: int) -> Problem:
    known_fields(place, line, "prompt", "answer", "id")
    item = text_field(place, line, "id", str(number))
    if not item.strip():
        raise UsageError(f"{place}: 'id' must not be empty: leave it out or name the problem")
    return Problem(item, text_field(place, line, "prompt"), _answer(place, line))


def _answer(place: str, line: Mapping[str, Any]) -> str:
    value = line.get("answer")
    if type(value) is int or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if not isinstance(value, str):
        raise UsageError(f"{place}: 'answer' must be a text or a number, not {value!r}")
    return text_field(place, line, "answer")
