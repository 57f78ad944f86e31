"""Layers on our kernels beside stock ones on a GPU: are they right at the real sizes, how fast, which tiles are best?

    python benchmarks/layers.py --out benchmarks/results --seconds 100

Microseconds of one layer inside a captured CUDA graph that holds several, so that no weight is served from the cache.
"right" compares with the same layer in float32: the largest difference as a share of the stock bfloat16 layer's own.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from gpu_timing import graph
from torch import Tensor
from transformers.integrations.moe import grouped_mm_experts_forward
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeTopkRouter

from softdlm.bench.shapes import SHAPES, build_model
from softdlm.kernels import experts, few_rows, tiles
from softdlm.kernels.split_kv_attention import attend
from softdlm.models import narrow_layers
from softdlm.models.compiled import compiled_body
from softdlm.models.hf_cache import WindowLayer
from softdlm.models.kv_memory import Window
from softdlm.models.narrow_layers import NarrowLayer, map_of
from softdlm.models.weights import Precision

DEVICE = torch.device("cuda")
COPIES, KEYS = 4, 1536
THIN = (
    ("llada-8b", 32, False),
    ("llada-8b", 32, True),
    ("dream-7b", 33, False),
    ("dream-7b", 33, True),
    ("llada-8b", 64, False),
)
START = time.perf_counter()
TILES: dict[str, list[tiles.Tiles]] = {
    "project": [tiles.Tiles(64, *each) for each in ((128, 4), (128, 6), (64, 5), (64, 8))],
    "gate": [tiles.Tiles(*each) for each in ((64, 128, 4), (64, 128, 5), (64, 64, 6), (32, 128, 4))],
    "add": [tiles.Tiles(*each) for each in ((64, 128, 6), (64, 128, 8), (64, 256, 4), (64, 256, 6), (32, 256, 6))],
}


def shortened(name: str, layers: int, fp8: bool = False) -> Any:
    shape = SHAPES[name]
    key = "n_layers" if "n_layers" in (shape.config or {}) else "num_hidden_layers"
    small = {"vocab_size": 1024, "embedding_size": 1024, "mask_token_id": 1000, "eos_token_id": 1001}
    config = {**(shape.config or {}), **small, key: layers}
    precision = Precision(torch.bfloat16, "fp8" if fp8 else None)
    return build_model(type(shape)(name, config), DEVICE, precision).network.model


class Case:
    """Some layers, and a block of rows in the midst of a cache."""

    def __init__(self, name: str, rows: int, fp8: bool) -> None:
        self.body, self.rows = shortened(name, COPIES, fp8), rows
        config = self.body.config
        columns = torch.arange(KEYS - 64 - rows, KEYS - 64, device=DEVICE)[None]
        everything = torch.arange(KEYS, device=DEVICE)
        self.written = torch.ones_like(columns, dtype=torch.bool)
        self.window = Window(everything[:1], everything, columns, columns, self.written)
        self.x = torch.randn(1, rows, config.hidden_size, device=DEVICE, dtype=torch.bfloat16)
        self.turn = self.body.rotary_emb(self.x, columns)
        shape = (COPIES, 1, config.num_key_value_heads, KEYS, config.hidden_size // config.num_attention_heads)
        self.keys, self.values = (torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
        self.layers: list[Any] = list(compiled_body(self.body).layers)
        for layer in self.layers:
            layer.index = 0

    def kept(self, index: int, dtype: torch.dtype = torch.bfloat16) -> Any:
        layer = WindowLayer(self.keys[index].to(dtype), self.values[index].to(dtype), self.window)
        return type("Kept", (), {"layers": [layer], "update": lambda _, k, v, __: layer.update(k, v)})()

    def run(self, layer: Any, kept: Any, x: Tensor) -> Tensor:
        turn = tuple(each.to(x.dtype) for each in self.turn)
        return layer(
            x, attention_mask=None, past_key_values=kept, use_cache=True, position_embeddings=turn, is_causal=False
        )

    def right(self) -> float:
        """Our largest error as a share of the stock layer's, both against float32."""
        wide = copy.deepcopy(self.body.layers[0]).float()
        exact = self.run(wide, self.kept(0, torch.float32), self.x.float())
        ours, stock = (
            (self.run(layer, self.kept(0), self.x).float() - exact).abs().max().item()
            for layer in (self.layers[0], self.body.layers[0])
        )
        return ours / stock

    def all(self, ours: bool) -> None:
        """The layers one after another, as a pass runs them."""
        x = self.x
        for index, layer in enumerate(self.layers):
            kept = self.kept(index)
            x = self.run(layer if ours else layer.run, kept if ours else kept.layers[0], x)

    def parts(self) -> Iterator[tuple[str, Any, list[Any]]]:
        """Each kernel by itself, for each choice of tiles."""
        layers: list[NarrowLayer] = [layer.narrow for layer in self.layers]
        x, norm = self.x[0], layers[0].before
        rows = few_rows.prepare(x, norm)
        for layout in TILES["project"]:
            yield "project", layout, [
                partial(few_rows.project, rows, map_of(each.attention.q_proj), self.turn, self.keys[0],
                        self.values[0], self.window.columns, self.written, layout)
                for each in layers
            ]  # fmt: skip
        heads = self.body.config.num_attention_heads
        queries = torch.randn(len(x), heads, self.keys.shape[-1], device=DEVICE).bfloat16()
        count = layers[0].count(heads, DEVICE)
        pairs = zip(self.keys, self.values, strict=True)
        yield "attend", "", [partial(attend, queries, keys, values, 0.1, count) for keys, values in pairs]
        for layout in TILES["gate"]:
            yield "gate", layout, [partial(few_rows.gate, rows, map_of(each.mlp.gate_proj), layout) for each in layers]
        tops = x.new_ones(1, len(x), dtype=torch.float32)
        inner = torch.randn(len(x), self.body.config.intermediate_size, device=DEVICE).bfloat16()
        for layout in TILES["add"]:
            for part, y in (("output", x), ("down", inner)):
                maps = [map_of(each.attention.o_proj if y is x else each.mlp.down_proj) for each in layers]
                given = few_rows.Rows(y, tops)
                yield f"add {part}", layout, [partial(few_rows.add, given, map, rows, norm, layout) for map in maps]


