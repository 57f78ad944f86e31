"""One answer: a request with its own Decoding, while it is decoded and when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from softdlm.decoding import Decoding
from softdlm.feedback import mixture_of
from softdlm.models.denoiser import Denoiser
from softdlm.models.tokenizer import words_of
from softdlm.trace import Candidates, RowRecord, Seen, Trace, candidates_of, committed_candidates
from softdlm.types import Step

OnText = Callable[[int, str], None]
"""Called with a request's number and the next piece of its text; what was sent never changes."""
OnPass = Callable[["Answer", Candidates], None]
"""Called after each pass of an answer's row, with the candidates at the positions that are still open."""
FinishReason = Literal["eos", "stop", "length", "deadline", "cancelled"]


@dataclass(frozen=True)
class Generation:
    text: str
    ids: list[int]
    """New tokens up to EOS."""
    canvas_ids: list[int]
    """All `max_new_tokens` of them."""
    forwards: int
    finish_reason: FinishReason
    trace: Trace

    @property
    def tokens_per_forward(self) -> float:
        return len(self.ids) / max(self.forwards, 1)


@dataclass(eq=False)
class Answer:
    """One request. Its number and its Decoding's seed decide its random draws."""

    model: Denoiser
    request: int
    prompt_ids: list[int]
    decoding: Decoding
    """Settled."""
    on_text: OnText | None = None
    record_candidates: bool = False
    seconds: float | None = None
    """Time limit, counted from the submission; then the answer ends with what was committed."""
    given: list[int] | None = None
    """The whole canvas before the first pass, with [MASK] where it is open; None: the prompt, then [MASK]s.

    It begins with `prompt_ids`, and `max_new_tokens` of its positions are the answer.
    """
    on_pass: OnPass | None = None
    alternatives: bool = False
    """Whether to keep what else could have been committed at each position."""
    generation: Generation | None = None
    """The result, once the answer is over."""
    error: Exception | None = None
    """Why there is no result."""
    stopped: bool = False
    canvas_ids: list[int] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    """With `record_candidates`: what each pass predicted."""
    moments: list[float] = field(default_factory=list)
    """With `record_candidates`: when decoding began, and when each pass was read."""
    at_commit: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """With `alternatives`: for each committed position of the canvas, (id, probability) of the best tokens."""
    passes: int = 0
    """Passes that the row has taken part in, as of the last one that was read."""
    history: RowRecord | None = None
    """Once the answer is over: when each position was committed, and how surely."""
    _sent: str = ""
    _heard: list[int] | None = None

    @property
    def max_new_tokens(self) -> int:
        assert self.decoding.max_new_tokens is not None
        return self.decoding.max_new_tokens

    @property
    def length(self) -> int:
        """Length of the canvas; LLaDA-2's ends with a whole block, as its reference has it."""
        if self.given is not None:
            return len(self.given)
        total = len(self.prompt_ids) + self.max_new_tokens
        block = self.decoding.block_length if self.model.blocks_from_zero else None
        return total if block is None else -(-total // block) * block

    @property
    def start(self) -> list[int]:
        """The canvas before the first pass."""
        masks = [self.model.mask_id] * (self.length - len(self.prompt_ids))
        return [*self.prompt_ids, *masks] if self.given is None else self.given

    @property
    def given_tokens(self) -> int:
        """Positions that hold a token from the start."""
        return self.length - self.start.count(self.model.mask_id)

    @property
    def speaks(self) -> bool:
        """Whether the text matters while it grows."""
        return bool(self.decoding.stop or self.on_text or self.on_pass)

    @property
    def watched(self) -> bool:
        """Whether every pass is to be read."""
        return self.speaks or self.record_candidates or self.alternatives

    @property
    def over(self) -> bool:
        return self.generation is not None or self.error is not None

    def begin(self) -> None:
        """Its row is taken: the first pass comes next."""
        self.moments = [time.perf_counter()]

    def record(self, step: Step, row: int) -> None:
        """Keep, or pass on, the candidates of a pass that this answer's row took part in."""
        if not (self.record_candidates or self.on_pass or self.alternatives) or not bool(step.active[row].any()):
            return
        if self.alternatives:
            self.at_commit.update(zip(*committed_candidates(step, row), strict=True))
        if self.record_candidates:
            self.seen.append(Seen.of(step, row))
            self.moments.append(time.perf_counter())
        if self.on_pass:
            self.on_pass(self, candidates_of(step, row))

    def listen(self, canvas_row: Sequence[int]) -> None:
        """Read the row of the canvas after a pass; look for stop strings, pass on what can no longer change."""
        self.canvas_ids = list(canvas_row[len(self.prompt_ids) : self.length])
        if not self.speaks or self.ids == self._heard:
            return
        self._heard = self.ids
        text = self.text
        self.stopped = any(stop in text for stop in self.decoding.stop)
        if not self.stopped:
            self._send(hold_back(text, self.decoding.stop))

    @property
    def ids(self) -> list[int]:
        """The longest committed prefix of the answer, up to EOS."""
        ends = {*self.model.eos_ids, self.model.mask_id}
        limit = self.canvas_ids[: self.max_new_tokens]
        return limit[: next((index for index, token in enumerate(limit) if token in ends), len(limit))]

    @property
    def text(self) -> str:
        return "" if self.model.tokenizer is None else self.model.tokenizer.decode(self.ids, skip_special_tokens=True)

    def finish(self, record: RowRecord, ended: FinishReason | None = None) -> None:
        """The answer is over: a row has closed, or the request ended before that."""
        self.canvas_ids, self.history = record.ids[len(self.prompt_ids) : self.length], record
        ids, text, stops = self.ids, self.text, self.decoding.stop
        cut = min([text.find(stop) for stop in stops if stop in text], default=len(text))
        reason = "stop" if cut < len(text) else ended or ("eos" if len(ids) < self.max_new_tokens else "length")
        self._send(text[:cut])
        trace = self._trace(record)
        canvas = trace.replay()[: self.max_new_tokens]
        self.generation = Generation(text[:cut], ids, canvas, len(trace.passes), reason, trace)

    def _trace(self, record: RowRecord) -> Trace:
        model, begun, moments = self.model, len(self.prompt_ids), self.moments
        made = Trace(
            self.prompt_ids, self.length, model.mask_id, next(iter(model.eos_ids), model.mask_id),
            record.passes(self.seen), model.source.name, self.decoding.to_json(),
            fixed=[(i, t) for i, t in enumerate(self.start[begun:], begun) if t != model.mask_id],
            eos_ids=list(model.eos_ids), mixture=mixture_of(self.decoding.rules[1]),
            seconds=[round(after - before, 5) for before, after in pairwise(moments)],
        )  # fmt: skip
        if not self.record_candidates or model.tokenizer is None:
            return made
        pieces = {token: model.tokenizer.decode([token]) for token in sorted(made.tokens())}
        return replace(made, prompt=words_of(model.tokenizer, self.prompt_ids), pieces=pieces)

    def end_unseen(self, ended: FinishReason) -> None:
        """Over before its first pass."""
        ids = list(self.start)
        self.finish(RowRecord(ids, [0] * len(ids), [0.0] * len(ids), 0), ended)

    def _send(self, text: str) -> None:
        if self.on_text and len(text) > len(self._sent):
            self.on_text(self.request, text[len(self._sent) :])
            self._sent = text


def hold_back(text: str, stops: Sequence[str]) -> str:
    """The part of a growing text that cannot change any more.

    Half a UTF-8 character shows as U+FFFD at the end, and half a stop string may yet become a whole one.
    """
    text = text.rstrip("\ufffd")
    longest = max((len(stop) for stop in stops), default=1) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return text[:-size]
    return text
