"""How the time of a pass grows with length, batch and candidates. Only attention may grow faster than linearly."""

from __future__ import annotations

import math
from dataclasses import replace

from softdlm.bench.context import Bench, SuiteResult, TableRow
from softdlm.bench.measure import FULL
from softdlm.bench.targets import Check
from softdlm.bench.workload import Decode
from softdlm.feedback import Slerp


def growth(bench: Bench) -> SuiteResult:
    """Time of a whole-canvas SLERP pass against canvas length, batch and candidates."""
    sizes, limit = bench.sizes, bench.model.max_length or math.inf
    new = sizes.growth_new
    base = Decode(bench.decode.length - new, new, max(1, new // 8), feedback=Slerp())
    lengths = [length for length in sizes.lengths if length <= limit]
    axes = {
        "canvas length": {length: replace(base, prompt=length - new) for length in lengths},
        "batch": {batch: replace(base, prompt=sizes.lengths[1] - new, batch=batch) for batch in sizes.batches},
        "candidates": {k: replace(base, feedback=Slerp(k)) for k in sizes.candidates},
    }
    rows = []
    for axis, decodes in axes.items():
        for size, decode in decodes.items():
            made = bench.row(decode, bench.time(decode, max(2, FULL // decode.batch)))
            rows.append({"axis": axis, "size": size, "attention floor, ms": 1e3 * _attention(bench, decode)} | made)
    steepest = max(exponent([row for row in rows if row["axis"] == axis]) for axis in axes)
    left_out = [length for length in sizes.lengths if length > limit]
    notes = [f"Lengths {left_out} exceed the model's context of {limit} and were not measured."] if left_out else []
    return SuiteResult(rows, [Check("growth", steepest)], notes)


def _attention(bench: Bench, decode: Decode) -> float:
    """Shortest possible time of attention in a pass, in seconds."""
    passes = decode.passes()
    return sum(bench.measured[0].floors(bench.dimensions, each)["attention"] for each in passes) / len(passes)


def exponent(rows: list[TableRow]) -> float:
    """Exponent p of time ~ size^p between the last two sizes, after subtracting the floor of attention."""
    (size, time), (last_size, last_time) = [
        (row["size"], row["ms a pass"] - row["attention floor, ms"]) for row in rows[-2:]
    ]
    return math.log(last_time / time) / math.log(last_size / size)