def thin_layers(seconds: float) -> Iterator[dict[str, Any]]:
    for name, rows, fp8 in THIN:
        case, dtype = Case(name, rows, fp8), "fp8" if fp8 else "bfloat16"
        times = {}
        for tiles.OVERLAP in (False, True):
            times[f"ours, overlap {tiles.OVERLAP}"] = graph([partial(case.all, True)]) / COPIES
        times["compiled"] = graph([partial(case.all, False)]) / COPIES
        error = {} if fp8 else {"error, ours / stock": case.right()}
        yield {"layer": name, "rows": rows, "dtype": dtype, **error, **times}
        for part, layout, calls in case.parts():
            if time.perf_counter() - START > seconds:
                break
            try:
                yield {
                    "layer": name,
                    "rows": rows,
                    "dtype": dtype,
                    "part": part,
                    "tiles": str(layout),
                    "us": graph(calls),
                }
            except Exception as fault:  # a layout that does not fit the device is a finding, too
                yield {
                    "layer": name,
                    "rows": rows,
                    "dtype": dtype,
                    "part": part,
                    "tiles": str(layout),
                    "fault": str(fault)[:60],
                }


def eight_bit_experts() -> Iterator[dict[str, Any]]:
    """LLaDA-2's experts in eight bits: right, and which tiles."""
    layers = [layer.mlp for layer in shortened("llada2-mini", COPIES + 1, True).layers[1:]]
    for tokens in (1536, 32):
        x = torch.randn(tokens, 2048, device=DEVICE, dtype=torch.bfloat16)
        _, weights, ids = layers[0].gate(x)
        one = layers[0].experts
        wide = type("Wide", (), {})()
        for name in ("gate_up_proj", "down_proj"):
            setattr(wide, name, getattr(one, name).float() * getattr(one, f"{name}_scale")[..., None])
        true = sum_experts(wide, x.float(), ids, weights)
        for layout in (experts.TILES_8, *(tiles.Tiles(*each) for each in EXPERT_TILES)):
            for rows in (32, 64) if tokens > 32 else (16,):
                calls = [
                    partial(experts.mix_with, layout, rows, x, ids, weights, e.gate_up_proj, e.down_proj,
                            (e.gate_up_proj_scale, e.down_proj_scale))
                    for e in (each.experts for each in layers)
                ]  # fmt: skip
                case = {"layer": "llada2-mini fp8", "rows": tokens, "tiles": f"{layout}, {rows} choices"}
                try:
                    error = ((calls[0]().float() - true).norm() / true.norm()).item()
                    yield case | {"relative error": error, "us": graph(calls)}
                except Exception as fault:
                    yield case | {"fault": str(fault)[:60]}


