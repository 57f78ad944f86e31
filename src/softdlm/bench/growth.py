"""How the cost of a step grows; nothing but attention may grow faster than its size."""

from __future__ import annotations

import math
from dataclasses import replace

from softdlm.bench.context import Bench, Found, Row
from softdlm.bench.measure import FULL
from softdlm.bench.targets import Check
from softdlm.bench.workload import Decode


def growth(bench: Bench) -> Found:
    """A whole-canvas SLERP step against canvas length, batch and candidates."""
    sizes, limit = bench.sizes, bench.model.max_length or math.inf
    new = sizes.growth_new
    base = Decode(bench.decode.length - new, new, max(1, new // 8), method="slerp")
    lengths = [length for length in sizes.lengths if length <= limit]
    axes = {
        "canvas length": {length: replace(base, prompt=length - new) for length in lengths},
        "batch": {batch: replace(base, prompt=sizes.lengths[1] - new, batch=batch) for batch in sizes.batches},
        "candidates": {k: replace(base, k=k) for k in sizes.candidates},
    }
    rows = []
    for axis, decodes in axes.items():
        for size, decode in decodes.items():
            made = bench.row(decode, bench.time(decode, max(2, FULL // decode.batch)))
            rows.append({"axis": axis, "size": size, "attention floor, ms": 1e3 * _attention(bench, decode)} | made)
    steepest = max(exponent([row for row in rows if row["axis"] == axis]) for axis in axes)
    left_out = [length for length in sizes.lengths if length > limit]
    notes = [f"Lengths {left_out} are beyond the model's context of {limit}."] if left_out else []
    return Found(rows, [Check("growth", steepest)], notes)


def _attention(bench: Bench, decode: Decode) -> float:
    """Seconds of a pass that attention takes at least."""
    works = decode.works()
    return sum(bench.measured[0].parts(bench.geometry, work)["attention"] for work in works) / len(works)


def exponent(rows: list[Row]) -> float:
    """By which power of the size a step grew at the last two sizes, attention's floor taken off."""
    (size, time), (last_size, last_time) = [
        (row["size"], row["ms a pass"] - row["attention floor, ms"]) for row in rows[-2:]
    ]
    return math.log(last_time / time) / math.log(last_size / size)
