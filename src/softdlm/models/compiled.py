"""A stock network whose layers run compiled: one compilation for all layers, per shape.

Compiling a layer instead of the whole body takes seconds instead of a minute, because layers of equal shape share it.
For that they must look alike: the number by which a layer finds its keys and values is taken out of the compiled part.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from softdlm import kernels
from softdlm.models.fused_linear import join

Kind = TypeVar("Kind", bound=nn.Module)
SHAPES = 256
"""Compilations of a function that are kept; torch's own limit is 8, after which it would stop compiling."""


def compile_fixed(work: Callable[..., Any], **compiler: Any) -> Callable[..., Any]:
    """Compiled once per shape; `compiler` are options of torch.compile."""
    compiled = torch.compile(work, dynamic=False, **compiler)

    def run(*arguments: Any, **named: Any) -> Any:
        with torch._dynamo.config.patch(recompile_limit=SHAPES, fail_on_recompile_limit_hit=True):
            return compiled(*arguments, **named)

    return run


class CompiledLayer(nn.Module):
    """A decoder layer of transformers, the weights shared with it."""

    def __init__(self, layer: Any, index: int, **compiler: Any) -> None:
        super().__init__()
        alike = twin(layer)
        alike.self_attn = twin(layer.self_attn)
        alike.self_attn.layer_idx = 0
        join(alike.self_attn)
        if hasattr(alike, "mlp"):
            alike.mlp = twin(alike.mlp)
            join(alike.mlp)
        if hasattr(alike, "mlp") and hasattr(alike.mlp, "shared_experts"):
            alike.mlp.shared_experts = twin(alike.mlp.shared_experts)
            join(alike.mlp.shared_experts)
        self.index, self.run, self.narrow = index, compile_fixed(alike, **compiler), narrowed(alike)

    def forward(self, hidden_states: Tensor, past_key_values: Any = None, **sight: Any) -> Any:
        kept = None if past_key_values is None else past_key_values.layers[self.index]
        if self.narrow and self.narrow.fits(hidden_states, kept, sight["attention_mask"]):
            return self.narrow(hidden_states, kept, sight["position_embeddings"])
        return self.run(hidden_states, past_key_values=kept, **sight)


def narrowed(layer: Any) -> Any:
    """The layer for few rows, where kernels are wanted and on the kind of GPU that they were measured on; else None."""
    device = layer.input_layernorm.weight.device
    if not (kernels.wanted(device) and kernels.has_triton() and torch.cuda.get_device_capability(device) >= (9, 0)):
        return None
    from softdlm.models import narrow_layers

    return narrow_layers.narrowed(layer)


def compiled_body(body: Any, **compiler: Any) -> Any:
    """The network without its head, as it is but for its layers; `compiler` are options of torch.compile."""
    other = twin(body)
    layers = [CompiledLayer(layer, n, **compiler) for n, layer in enumerate(body.layers)]
    for layer, following in pairwise(layers):
        if layer.narrow:
            layer.narrow.following = following.narrow
    other.layers = nn.ModuleList(layers)
    return other.eval()


def twin(module: Kind) -> Kind:
    """The same parameters and submodules, in a module of its own."""
    other = copy.copy(module)
    other._modules = dict(module._modules)
    return other
