"""A queue in front of slots: requests enter as rows become free, each decoded as it would be alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from softdlm.engine.captured import Slots
from softdlm.engine.plan import check_length, check_start
from softdlm.errors import PromptError
from softdlm.trace import RowRecord
from softdlm.types import Canvas


@dataclass
class Engine:
    """`submit` requests at any time and call `step` while the engine is `busy`: rows enter as others leave."""

    slots: Slots
    waiting: deque[tuple[int, Canvas]] = field(default_factory=deque)
    rows: dict[int, int] = field(default_factory=dict)
    """Request -> its row."""
    numbers: count[int] = field(default_factory=count)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.rows)

    def submit(self, prompt: Sequence[int], length: int) -> int:
        """A prompt and the length of its canvas; returns the request's number."""
        model, most = self.slots.plan.model, self.slots.state.canvas.ids.shape[1]
        check_start(model, len(prompt))
        check_length(model, length)
        if length > most:
            raise PromptError(f"prompt and answer take {length} tokens, these slots have {most}")
        pad = next(iter(model.eos_ids), 0)
        number = next(self.numbers)
        self.waiting.append((number, Canvas.pack([prompt], [length], model.mask_id, pad).widen(most, pad)))
        return number

    def cancel(self, request: int) -> None:
        self.waiting = deque(each for each in self.waiting if each[0] != request)
        if request in self.rows:
            row = self.rows.pop(request)
            self.slots.stop([index == row for index in range(len(self.slots.rows))])

    def step(self) -> dict[int, RowRecord]:
        """Fill the free rows, make one pass, and hand out the requests that are done."""
        for row in self.slots.free[: len(self.waiting)]:
            number, canvas = self.waiting.popleft()
            self.slots.admit([row], canvas)
            self.rows[number] = row
        if not self.slots.running:
            return {}
        self.slots.step()
        done = {number: row for number, row in self.rows.items() if not self.slots.rows[row].running}
        for number in done:
            del self.rows[number]
        return {number: self.slots.read_row(row) for number, row in done.items()}

    def read(self, request: int) -> RowRecord | None:
        """How far a request has come; None while it waits."""
        return self.slots.read_row(self.rows[request]) if request in self.rows else None
