"""What a decode leaves behind: commits, candidates and soft inputs of every pass. Small, JSON, and enough to replay it.

In a file, numbers stand in columns: probabilities in steps of 0.0001, confidences of 0.000001, entropies of 0.001 nats;
a candidate list that did not change is not written again. `records/trace.schema.json` describes the format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Bool
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.records.files import parse_json, read_input, write_text
from softdlm.trace_columns import Row, read_rows, read_runs, whole_numbers, write_rows, write_runs
from softdlm.types import Step

VERSION = 2
LARGEST = 64 << 20  # bytes of a file; one of 512 tokens and 128 passes has about 1 MB


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
    entropy: list[float] = field(default_factory=list)
    """For each of these positions, in nats."""
    chosen: list[list[tuple[int, float]]] = field(default_factory=list)
    """For each committed position, (id, probability) of the best tokens, where candidates were recorded."""
    chosen_entropy: list[float] = field(default_factory=list)
    soft: list[int] = field(default_factory=list)
    """Open positions that this pass saw as soft tokens; it saw [MASK] at the others."""


Candidates = tuple[list[int], list[list[tuple[int, float]]]]
"""Positions of one pass and, for each, (id, probability) of the best tokens."""


def candidates_of(step: Step, row: int) -> Candidates:
    """What one row of a pass leaves open, read off the device."""
    return _candidates(step, row, step.requested[row] & step.canvas.open[row])


def committed_candidates(step: Step, row: int) -> Candidates:
    """What one row of a pass commits, and what else could have stood there."""
    return _candidates(step, row, step.committed[row])


def _candidates(step: Step, row: int, chosen: Bool[Tensor, "L"], places: int = 6) -> Candidates:
    where, prediction = chosen.nonzero().flatten(), step.prediction
    options = zip(prediction.topk_ids[row][where].tolist(), prediction.topk_probs[row][where].tolist(), strict=True)
    return where.tolist(), [[(i, round(p, places)) for i, p in zip(ids, ps, strict=True)] for ids, ps in options]


class Seen(NamedTuple):
    """What one pass predicted for one row: the fields of a Pass that need candidates."""

    open: list[int]
    candidates: list[list[tuple[int, float]]]
    entropy: list[float]
    chosen: list[list[tuple[int, float]]]
    chosen_entropy: list[float]
    soft: list[int]

    @staticmethod
    def of(step: Step, row: int) -> Seen:
        left, made = step.requested[row] & step.canvas.open[row], step.committed[row]
        doubt = step.prediction.entropy[row]
        entropy, chosen_entropy = ([round(each, 3) for each in doubt[where].tolist()] for where in (left, made))
        soft = (step.context.soft[row] & (left | made)).nonzero().flatten().tolist()
        open, candidates = _candidates(step, row, left, 4)
        return Seen(open, candidates, entropy, _candidates(step, row, made, 4)[1], chosen_entropy, soft)


class RowRecord(NamedTuple):
    """A row of the canvas with its history, as it was read from the device."""

    ids: list[int]
    committed_in: list[int]
    """For each position, the number of the row's pass that committed it, from 1; 0: not committed."""
    confidence: list[float]
    """For each position, the confidence at its commit."""
    forwards: int
    """Passes that the row took part in."""

    def passes(self, seen: Sequence[Seen] = ()) -> list[Pass]:
        """What each pass committed, with what was recorded of it."""
        recorded = [each._asdict() for each in seen] or [{} for _ in range(self.forwards)]
        passes = [Pass([], [], [], **each) for each in recorded]
        for position, number in enumerate(self.committed_in):
            if number:
                made = passes[number - 1]
                made.positions.append(position)
                made.tokens.append(self.ids[position])
                made.confidence.append(round(self.confidence[position], 6))
        return passes


class Mark(NamedTuple):
    """An equation of the answer, from its first to its last position, and whether it is true."""

    first: int
    last: int
    true: bool


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
    eos_ids: list[int] = field(default_factory=list)
    mixture: dict[str, Any] = field(default_factory=dict)
    """What a soft token is made of: `feedback.mixture_of` of the rule."""
    prompt: str = ""
    """The prompt's words, without the chat template, where there is a tokenizer and candidates were recorded."""
    pieces: dict[int, str] = field(default_factory=dict)
    """The text of every token that occurs, likewise."""
    seconds: list[float] = field(default_factory=list, compare=False)
    """For each pass, the time since the one before it; on a busy server that of other requests' passes is in it."""
    marks: list[Mark] = field(default_factory=list)
    """The answer's equations, once they are checked (report/player/marks.py)."""
    right: bool | None = None
    """Whether the answer is right, where somebody knows it."""
    target: str = ""
    """The expected answer, where somebody knows it."""

    @property
    def answer(self) -> list[int]:
        """The canvas after the prompt, up to the first EOS."""
        return list(takewhile(lambda token: token not in (*self.eos_ids, self.mask_id), self.replay()))

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

    def tokens(self) -> set[int]:
        """Every token that occurs: on the canvas, and among the candidates."""
        named = {self.fill_id, *self.prompt_ids, *(token for _, token in self.fixed)}
        for step in self.passes:
            named.update(step.tokens, (token for each in (*step.candidates, *step.chosen) for token, _ in each))
        return named

    def to_json(self) -> dict[str, Any]:
        """The columns that a file holds; tokens of passes are places in the vocabulary."""
        ids = sorted(self.tokens())
        place = {token: number for number, token in enumerate(ids)}
        rows = [_rows(step, place) for step in self.passes]
        plain = {name: getattr(self, name) for name in PLAIN}
        return {
            "softdlm_trace": VERSION,
            **plain,
            "fixed": [list(each) for each in self.fixed],
            "marks": [list(each) for each in self.marks],
            "vocabulary": {"ids": ids, "texts": [self.pieces.get(token, "") for token in ids] if self.pieces else []},
            "passes": {
                "commits": [len(step.positions) for step in self.passes],
                "positions": [at for step in self.passes for at in step.positions],
                "tokens": [place[token] for step in self.passes for token in step.tokens],
                "confidence": [round(p * 1e6) for step in self.passes for p in step.confidence],
                "open": [write_runs(step.open) for step in self.passes],
                "soft": [write_runs(step.soft) for step in self.passes],
                **write_rows(rows),
            },
        }

    def save(self, path: str | Path) -> None:
        """Write the trace as JSON, whole or not at all."""
        write_text(Path(path), json.dumps(self.to_json(), separators=(",", ":")))

    @staticmethod
    def load(path: str | Path) -> Trace:
        data = read_input(Path(path), LARGEST)
        try:
            value = parse_json(data)
        except ValueError as error:
            raise UsageError(f"{path} is not a trace saved by softdlm: it is not JSON") from error
        return Trace.from_json(value, str(path))

    @staticmethod
    def from_json(value: Any, name: str = "this") -> Trace:
        """Checked as a whole; `name` stands for it in errors."""
        version = value.get("softdlm_trace") if isinstance(value, dict) else None
        if isinstance(version, int) and version != VERSION:
            raise UsageError(
                f"{name} is a trace of version {version}; this softdlm reads version {VERSION}: "
                "decode again, or use the softdlm that wrote it"
            )
        try:
            if version is None:
                raise ValueError("softdlm_trace is missing")
            return _read(value)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
            raise UsageError(f"{name} is not a trace saved by softdlm: {reason}") from error


