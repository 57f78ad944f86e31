"""One answer: while it is decoded, and when it is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from softdlm.decoding import Decoding
from softdlm.models.denoiser import Denoiser
from softdlm.trace import Pass, RowRecord, Trace

OnText = Callable[[int, str], None]
"""Called with a request's number and the next piece of its text; what was sent never changes."""


@dataclass(frozen=True)
class Generation:
    text: str
    ids: list[int]
    """New tokens up to EOS."""
    canvas_ids: list[int]
    """All `max_new_tokens` of them."""
    forwards: int
    finish_reason: Literal["eos", "stop", "length"]
    trace: Trace

    @property
    def tokens_per_forward(self) -> float:
        return len(self.ids) / self.forwards


@dataclass
class Answer:
    """One request while it is being decoded."""

    model: Denoiser
    request: int
    prompt_ids: list[int]
    decoding: Decoding
    on_text: OnText | None
    record_candidates: bool
    passes: list[Pass] = field(default_factory=list)
    canvas_ids: list[int] = field(default_factory=list)
    sent: str = ""
    stopped: bool = False

    @property
    def max_new_tokens(self) -> int:
        assert self.decoding.max_new_tokens is not None
        return self.decoding.max_new_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        return self.decoding.stop

    @property
    def length(self) -> int:
        """Length of the canvas; LLaDA-2's ends with a whole block, as its reference has it."""
        total = len(self.prompt_ids) + self.max_new_tokens
        block = self.decoding.block_length if self.model.blocks_from_zero else None
        return total if block is None else -(-total // block) * block

    @property
    def speaks(self) -> bool:
        """Whether the text matters while it grows."""
        return bool(self.stops or self.on_text)

    def take(self, record: RowRecord) -> None:
        """All passes at once, from slots that nobody watched."""
        self.passes = record.passes
        self.listen(record.ids)

    def listen(self, canvas_row: list[int]) -> None:
        """Read the row of the canvas after a pass; look for stop strings, pass on what can no longer change."""
        self.canvas_ids = canvas_row[len(self.prompt_ids) : self.length]
        if not self.speaks:
            return
        text = self.text
        self.stopped = any(stop in text for stop in self.stops)
        if not self.stopped:
            self._send(hold_back(text, self.stops))

    @property
    def ids(self) -> list[int]:
        """The longest committed prefix of the answer, up to EOS."""
        ends = {*self.model.eos_ids, self.model.mask_id}
        limit = self.canvas_ids[: self.max_new_tokens]
        return limit[: next((index for index, token in enumerate(limit) if token in ends), len(limit))]

    @property
    def text(self) -> str:
        return "" if self.model.tokenizer is None else self.model.tokenizer.decode(self.ids, skip_special_tokens=True)

    def result(self) -> Generation:
        ids, text = self.ids, self.text
        cut = min([text.find(stop) for stop in self.stops if stop in text], default=len(text))
        self._send(text[:cut])
        fill = next(iter(self.model.eos_ids), self.model.mask_id)
        closed = [fill if token == self.model.mask_id else token for token in self.canvas_ids]
        reason = "stop" if cut < len(text) else "eos" if len(ids) < self.max_new_tokens else "length"
        trace = Trace(
            self.prompt_ids,
            self.length,
            self.model.mask_id,
            fill,
            self.passes,
            self.model.source.name,
            self.decoding.to_json(),
        )
        return Generation(text[:cut], ids, closed[: self.max_new_tokens], len(self.passes), reason, trace)

    def _send(self, text: str) -> None:
        if self.on_text and len(text) > len(self.sent):
            self.on_text(self.request, text[len(self.sent) :])
            self.sent = text


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
