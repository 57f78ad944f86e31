"""What a server compiles before it is ready, so that usual requests are fast from the first one on."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from softdlm.decoding import Decoding, settle
from softdlm.engine.answer import Answer
from softdlm.engine.census import rounded
from softdlm.engine.pick_engine import pick_engine
from softdlm.engine.plan import Plan
from softdlm.engine.queue import Engine
from softdlm.errors import SoftDLMError, UsageError
from softdlm.models.denoiser import Denoiser

SECONDS = 120.0
"""No further shape is compiled after so long. torch keeps what it compiled on disk, so the next start comes further."""


def warm_start(engine: Engine, lengths: Sequence[int]) -> None:
    """Compile the passes of the Decoding that a request gets which names none, where `auto` would compile them.

    `lengths` are those of prompt and answer together. Each is decoded for two passes by one row, then by two, and so on
    up to the engine's rows.
    """
    model, decoding = engine.model, settle(engine.model, None, {})
    cases = list(cases_of(model, engine.batch_size, lengths))
    if not cases:
        return
    if pick_engine(Plan.of(model, decoding), engine.engine) != "auto":
        say("--warm: nothing is compiled here, because only engine auto on a GPU compiles at the start")
        return
    began, done, stopped = engine.clock(), 0, ""
    say(f"compiling passes for {len(cases)} sizes of batch and canvas, in {SECONDS:g} s at most")
    with model.expecting(math.inf):
        for rows, length in cases:
            if engine.clock() - began >= SECONDS:
                stopped = "; the others are compiled once requests have come back to them often enough"
                break
            try:
                decode_some(engine, decoding, rows, length)
            except SoftDLMError as error:
                stopped = f"; then: {error}"
                break
            done += 1
    say(f"compiled {done} of them in {engine.clock() - began:.0f} s{stopped}")


def cases_of(model: Denoiser, most: int, lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Rows and canvas lengths, as the engine rounds them; those of a single row first."""
    limit = model.max_length or sys.maxsize
    if beyond := [each for each in lengths if each > limit]:
        raise UsageError(f"--warm {beyond[0]}: the model's context is {limit} tokens, prompt and answer together")
    sizes = [min(1 << power, most) for power in range((most - 1).bit_length() + 1)]
    yield from ((rows, length) for rows in sizes for length in sorted(set(map(rounded, lengths))))


def decode_some(engine: Engine, decoding: Decoding, rows: int, length: int) -> None:
    """A pass, which compiles the shape, and one more, which captures it.

    A canvas is a position shorter than its slots: so it is padded, as most requests' are.
    """
    model = engine.model
    total = min(length - 1, model.max_length or length)
    new = min(decoding.max_new_tokens or 0, total - 1)
    token = next(each for each in range(len(model.embedding)) if each not in (model.mask_id, *model.eos_ids))
    how = replace(decoding, max_new_tokens=new)
    answers = [Answer(model, row, [token] * (total - new), how) for row in range(rows)]
    for answer in answers:
        engine.submit(answer)
    for _ in range(2):
        if engine.busy:
            engine.step()
    for answer in answers:
        engine.cancel(answer)
        if answer.error is not None:
            raise answer.error


def say(text: str) -> None:
    print(f"softdlm: {text}", file=sys.stderr, flush=True)
