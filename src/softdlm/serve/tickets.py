"""One answer of a request, seen from the event loop: what arrived and was not yet read.

A reader that is slow costs nothing: text is joined, and of drafts only the newest is kept.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from softdlm.engine.answer import Answer
from softdlm.serve.refusals import Refusal

OPEN = "░"
"""Stands in a draft for an open position of which nothing was predicted."""


class News(NamedTuple):
    """What happened to an answer since it was last looked at."""

    text: str = ""
    """The next piece of the text, which will not change any more."""
    tokens: int = 0
    """Tokens of the committed text so far."""
    passes: int = 0
    draft: str | None = None
    """The whole text as it stands, open positions by their best candidates."""
    progress: float = 0.0
    """Share of the canvas that is committed."""
    over: bool = False

    def then(self, later: News) -> News:
        """Both as one."""
        draft = self.draft if later.draft is None else later.draft
        return later._replace(text=self.text + later.text, draft=draft, over=self.over or later.over)


@dataclass(eq=False)
class Ticket:
    """An answer from its request's arrival to its end. The event loop reads `news`; the engine's thread the rest."""

    answer: Answer
    name: str
    """Of the request, in the log."""
    bell: asyncio.Event
    """Rings when there are news; shared by the tickets of one request."""
    arrived: float
    deadline: float
    """When the answer ends at the latest; like all times, by the clock of the engine's thread."""
    news: News = field(default_factory=News)
    began: float | None = None
    """When decoding began."""
    first_text: float | None = None
    ended: float | None = None
    refusal: Refusal | None = None
    """Why there is no answer."""
    recorded: int = 0
    """Host memory that its trace may take."""

    def hear(self, news: News) -> None:
        """More news; on the event loop."""
        self.news = self.news.then(news)
        self.bell.set()

    def take(self) -> News:
        """What is new, once; the counts and the end stay."""
        taken, self.news = self.news, self.news._replace(text="", draft=None)
        return taken


def draft_of(answer: Answer, best: dict[int, int]) -> tuple[str, float]:
    """The answer's text with open positions as their best candidates, and the share that is committed."""
    mask, begun = answer.model.mask_id, len(answer.prompt_ids)
    canvas = answer.canvas_ids[: answer.max_new_tokens]
    drafted = [best.get(begun + place, mask) if token == mask else token for place, token in enumerate(canvas)]
    end = next((place for place, token in enumerate(drafted) if token in answer.model.eos_ids), len(drafted))
    committed = sum(token != mask for token in canvas)
    return _spelled(answer, drafted[:end]), committed / max(len(canvas), 1)


def _spelled(answer: Answer, ids: list[int]) -> str:
    mask, decode = answer.model.mask_id, answer.model.tokenizer.decode
    text, run = "", []
    for token in [*ids, mask]:
        if token != mask:
            run.append(token)
            continue
        text += (decode(run, skip_special_tokens=True) if run else "") + OPEN
        run = []
    return text[: -len(OPEN)]
