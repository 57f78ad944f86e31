"""Cells, plans and executors that need no model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softdlm.commit import CommitRule
from softdlm.decoding import Decoding
from softdlm.evaluate.cell import Cell, ModelSpec, TaskSpec, protocol
from softdlm.evaluate.executors import Failure, Work
from softdlm.evaluate.grid import Plan, Planned
from softdlm.evaluate.summary import summarise
from softdlm.feedback import FeedbackRule
from softdlm.records.canonical import digest
from softdlm.records.journal import Journal, Sample
from softdlm.registry import title

MODEL = ModelSpec("tiny", "cpu", "float32")
RULES = """
from dataclasses import dataclass

import softdlm


@dataclass(frozen=True)
class Mine:
    k: int = 3

    def __call__(self, prediction, embeddings, context):
        return half(softdlm.Slerp(self.k, 1.0)(prediction, embeddings, context)) + half(embeddings.mask)


def half(rows):
    return rows / 2


def leftmost(prediction, open, context):
    return open & (open.cumsum(1) <= 2)
"""
"""A user's file with a feedback rule and a commit rule."""


def cell(feedback: str | FeedbackRule = "vanilla", commit: str | CommitRule = "topn(1)", **fields: Any) -> Cell:
    decoding = Decoding.of(feedback=feedback, commit=commit, max_new_tokens=8, **fields).settled()
    return Cell(MODEL, TaskSpec("mini-math"), decoding)


def planned(one: Cell, items: Sequence[str] = ("a", "b", "c")) -> Planned:
    whole = protocol(one, {"digest": "w"}, {"name": "mini-math", "count": len(items), "items": digest(list(items))})
    return Planned(digest(whole), one, whole, tuple(items))


def plan(*cells: Cell, items: Sequence[str] = ("a", "b", "c")) -> Plan:
    return Plan(tuple(planned(one, items) for one in cells), ())


def sample(item: str, correct: bool = True, **values: Any) -> Sample:
    usual: dict[str, Any] = {"text": f"the answer to {item}", "forwards": 4, "tokens": 6, "seconds": 0.5}
    return Sample(
        id=item, prompt_digest="p", ids_digest="i", finish="eos", correct=correct,
        reason="solved" if correct else "wrong", **usual | values,
    )  # fmt: skip


def write_cell(
    root: Path,
    one: Cell,
    verdicts: dict[str, bool],
    *,
    finished: bool = True,
    consistent: dict[str, bool] | None = None,
    **values: Any,
) -> Path:
    """A cell's folder as the runner leaves it."""
    made = planned(one, sorted(verdicts))
    with Journal(root / made.key, made.protocol, one.labels) as journal:
        journal.begin({"pid": 1, "host": "here", "started": "now"})
        for item, correct in verdicts.items():
            extra = {} if consistent is None else {"extra": {"consistent": consistent[item]}}
            journal.append(sample(item, correct, **values, **extra))
        if finished:
            journal.finish(summarise(list(journal.samples.values())))
    return root / made.key


@dataclass
class Scripted:
    """An executor that answers from a script and keeps what it was asked: reversed, as a cluster might."""

    wrong: tuple[str, ...] = ()
    stop_after: int | None = None
    broken: tuple[str, ...] = ()
    """Feedback rules, by name, that fail at their second item."""
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def run(self, works: Iterable[Work]) -> Iterator[tuple[str, Sample | Failure]]:
        answered = 0
        for work in works:
            method = title(work.cell.decoding.feedback)
            self.asked.append((method, work.items))
            for place, item in enumerate(reversed(work.items)):
                if method in self.broken and place == 1:
                    yield work.key, Failure("it broke")
                    break
                if answered == self.stop_after:
                    raise KeyboardInterrupt
                answered += 1
                yield work.key, sample(item, item not in self.wrong)

    def record(self, cell: Cell) -> dict[str, Any]:
        return {"executor": "scripted", "batch_size": 1}
