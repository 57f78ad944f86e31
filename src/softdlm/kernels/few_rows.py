"""A decoder layer for few rows in five kernels. A cached pass spends its time on reading weights, keys and values.

`project` computes queries, keys and values, rotates them, and stores keys and values in the KV memory. Attention is
split_kv_attention.py. `add` multiplies and adds the residual. `gate` multiplies by the gate and up weights and
activates. A norm is split in two: the kernel that writes rows also writes them multiplied by the norm's gain, with sums
of their squares; the kernel that multiplies those rows divides its products by the root mean square. The unfused layer
takes about fifteen kernels, most so short that launching them dominates. Results do not depend on the order in which
programs run.

Weights in eight bits (e4m3) have a scale per output. Rows that meet them are first rounded to e4m3, each with a scale
of its own, as models/fp8.py does it. The kernel that writes them also writes the largest magnitude of each part, so
rounding reads them once. Rounding them in the kernel that multiplies was twice as slow: every program did it again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.kernels.few_rows_triton import (
    add_kernel,
    gate_kernel,
    prepare_kernel,
    project_kernel,
    round_kernel,
)
from softdlm.kernels.tiles import LEAST, Tiles, overlap

PROJECT, GATE, ADD = Tiles(inputs=64, stages=5), Tiles(), Tiles(stages=8)
"""Tile sizes for LLaDA-8B on an H200, measured by benchmarks/layers.py."""
PROJECT_8, GATE_8, ADD_8 = Tiles(stages=6), Tiles(), Tiles(inputs=256, stages=6)
"""The same for weights in eight bits."""
MOST = 64
"""Most rows: with more, products are no longer bound by reading the weights."""


class LinearMap(NamedTuple):
    weight: Float[Tensor, "N K"]
    scale: Float[Tensor, "N"] | None = None
    """Of each output, where the weights are in eight bits."""
    bias: Float[Tensor, "N"] | None = None

    def fed(self, rows: Rows | ScaledRows) -> dict[str, Any]:
        """Arguments that the kernels of products share: the weights, and the rows as they meet them."""
        given: dict[str, Any] = {"weight": self.weight, "scale": self.scale, "EIGHT": self.scale is not None}
        normed = isinstance(rows, ScaledRows)
        if normed:
            given |= {"squares": rows.squares, "epsilon": rows.epsilon, "PARTS": len(rows.squares)}
        x = rows.scaled if normed else rows.x
        if self.scale is None:
            return given | {"x": x, "factors": x, "scale": x}
        codes, factors = rounded(x, rows)
        return given | {"x": codes, "factors": factors}


class Rows(NamedTuple):
    """Rows without a norm, and the largest magnitudes of their parts."""

    x: Float[Tensor, "M K"]
    tops: Float[Tensor, "parts M"]


@dataclass(frozen=True)
class ScaledRows:
    """The rows of a layer, prepared for the norm that follows."""

    x: Float[Tensor, "M D"]
    scaled: Float[Tensor, "M D"]
    """`x` times the gain of the norm."""
    squares: Float[Tensor, "parts M"]
    """Partial sums of squares: summed over `parts` they give each row's sum of squares."""
    tops: Float[Tensor, "parts M"]
    """Largest magnitudes of the parts of `scaled`."""
    epsilon: float

    @staticmethod
    def like(x: Float[Tensor, "M D"], norm: Norm, outputs: int) -> ScaledRows:
        squares, tops = x.new_empty(2, x.shape[1] // outputs, len(x), dtype=torch.float32)
        return ScaledRows(torch.empty_like(x), torch.empty_like(x), squares, tops, norm.epsilon)


class Norm(NamedTuple):
    gain: Float[Tensor, "D"]
    epsilon: float


def prepare(x: Float[Tensor, "M D"], norm: Norm) -> ScaledRows:
    """Scale rows that no kernel of this module has written."""
    launch = Tiles().launch(x, len(x), x.shape[1], LEAST)
    made = ScaledRows.like(x, norm, launch["OUTPUTS"])
    prepare_kernel[(len(made.squares),)](
        x, norm.gain, made.scaled, made.squares, made.tops, len(x), x.shape[1], OUTPUTS=launch["OUTPUTS"],
        ROWS=launch["ROWS"], **overlap(x),
    )  # fmt: skip
    return replace(made, x=x)


def rounded(x: Float[Tensor, "M K"], rows: Rows | ScaledRows) -> tuple[Float[Tensor, "M K"], Float[Tensor, "M"]]:
    """The rows as e4m3, and the factor of each row's products."""
    width = x.shape[1]
    squares, epsilon = (rows.squares, rows.epsilon) if isinstance(rows, ScaledRows) else (rows.tops, 0.0)
    codes, factors = torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty(len(x), dtype=torch.float32)
    launch = Tiles(outputs=128).launch(x, len(x), width, LEAST)
    round_kernel[(width // launch["OUTPUTS"],)](
        x, rows.tops, squares, epsilon, codes, factors, len(x), PARTS=len(rows.tops), WIDTH=width,
        NORM=isinstance(rows, ScaledRows), OUTPUTS=launch["OUTPUTS"], ROWS=launch["ROWS"], **overlap(x),
    )  # fmt: skip
    return codes, factors


def project(
    rows: ScaledRows,
    map: LinearMap,
    turn: tuple[Float[Tensor, "B Q d"], Float[Tensor, "B Q d"]],
    keys: Float[Tensor, "B kv L d"],
    values: Float[Tensor, "B kv L d"],
    columns: Int[Tensor, "B Q"],
    written: Bool[Tensor, "B Q"],
    tiles: Tiles | None = None,
) -> Float[Tensor, "M heads d"]:
    """Returns the queries and stores keys and values of the `written` rows at their columns. A tile is half a head."""
    kv, length, head = keys.shape[1:]
    heads, x = len(map.weight) // head - 2 * kv, rows.scaled
    queries = x.new_empty(len(x), heads, head)
    cos, sin = (each.contiguous() for each in turn)
    tiles = replace(tiles or (PROJECT if map.scale is None else PROJECT_8), outputs=head // 2)
    launch = fitted(tiles, x, map, head // 2, matrices=2)
    project_kernel[(heads + 2 * kv,)](
        bias=map.weight if map.bias is None else map.bias, cos=cos, sin=sin, queries=queries, keys=keys,
        values=values, columns=columns.contiguous(), written=written.contiguous(),
        rows=len(x), each=columns.shape[1], length=length, BIAS=map.bias is not None, WIDTH=x.shape[1], HEADS=heads,
        KV=kv, **map.fed(rows), **launch, **overlap(x),
    )  # fmt: skip
    return queries


def add(rows: Rows, map: LinearMap, to: ScaledRows, norm: Norm, tiles: Tiles | None = None) -> ScaledRows:
    """`to` plus the rows times the weights, prepared for `norm`."""
    x, outputs = rows.x, len(map.weight)
    launch = fitted(tiles or (ADD if map.scale is None else ADD_8), x, map, outputs)
    made = ScaledRows.like(to.x, norm, launch["OUTPUTS"])
    add_kernel[(len(made.squares),)](
        to=to.x, gain=norm.gain, made=made.x, scaled=made.scaled, squares=made.squares,
        tops=made.tops, rows=len(x), width=outputs,
        WIDTH=x.shape[1], **map.fed(rows), **launch, **overlap(x),
    )  # fmt: skip
    return made


def gate(rows: ScaledRows, map: LinearMap, tiles: Tiles | None = None) -> Rows:
    """silu(x G) * (x U) for the normed rows x; G and U are the two halves of the weights."""
    x, width = rows.scaled, len(map.weight) // 2
    launch = fitted(tiles or (GATE if map.scale is None else GATE_8), x, map, width, matrices=2)
    programs = width // launch["OUTPUTS"]
    made = Rows(x.new_empty(len(x), width), x.new_empty(programs, len(x), dtype=torch.float32))
    gate_kernel[(programs,)](
        made=made.x, made_tops=made.tops, rows=len(x), width=width, WIDTH=x.shape[1], **map.fed(rows), **launch,
        **overlap(x),
    )  # fmt: skip
    return made


def fitted(tiles: Tiles, x: Float[Tensor, "M K"], map: LinearMap, outputs: int, matrices: int = 1) -> dict[str, Any]:
    """Launch options of a product."""
    return tiles.launch(x if map.scale is None else map.weight, len(x), outputs, x.shape[1], matrices)
