"""Which equations of an answer are true, by position; the rule is tasks/consistency.py."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate

from softdlm.tasks.consistency import equations
from softdlm.trace import Mark, Trace


def marked(trace: Trace) -> Trace:
    """The trace with its equations checked; as it is where token texts were not recorded.

    The prompt is read too: where an answer was changed and decoded on, part of an equation may have been given.
    """
    texts = [trace.pieces.get(token, "") for token in (*trace.prompt_ids, *trace.answer)]
    starts = list(accumulate(map(len, texts), initial=0))[:-1]

    def position(letter: int) -> int:
        return bisect_right(starts, letter) - 1

    found = [Mark(position(each.start), position(each.end - 1), each.true) for each in equations("".join(texts))]
    return replace(trace, marks=[mark for mark in found if mark.last >= len(trace.prompt_ids)])
