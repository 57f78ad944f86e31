"""Columns of a trace file: runs of positions, and candidate lists that are written only where they change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

SAME = -1
"""Stands for the candidate list that the position had when it was last written."""


class Row(NamedTuple):
    """What one pass predicted at one position."""

    at: int
    ids: list[int]
    probs: list[int]
    """In steps of 0.0001."""
    entropy: int
    """In thousandths of a nat."""


def write_runs(positions: Sequence[int]) -> list[int]:
    """Ascending positions as start, length, start, length ..."""
    starts = [at for before, at in pairwise([-2, *positions]) if at != before + 1]
    ends = [at for at, after in pairwise([*positions, -2]) if after != at + 1]
    return [value for start, end in zip(starts, ends, strict=True) for value in (start, end - start + 1)]


def read_runs(runs: Any, length: int) -> list[int]:
    """The positions, which must ascend and lie on the canvas."""
    values = whole_numbers(runs)
    found = [at for start, count in zip(values[::2], values[1::2], strict=True) for at in range(start, start + count)]
    if any(after <= before for before, after in pairwise([-1, *found])) or (found and found[-1] >= length):
        raise ValueError(f"positions {values[:8]} do not ascend within a canvas of {length}")
    return found


def write_rows(passes: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """One list of each column per pass."""
    last: dict[int, list[int]] = {}
    ids: list[list[int]] = []
    for rows in passes:
        ids.append([value for row in rows for value in ([SAME] if last.get(row.at) == row.ids else row.ids)])
        last |= {row.at: row.ids for row in rows}
    return {
        "candidates": max((len(row.ids) for rows in passes for row in rows), default=0),
        "ids": ids,
        "probs": [[value for row in rows for value in row.probs] for rows in passes],
        "entropy": [[row.entropy for row in rows] for rows in passes],
    }


def read_rows(columns: Any, places: Sequence[Sequence[int]], vocabulary: int) -> Iterator[list[Row]]:
    """The rows of each pass at its places; without candidates there are none."""
    count, last = columns["candidates"], dict[int, list[int]]()
    names = [columns[name] for name in ("ids", "probs", "entropy")]
    for where, ids, probs, entropy in zip(places, *names, strict=True):
        where = where if count else []
        lists = list(_lists(whole_numbers(ids, vocabulary), where, count, last))
        shares = [probs[place : place + count] for place in range(0, len(whole_numbers(probs)), max(count, 1))]
        yield [Row(*each) for each in zip(where, lists, shares, whole_numbers(entropy), strict=True)]


def _lists(ids: Sequence[int], where: Iterable[int], count: int, last: dict[int, list[int]]) -> Iterator[list[int]]:
    """Each position's candidates, from their column; `last` keeps them for the next pass."""
    begin = 0
    for at in where:
        if begin < len(ids) and ids[begin] != SAME:
            last[at], begin = list(ids[begin : begin + count]), begin + count
        else:
            begin += 1
        if len(last.get(at, ())) != count or begin > len(ids) or SAME in last[at]:
            raise ValueError(f"the candidates of position {at} are incomplete")
        yield last[at]
    if begin != len(ids):
        raise ValueError("there are candidates of no position")


def whole_numbers(values: Any, below: int | None = None) -> list[int]:
    """A list of whole numbers from SAME up, checked."""
    most = 2**53 if below is None else below
    if not isinstance(values, list) or not all(type(each) is int and SAME <= each < most for each in values):
        raise ValueError(
            f"{str(values)[:40]} is not a list of whole numbers{'' if below is None else f' below {most}'}"
        )
    return values
