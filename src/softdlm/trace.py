"""A decode as a list of commits: small, JSON, and enough to replay it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Bool
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.records.files import read_json, write_text
from softdlm.types import Step

VERSION = 1


@dataclass(frozen=True)
class Pass:
    """What one forward pass did to one row; positions count from the start of the canvas, prompt included."""

    positions: list[int]
    tokens: list[int]
    confidence: list[float]
    open: list[int] = field(default_factory=list)
    """Positions still open afterwards, where candidates were recorded."""
    candidates: list[list[tuple[int, float]]] = field(default_factory=list)
    """For each of these positions, (id, probability) of the best tokens."""


Candidates = tuple[list[int], list[list[tuple[int, float]]]]
"""Positions of one pass and, for each, (id, probability) of the best tokens."""


def candidates_of(step: Step, row: int) -> Candidates:
    """What one row of a pass leaves open, read off the device."""
    return _candidates(step, row, step.requested[row] & step.canvas.open[row])


def committed_candidates(step: Step, row: int) -> Candidates:
    """What one row of a pass commits, and what else could have stood there."""
    return _candidates(step, row, step.committed[row])


def _candidates(step: Step, row: int, chosen: Bool[Tensor, "L"]) -> Candidates:
    where, prediction = chosen.nonzero().flatten(), step.prediction
    options = zip(prediction.topk_ids[row][where].tolist(), prediction.topk_probs[row][where].tolist(), strict=True)
    return where.tolist(), [[(i, round(p, 6)) for i, p in zip(ids, ps, strict=True)] for ids, ps in options]


class RowRecord(NamedTuple):
    """A row of the canvas with its history, as it was read from the device."""

    ids: list[int]
    committed_in: list[int]
    """For each position, the number of the row's pass that committed it, from 1; 0: not committed."""
    confidence: list[float]
    """For each position, the confidence at its commit."""
    forwards: int
    """Passes that the row took part in."""

    def passes(self, candidates: Sequence[Candidates] = ()) -> list[Pass]:
        """What each pass committed, with the candidates that were recorded after it."""
        recorded = candidates or [([], []) for _ in range(self.forwards)]
        passes = [Pass([], [], [], *each) for each in recorded]
        for position, number in enumerate(self.committed_in):
            if number:
                made = passes[number - 1]
                made.positions.append(position)
                made.tokens.append(self.ids[position])
                made.confidence.append(round(self.confidence[position], 6))
        return passes


@dataclass(frozen=True)
class Trace:
    """The history of one answer."""

    prompt_ids: list[int]
    length: int
    """Length of the canvas, prompt included."""
    mask_id: int
    fill_id: int
    """What stands at positions that an early finish left open."""
    passes: list[Pass]
    model: str = ""
    method: dict[str, Any] = field(default_factory=dict)
    """The Decoding, as JSON."""
    fixed: list[tuple[int, int]] = field(default_factory=list)
    """(position, token) of what stood behind the first open position from the start: a canvas with gaps."""

    def frames(self) -> Iterator[list[int]]:
        """The canvas before the first pass and after each one."""
        canvas = [*self.prompt_ids, *[self.mask_id] * (self.length - len(self.prompt_ids))]
        for position, token in self.fixed:
            canvas[position] = token
        yield list(canvas)
        for step in self.passes:
            for position, token in zip(step.positions, step.tokens, strict=True):
                canvas[position] = token
            yield list(canvas)

    def replay(self) -> list[int]:
        """The answer's canvas after the last pass, filled as the decode filled it."""
        *_, final = self.frames()
        return [self.fill_id if token == self.mask_id else token for token in final[len(self.prompt_ids) :]]

    def to_json(self) -> dict[str, Any]:
        return {"softdlm_trace": VERSION, **asdict(self)}

    def save(self, path: str | Path) -> None:
        """Write the trace as JSON, whole or not at all."""
        write_text(Path(path), json.dumps(self.to_json()))

    @staticmethod
    def load(path: str | Path) -> Trace:
        try:
            data: dict[str, Any] = read_json(Path(path))
            version = data.pop("softdlm_trace")
            found = Trace._read(data) if version == VERSION else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path} is not a trace saved by softdlm") from error
        if found is None:
            raise UsageError(f"{path} is a trace of version {version}; this softdlm reads version {VERSION}")
        return found

    @staticmethod
    def _read(data: dict[str, Any]) -> Trace:
        passes = [
            Pass(**{**step, "candidates": [[(i, p) for i, p in c] for c in step["candidates"]]})
            for step in data.pop("passes")
        ]
        fixed = [(position, token) for position, token in data.pop("fixed", [])]
        return Trace(passes=passes, fixed=fixed, **data)