EXPERT_TILES = ((128, 128, 4, 8), (128, 128, 3, 4), (64, 128, 4, 4), (128, 64, 6, 4), (64, 256, 3, 4))


def mixtures() -> Iterator[dict[str, Any]]:
    layers = [layer.mlp for layer in shortened("llada2-mini", COPIES + 1).layers[1:]]
    gate, one = layers[0].gate, layers[0].experts
    for tokens in (32, 1536):
        x = torch.randn(tokens, 2048, device=DEVICE, dtype=torch.bfloat16)
        logits, weights, ids = Glm4MoeTopkRouter.forward(gate, x)
        ours_logits, _, ours_ids = gate(x)
        exact = torch.nn.functional.linear(x.double(), gate.weight.double())
        stock = partial(grouped_mm_experts_forward, top_k_index=ids, top_k_weights=weights)
        ours = [
            partial(experts.mix, x, ids, weights, each.experts.gate_up_proj, each.experts.down_proj) for each in layers
        ]
        made, theirs = ours[0](), stock(one, x)
        wide = copy.deepcopy(one).float()
        true = sum_experts(wide, x.float(), ids, weights)
        yield {
            "layer": "llada2-mini", "rows": tokens,
            "same experts": (ids.sort(1)[0] == ours_ids.sort(1)[0]).float().mean().item(),
            "logit error, ours / stock": ((ours_logits - exact).abs().max() / (logits - exact).abs().max()).item(),
            "error, ours / stock": ((made - true).abs().max() / (theirs - true).abs().max()).item(),
            "router, ours": graph([partial(each.gate, x) for each in layers]),
            "router, stock": graph([partial(Glm4MoeTopkRouter.forward, each.gate, x) for each in layers]),
            "experts, ours": graph(ours),
            "experts, stock": graph([partial(stock, each.experts, x) for each in layers]),
        }  # fmt: skip


def sum_experts(module: Any, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    total = torch.zeros_like(x)
    for expert in range(len(module.down_proj)):
        token, slot = (ids == expert).nonzero(as_tuple=True)
        gate, up = (x[token] @ module.gate_up_proj[expert].T).chunk(2, -1)
        made = (torch.nn.functional.silu(gate) * up) @ module.down_proj[expert].T
        total.index_add_(0, token, made * weights[token, slot, None])
    return total


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--only", choices=["mixtures", "eight", "thin"])
    args = parser.parse_args()
    narrow_layers.ENOUGH = 0  # Dream's layers as well, which are compiled otherwise
    found = []
    parts = {"mixtures": mixtures, "eight": eight_bit_experts, "thin": partial(thin_layers, args.seconds)}
    for case in chain(*(part() for name, part in parts.items() if args.only in (None, name))):
        found.append(case)
        print(
            f"[{time.perf_counter() - START:.0f}]",
            {k: round(v, 3) if isinstance(v, float) else v for k, v in case.items()},
            flush=True,
        )
    args.out.mkdir(parents=True, exist_ok=True)
    conditions = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "keys": KEYS}
    file = args.out / f"{date.today()}-layers.json"
    file.write_text(json.dumps({"conditions": conditions, "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
