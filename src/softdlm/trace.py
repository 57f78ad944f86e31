"""A decode as a list of commits: small, JSON, and enough to replay it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from softdlm.errors import UsageError
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
    """Of each of these, (id, probability) of the best tokens."""

    @staticmethod
    def of(step: Step, row: int, candidates: bool = False) -> Pass:
        where = step.committed[row]
        committed = step.prediction.at(step.committed & _only(step, row))
        still = step.requested & step.canvas.open & _only(step, row)
        if not candidates:
            still = still & False
        open = step.prediction.at(still)
        pairs = zip(open.topk_ids.tolist(), open.topk_probs.tolist(), strict=True)
        return Pass(
            positions=where.nonzero().flatten().tolist(),
            tokens=committed.token.tolist(),
            confidence=[round(value, 6) for value in committed.confidence.tolist()],
            open=still[row].nonzero().flatten().tolist(),
            candidates=[
                [(token, round(share, 6)) for token, share in zip(ids, shares, strict=True)] for ids, shares in pairs
            ],
        )


@dataclass(frozen=True)
class Trace:
    """The history of one answer."""

    prompt_ids: list[int]
    length: int
    """Of the canvas, prompt included."""
    mask_id: int
    fill_id: int
    """What stands at positions that an early finish left open."""
    passes: list[Pass]
    model: str = ""
    method: dict[str, str] = field(default_factory=dict)

    def frames(self) -> Iterator[list[int]]:
        """The canvas before the first pass and after each one."""
        canvas = [*self.prompt_ids, *[self.mask_id] * (self.length - len(self.prompt_ids))]
        yield list(canvas)
        for step in self.passes:
            for position, token in zip(step.positions, step.tokens, strict=True):
                canvas[position] = token
            yield list(canvas)

    def replay(self) -> list[int]:
        """The answer's canvas after the last pass, filled as the decode filled it."""
        *_, final = self.frames()
        return [self.fill_id if token == self.mask_id else token for token in final[len(self.prompt_ids) :]]

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps({"softdlm_trace": VERSION, **asdict(self)}))

    @staticmethod
    def load(path: str | Path) -> Trace:
        try:
            data: dict[str, Any] = json.loads(Path(path).read_text())
            version = data.pop("softdlm_trace")
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is not a trace saved by softdlm") from error
        if version != VERSION:
            raise UsageError(f"{path} is a trace of version {version}; this softdlm reads version {VERSION}")
        passes = [
            Pass(**{**step, "candidates": [[(i, p) for i, p in c] for c in step["candidates"]]})
            for step in data.pop("passes")
        ]
        return Trace(passes=passes, **data)


def _only(step: Step, row: int) -> Any:
    chosen = step.committed.new_zeros(len(step.committed), 1)
    chosen[row] = True
    return chosen