PLAIN = (
    "model", "method", "prompt", "prompt_ids", "length", "mask_id", "fill_id", "eos_ids", "mixture", "seconds", "right",
    "target",
)  # fmt: skip
"""Fields of a Trace that a file holds as they are."""


def _rows(step: Pass, place: dict[int, int]) -> list[Row]:
    """A pass's predictions for the file: of its open positions, then of the committed ones."""
    where = [*step.open, *(step.positions if step.chosen else ())]
    return [
        Row(at, [place[token] for token, _ in options], [round(p * 1e4) for _, p in options], round(doubt * 1e3))
        for at, options, doubt in zip(
            where, [*step.candidates, *step.chosen], [*step.entropy, *step.chosen_entropy], strict=True
        )
    ]


def _read(data: dict[str, Any]) -> Trace:
    _check(data)
    columns, length, words = data["passes"], data["length"], data["vocabulary"]
    ids, texts = whole_numbers(words["ids"]), words["texts"]
    counts = whole_numbers(columns["commits"])
    places, tokens = whole_numbers(columns["positions"], length), whole_numbers(columns["tokens"], len(ids))
    sure = [value / 1e6 for value in whole_numbers(columns["confidence"])]
    if not len(places) == len(tokens) == len(sure) == sum(counts):
        raise ValueError("the columns of the commits have different lengths")
    begins = [sum(counts[:number]) for number in range(len(counts))]
    made = [slice(begin, begin + count) for begin, count in zip(begins, counts, strict=True)]
    open, soft = ([read_runs(each, length) for each in columns[name]] for name in ("open", "soft"))
    where = [[*left, *places[part]] for left, part in zip(open, made, strict=True)]
    rows = read_rows(columns, where, len(ids))
    passes = [
        Pass(places[part], [ids[each] for each in tokens[part]], sure[part], soft=seen, **_seen(each, left, ids))
        for part, left, each, seen in zip(made, open, rows, soft, strict=True)
    ]
    pieces = {token: str(text) for token, text in zip(ids, texts, strict=True)} if texts else {}
    return Trace(
        **{name: data[name] for name in PLAIN}, passes=passes, pieces=pieces,
        fixed=[(at, token) for at, token in data["fixed"]],
        marks=[Mark(first, last, true is True) for first, last, true in data["marks"]],
    )  # fmt: skip


def _seen(rows: Sequence[Row], left: list[int], ids: Sequence[int]) -> dict[str, Any]:
    """A Pass's fields from `open` to `chosen_entropy`."""
    options = [[(ids[i], p / 1e4) for i, p in zip(row.ids, row.probs, strict=True)] for row in rows]
    doubt, count = [row.entropy / 1e3 for row in rows], len(left)
    there = {"open": left, "candidates": options[:count], "entropy": doubt[:count]}
    return {**there, "chosen": options[count:], "chosen_entropy": doubt[count:]}


def _check(data: dict[str, Any]) -> None:
    """What a reader relies on: numbers are numbers, and everything lies on the canvas."""
    prompt, length = data["prompt_ids"], data["length"]
    for each in (prompt, data["eos_ids"], [length, data["mask_id"], data["fill_id"], len(prompt)], *data["fixed"]):
        whole_numbers(each)
    placed = [at for each in (*data["fixed"], *data["marks"]) for at in each[:-1]]
    whole_numbers([len(prompt), *placed], length)
    if not all(isinstance(data[name], str) for name in ("model", "prompt", "target")):
        raise ValueError("model, prompt and target must be texts")
    if not all(isinstance(data[name], dict) for name in ("method", "mixture")):
        raise ValueError("method and mixture must be objects")
    if not isinstance(data["seconds"], list) or not all(isinstance(each, int | float) for each in data["seconds"]):
        raise ValueError("seconds must be numbers")
    if data["right"] not in (True, False, None) or any(len(each) != 3 for each in data["marks"]):
        raise ValueError("right is true, false or null; a mark has three parts")
