"""What is answered: OpenAI's objects, with passes in the usage and an object `softdlm` beside each choice."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from softdlm.engine.answer import Answer, Generation
from softdlm.report.player.marks import marked
from softdlm.serve.refusals import Refusal
from softdlm.serve.tickets import Ticket

REASONS = {"eos": "stop", "stop": "stop"}
"""Ours -> OpenAI's finish reason; an answer that was cut short for any other reason ended by `length`."""
LEAST_LOGPROB = -9999.0
"""What OpenAI writes for a token that could not have been chosen."""


@dataclass(frozen=True)
class Call:
    """One request that was accepted, and how its answers are to be written."""

    model: str
    prefix: str
    """Of its id: `chatcmpl`, `cmpl` or `denoise`."""
    name: str
    tickets: Sequence[Ticket]
    logprobs: int | None = None
    """How many candidates are told beside each token's log-probability; None: no log-probabilities."""
    extras: dict[str, bool] = field(default_factory=dict)
    usage_at_end: bool = True
    usage_always: bool = False
    created: int = field(default_factory=lambda: int(time.time()))
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def chat(self) -> bool:
        return self.prefix == "chatcmpl"

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": f"{self.prefix}-{self.id}", "object": kind, "created": self.created, "model": self.model}


def made_by(ticket: Ticket) -> Generation:
    """The answer, or the Refusal of it."""
    if ticket.refusal is not None:
        raise ticket.refusal
    if ticket.answer.generation is None:
        raise Refusal(500, "the request ended without an answer", code="internal_error")
    return ticket.answer.generation


def body(call: Call) -> dict[str, Any]:
    """The whole answer to a request that is not streamed."""
    kind = "chat.completion" if call.chat else "text_completion"
    return {**call.head(kind), "choices": [choice(call, *each) for each in enumerate(call.tickets)],
            "usage": usage(call)}  # fmt: skip


def choice(call: Call, index: int, ticket: Ticket) -> dict[str, Any]:
    made = made_by(ticket)
    if call.chat:
        said: dict[str, Any] = {"message": {"role": "assistant", "content": made.text, "refusal": None}}
    else:
        said = {"text": made.text}
    logprobs = None if call.logprobs is None else logprobs_of(call, ticket.answer, made)
    return {"index": index, **said, "logprobs": logprobs, **ending(call, ticket)}


def ending(call: Call, ticket: Ticket) -> dict[str, Any]:
    """How an answer ended, and what was asked for besides its text."""
    made = made_by(ticket)
    ours: dict[str, Any] = {"finish_reason": made.finish_reason, "passes": made.forwards}
    ours["canvas_length"] = ticket.answer.max_new_tokens
    if ticket.answer.decoding.temperature:
        ours["seed"] = ticket.answer.decoding.seed
    if call.extras.get("order"):
        ours["order"] = order_of(ticket.answer, len(made.ids))
    if call.extras.get("trace"):
        ours["trace"] = marked(made.trace).to_json()
    return {"finish_reason": REASONS.get(made.finish_reason, "length"), "softdlm": ours}


def order_of(answer: Answer, count: int | None = None) -> list[int]:
    """The pass that committed each token, from 1; 0 for one that was given, or never committed."""
    assert answer.history is not None
    begun = len(answer.prompt_ids)
    return answer.history.committed_in[begun : answer.length][:count]


def usage(call: Call) -> dict[str, Any]:
    """Tokens and passes of all answers so far; each prompt counts once."""
    prompts = {tuple(each.answer.prompt_ids): each.answer.given_tokens for each in call.tickets}
    tokens, passes = (sum(getattr(each.news, name) for each in call.tickets) for name in ("tokens", "passes"))
    asked = sum(prompts.values())
    return {
        "prompt_tokens": asked,
        "completion_tokens": tokens,
        "total_tokens": asked + tokens,
        "passes": passes,
        "tokens_per_pass": round(tokens / max(passes, 1), 4),
    }


def logprobs_of(call: Call, answer: Answer, made: Generation) -> dict[str, Any]:
    """Each token's log-probability in the pass that committed it, and those of its best candidates."""
    assert answer.history is not None
    begun, pieces = len(answer.prompt_ids), [piece(answer, token) for token in made.ids]
    sure = [_log(p) for p in answer.history.confidence[begun : begun + len(made.ids)]]
    others = [answer.at_commit.get(begun + place, [])[: call.logprobs] for place in range(len(made.ids))]
    best = [[(piece(answer, token), _log(p)) for token, p in each] for each in others]
    if call.chat:
        rows = zip(pieces, sure, best, strict=True)
        told = [{**_token(text, value), "top_logprobs": [_token(*each) for each in top]} for text, value, top in rows]
        return {"content": told, "refusal": None}
    starts = [sum(map(len, pieces[:place])) for place in range(len(pieces))]
    return {
        "tokens": pieces,
        "token_logprobs": sure,
        "text_offset": starts,
        "top_logprobs": [dict(top) for top in best],
    }


def piece(answer: Answer, token: int) -> str:
    """One token as text; half a character shows as U+FFFD."""
    return answer.model.tokenizer.decode([token])


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": None if "\ufffd" in text else list(text.encode())}


def _log(probability: float) -> float:
    return max(math.log(probability), LEAST_LOGPROB) if probability > 0 else LEAST_LOGPROB


def denoised(call: Call) -> dict[str, Any]:
    """The answer to /v1/denoise: the closed canvas, and when each position was committed."""
    ticket = call.tickets[0]
    made, answer = made_by(ticket), ticket.answer
    ids = [*answer.prompt_ids, *made.canvas_ids]
    text = None if answer.model.tokenizer is None else answer.model.tokenizer.decode(ids, skip_special_tokens=True)
    pieces = None if answer.model.tokenizer is None else [piece(answer, token) for token in ids]
    given = [0] * len(answer.prompt_ids)
    extra = ending(call, ticket)
    extra["softdlm"].pop("order", None)
    return {**call.head("denoise"), "canvas": ids, "pieces": pieces, "text": text,
            "order": [*given, *order_of(answer)], **extra, "usage": usage(call)}  # fmt: skip
