"""Layers of Llama's and Qwen2's kind on the kernels for few rows. Importing this imports transformers and Triton."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from softdlm.kernels import thin
from softdlm.models.layers import WindowLayer


class ThinLayer:
    """A decoder layer whose maps are joined, for cached steps of few rows."""

    def __init__(self, layer: Any) -> None:
        self.attention, self.mlp = layer.self_attn, layer.mlp
        self.norms = layer.input_layernorm, layer.post_attention_layernorm
        self.counts: dict[int, Tensor] = {}

    def fits(self, hidden: Float[Tensor, "B Q D"], kept: WindowLayer | None, pattern: Tensor | None) -> bool:
        """Few rows, which see all that is kept, and of which some keys are old."""
        if kept is None or pattern is not None or hidden.shape[0] * hidden.shape[1] > thin.MOST:
            return False
        window, keys = kept.window, kept.stored[0]
        return window.written is not None and (len(window.rows), len(window.keys)) == (keys.shape[0], keys.shape[2])

    def __call__(
        self, hidden: Float[Tensor, "B Q D"], kept: WindowLayer, turn: tuple[Tensor, Tensor]
    ) -> Float[Tensor, "B Q D"]:
        before, after = self.norms
        x, window, (keys, values) = hidden.reshape(-1, hidden.shape[-1]), kept.window, kept.stored
        assert window.written is not None
        maps = self.attention.q_proj.joined
        queries = thin.project(
            x, before.weight, before.variance_epsilon, maps.weight, maps.bias, turn, keys, values,
            window.columns, window.written,
        )  # fmt: skip
        count = self.count(len(keys) * queries.shape[1], x.device)
        seen = thin.attend(queries, keys, values, self.attention.scaling, count)
        x = thin.add(seen, self.attention.o_proj.weight, x)
        inner = thin.gate(x, after.weight, after.variance_epsilon, self.mlp.gate_proj.joined.weight)
        return thin.add(inner, self.mlp.down_proj.weight, x).view_as(hidden)

    def count(self, size: int, device: torch.device) -> Tensor:
        """Made once: a captured pass must find it where it was."""
        if size not in self.counts:
            self.counts[size] = torch.zeros(size, dtype=torch.int32, device=device)
        return self.counts[size]


def thinned(layer: Any) -> ThinLayer | None:
    """For a layer that the kernels can do: of a known kind, in bfloat16, its sizes made of tiles."""
    if type(layer) not in (LlamaDecoderLayer, Qwen2DecoderLayer):
        return None
    weights = [layer.mlp.down_proj.weight, layer.self_attn.o_proj.weight]
    maps = [getattr(part, "joined", None) for part in (layer.self_attn.q_proj, layer.mlp.gate_proj)]
    biased = any(each.bias is not None for each in (layer.mlp.down_proj, layer.self_attn.o_proj))
    head = layer.self_attn.head_dim
    if None in maps or maps[1].bias is not None or biased or head & (head - 1) or not 32 <= head <= 128:
        return None
    sizes = [side for weight in weights for side in weight.shape]
    if weights[0].dtype != torch.bfloat16 or any(side & -side < thin.LEAST for side in sizes):
        return None
    return ThinLayer(layer)
