"""Cells, plans and executors that need no model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softdlm.evaluate.cell import SINGLE, Cell, Decoding, ModelSpec, Rate, TaskSpec, protocol, short_digest
from softdlm.evaluate.executors import Failure, Work
from softdlm.evaluate.grid import Plan, Planned
from softdlm.evaluate.summary import summarise
from softdlm.feedback import FeedbackRule, Mask
from softdlm.methods import commit_rule
from softdlm.records.journal import Journal, Sample

MODEL = ModelSpec("tiny", "cpu", "float32")


def cell(method: str = "vanilla", feedback: FeedbackRule = Mask(), rate: Rate = SINGLE, **settings: Any) -> Cell:
    value: Any = int(rate.value) if rate.name == "tokens_per_step" else rate.value
    decoding = Decoding(
        method=method,
        feedback=feedback,
        rate=rate,
        commit=commit_rule(**{rate.name: value}),
        max_new_tokens=8,
        **settings,
    )
    return Cell(MODEL, TaskSpec("mini-math"), decoding)


def planned(one: Cell, items: Sequence[str] = ("a", "b", "c")) -> Planned:
    whole = protocol(
        one, {"digest": "w"}, {"name": "mini-math", "count": len(items), "items": short_digest(list(items))}
    )
    return Planned(short_digest(whole), one, whole, tuple(items))


def plan(*cells: Cell, items: Sequence[str] = ("a", "b", "c")) -> Plan:
    return Plan(tuple(planned(one, items) for one in cells), ())


def sample(item: str, correct: bool = True, **values: Any) -> Sample:
    usual: dict[str, Any] = {"text": f"the answer to {item}", "forwards": 4, "tokens": 6, "seconds": 0.5}
    return Sample(
        id=item, prompt_digest="p", ids_digest="i", finish="eos", correct=correct,
        reason="solved" if correct else "wrong", **usual | values,
    )  # fmt: skip


def write_cell(root: Path, one: Cell, verdicts: dict[str, bool], *, finished: bool = True, **values: Any) -> Path:
    """A cell's folder as the runner leaves it."""
    made = planned(one, sorted(verdicts))
    with Journal(root / made.key, made.protocol, one.labels) as journal:
        journal.begin({"pid": 1, "host": "here", "started": "now"})
        for item, correct in verdicts.items():
            journal.append(sample(item, correct, **values))
        if finished:
            journal.finish(summarise(list(journal.samples.values())))
    return root / made.key


@dataclass
class Scripted:
    """An executor that answers from a script and keeps what it was asked: reversed, as a cluster might."""

    wrong: tuple[str, ...] = ()
    stop_after: int | None = None
    broken: tuple[str, ...] = ()
    """Methods that fail at their second item."""
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def run(self, works: Iterable[Work]) -> Iterator[tuple[str, Sample | Failure]]:
        answered = 0
        for work in works:
            self.asked.append((work.cell.decoding.method, work.items))
            for place, item in enumerate(reversed(work.items)):
                if work.cell.decoding.method in self.broken and place == 1:
                    yield work.key, Failure("it broke")
                    break
                if answered == self.stop_after:
                    raise KeyboardInterrupt
                answered += 1
                yield work.key, sample(item, item not in self.wrong)

    def record(self, cell: Cell) -> dict[str, Any]:
        return {"executor": "scripted", "batch_size": 1}
