"""A conversation with a model: what was said, and the next answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from softdlm.chat.method import Method
from softdlm.decoding import Decoding
from softdlm.engine.answer import Answer, Generation
from softdlm.engine.queue import Engine, OnStep
from softdlm.errors import TokenizerError, UsageError
from softdlm.generation import encode
from softdlm.models.denoiser import Denoiser


@dataclass(frozen=True)
class Turn:
    """A question with its answer."""

    question: str
    answer: Generation
    seconds: float

    @property
    def kept(self) -> bool:
        """Whether it is part of the conversation: an answer that was stopped before there was any text is not."""
        return bool(self.answer.text) or self.answer.finish_reason != "cancelled"


def never() -> bool:
    return False


def check_talks(model: Denoiser, raw: bool) -> None:
    """Refuse a model that cannot take part in a conversation."""
    name = model.source.name
    if model.tokenizer is None:
        raise TokenizerError(f"{name} has no tokenizer, which a conversation needs: use softdlm generate --ids")
    if not raw and not getattr(model.tokenizer, "chat_template", None):
        raise TokenizerError(f"{name} has no chat template: add --raw, by which each line is a raw text of its own")


@dataclass
class Conversation:
    """Questions and answers in turn. A question that fails leaves everything as it was."""

    model: Denoiser
    method: Method
    remembers: bool = True
    """Whether the model is given the turns before; else each question stands alone."""
    raw: bool = False
    """Whether a question is the text itself, without the chat template."""
    system: str | None = None
    turns: list[Turn] = field(default_factory=list)
    latest: list[Generation] = field(default_factory=list)
    """What was decoded last: an answer, or those of a comparison."""

    def __post_init__(self) -> None:
        check_talks(self.model, self.raw)

    def ask(self, question: str, on_step: OnStep | None = None, stopped: Callable[[], bool] = never) -> Turn:
        """The next turn. When `stopped` says so, the answer ends with what is committed from its start."""
        turn = self._decoded(question, self.turns, self.method.settled(self.model), on_step, stopped)
        self.latest = [turn.answer]
        if turn.kept:
            self.turns.append(turn)
        return turn

    def again(self, method: Method, on_step: OnStep | None = None, stopped: Callable[[], bool] = never) -> Turn:
        """The last question with another method; the conversation stays as it is."""
        if not self.turns:
            raise UsageError("nothing has been asked yet: ask a question first")
        *before, last = self.turns
        return self._decoded(last.question, before, method.settled(self.model), on_step, stopped)

    def reset(self) -> None:
        self.turns.clear()

    def prompt(self, question: str, before: list[Turn]) -> str | list[Mapping[str, str]]:
        """The question with what was said before it, as `generate` takes it."""
        if self.raw:
            return question
        start = [] if self.system is None else [{"role": "system", "content": self.system}]
        said = [
            {"role": role, "content": text}
            for turn in (before if self.remembers else ())
            for role, text in (("user", turn.question), ("assistant", turn.answer.text))
        ]
        return [*start, *said, {"role": "user", "content": question}]

    def _decoded(
        self, question: str, before: list[Turn], decoding: Decoding, on_step: OnStep | None, stopped: Any
    ) -> Turn:
        ids = encode(self.model, self.prompt(question, before), chat=not self.raw)
        answer = Answer(self.model, 0, ids, decoding, record_candidates=True)
        began = time.perf_counter()
        with Engine(self.model, batch_size=1, on_step=on_step) as engine:
            engine.submit(answer)
            while not answer.over:
                engine.cancel(answer) if stopped() else engine.step()
        if answer.error is not None:
            raise answer.error
        assert answer.generation is not None
        return Turn(question, answer.generation, time.perf_counter() - began)
