"""Llama and Qwen2 layers on the kernels for few rows. Importing this module imports transformers and Triton."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from softdlm.kernels import few_rows
from softdlm.kernels.split_kv_attention import attend
from softdlm.kernels.tiles import LEAST, LEAST_8, side
from softdlm.models.fp8 import CODES, EMULATED
from softdlm.models.hf_cache import WindowLayer

ENOUGH = 64
"""Fewest programs per product at which these kernels are faster than compiled layers (one H200, benchmarks/layers.py).
LLaDA-8B has 96 and 64: 137 us with 32 rows, compiled 152. Dream-7B has 36 and 56: 181 us with 33 rows, compiled 162."""


class NarrowLayer:
    """A decoder layer with fused maps, for cached passes of few rows.

    It returns what the stock layer returns. Rows that are already scaled for the norm of the `following` layer are left
    in that layer's `ready`, for its next call.
    """

    def __init__(self, layer: Any) -> None:
        self.attention, self.mlp = layer.self_attn, layer.mlp
        self.before, self.after = (
            few_rows.Norm(norm.weight, norm.variance_epsilon)
            for norm in (layer.input_layernorm, layer.post_attention_layernorm)
        )
        self.following: NarrowLayer | None = None
        self.ready: tuple[Tensor, few_rows.ScaledRows] | None = None
        self.counts: dict[int, Tensor] = {}

    def fits(self, hidden: Float[Tensor, "B Q D"], kept: WindowLayer | None, pattern: Tensor | None) -> bool:
        """Whether this pass has few enough rows, sees every stored key, and computes only some of them."""
        if kept is None or pattern is not None or hidden.shape[0] * hidden.shape[1] > few_rows.MOST:
            return False
        window, keys = kept.window, kept.stored[0]
        return window.written is not None and (len(window.rows), len(window.keys)) == (keys.shape[0], keys.shape[2])

    def __call__(
        self, hidden: Float[Tensor, "B Q D"], kept: WindowLayer, turn: tuple[Tensor, Tensor]
    ) -> Float[Tensor, "B Q D"]:
        window, (keys, values), rows = kept.window, kept.stored, self.rows(hidden)
        assert window.written is not None
        maps = map_of(self.attention.q_proj)
        queries = few_rows.project(rows, maps, turn, keys, values, window.columns, window.written)
        count = self.count(len(keys) * queries.shape[1], hidden.device)
        tops = queries.new_empty(queries.shape[1], len(queries), dtype=torch.float32)
        seen = few_rows.Rows(attend(queries, keys, values, self.attention.scaling, count, tops), tops)
        rows = few_rows.add(seen, map_of(self.attention.o_proj), rows, self.after)
        inner = few_rows.gate(rows, map_of(self.mlp.gate_proj))
        following = self.following or self
        rows = few_rows.add(inner, map_of(self.mlp.down_proj), rows, following.before)
        made = rows.x.view_as(hidden)
        following.ready = None if following is self else (made, rows)
        return made

    @property
    def maps(self) -> list[Any]:
        return [self.attention.q_proj, self.attention.o_proj, self.mlp.gate_proj, self.mlp.down_proj]

    def rows(self, hidden: Float[Tensor, "B Q D"]) -> few_rows.ScaledRows:
        """The scaled rows that the previous layer left for this input, else made from `hidden`."""
        ready, self.ready = self.ready, None
        if ready is not None and ready[0] is hidden:
            return ready[1]
        return few_rows.prepare(hidden.reshape(-1, hidden.shape[-1]).contiguous(), self.before)

    def count(self, size: int, device: torch.device) -> Tensor:
        """Counters, allocated once per size: a captured pass needs them at a fixed address."""
        if size not in self.counts:
            self.counts[size] = torch.zeros(size, dtype=torch.int32, device=device)
        return self.counts[size]


def map_of(module: Any) -> few_rows.LinearMap:
    """The weights of a linear map, or of the fused one that it is a slice of."""
    whole = getattr(module, "joined", module)
    scale = whole.scale if whole is not module else getattr(module, "weight_scale", None)
    return few_rows.LinearMap(whole.weight, scale, whole.bias)


def narrowed(layer: Any) -> NarrowLayer | None:
    """The layer on the kernels, or None unless its class is known, its weights are of a type that they read, and its
    sizes are whole tiles."""
    if type(layer) not in (LlamaDecoderLayer, Qwen2DecoderLayer):
        return None
    narrow = NarrowLayer(layer)
    if not all(hasattr(each, "joined") for each in (narrow.attention.q_proj, narrow.mlp.gate_proj)):
        return None
    project, output, gate, down = maps = [map_of(each) for each in narrow.maps]
    head = layer.self_attn.head_dim
    biased = any(each.bias is not None for each in (output, gate, down))
    if biased or head & (head - 1) or not 32 <= head <= 128:
        return None
    if any(each.weight.dtype != (torch.bfloat16 if each.scale is None else CODES) for each in maps):
        return None
    if EMULATED in (getattr(getattr(each, "joined", each), "kind", None) for each in narrow.maps):
        return None
    least = LEAST if all(each.scale is None for each in maps) else LEAST_8
    if any(side(least, size) < least for each in (output, down) for size in each.weight.shape):
        return None
    programs = len(project.weight) // head, len(output.weight) // few_rows.ADD.outputs
    return narrow if min(programs) >= ENOUGH else None
