"""A stock network with compiled layers: one compilation per shape serves all layers.

Compiling a layer takes seconds where the whole network takes a minute, because layers of equal shape share the result.
To share it they must look the same, so the index by which a layer finds its keys and values stays outside.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from softdlm import kernels
from softdlm.models.fused_linear import join

Kind = TypeVar("Kind", bound=nn.Module)
SHAPES = 4096
"""Most compilations of a function in a process. torch's own limits, 8 and 256, would end decodes of a long process."""


def keep_compilations() -> None:
    """Have torch keep what it compiles in the user's cache folder, for later processes; its own choice is in /tmp.

    torch notes its choice in the environment. What the user chose there stays.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    theirs = default_cache_dir()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for name, folder in {"TORCHINDUCTOR_CACHE_DIR": "compiled", "TRITON_CACHE_DIR": "kernels"}.items():
        if os.environ.get(name, theirs).startswith(theirs):
            os.environ[name] = os.path.join(base, "softdlm", folder)


def compile_fixed(work: Callable[..., Any], **compiler: Any) -> Callable[..., Any]:
    """A function that torch compiles once per shape; `compiler` holds options of torch.compile."""
    keep_compilations()
    compiled = torch.compile(work, dynamic=False, **compiler)

    def run(*arguments: Any, **named: Any) -> Any:
        limits: Any = {"recompile_limit": SHAPES, "accumulated_recompile_limit": SHAPES}
        with torch._dynamo.config.patch(**limits, fail_on_recompile_limit_hit=True):
            return compiled(*arguments, **named)

    return run


class CompiledLayer(nn.Module):
    """A compiled decoder layer; it shares its weights with the layer of transformers that it was made from."""

    def __init__(self, layer: Any, index: int, **compiler: Any) -> None:
        super().__init__()
        alike = twin(layer)
        alike.self_attn = join(twin(layer.self_attn))
        alike.self_attn.layer_idx = 0
        if hasattr(alike, "mlp"):
            alike.mlp = join(twin(alike.mlp))
            if hasattr(alike.mlp, "shared_experts"):
                alike.mlp.shared_experts = join(twin(alike.mlp.shared_experts))
        self.index, self.run, self.narrow = index, compile_fixed(alike, **compiler), narrowed(alike)

    def forward(self, hidden_states: Tensor, past_key_values: Any = None, **inputs: Any) -> Any:
        kept = None if past_key_values is None else past_key_values.layers[self.index]
        if self.narrow and self.narrow.fits(hidden_states, kept, inputs["attention_mask"]):
            return self.narrow(hidden_states, kept, inputs["position_embeddings"])
        return self.run(hidden_states, past_key_values=kept, **inputs)


def narrowed(layer: Any) -> Any:
    """The layer on the kernels for few rows, or None where they are switched off or the GPU is older than Hopper."""
    device = layer.input_layernorm.weight.device
    if not (kernels.wanted(device) and kernels.has_triton() and torch.cuda.get_device_capability(device) >= (9, 0)):
        return None
    from softdlm.models import narrow_layers

    return narrow_layers.narrowed(layer)


def compiled_body(body: Any, **compiler: Any) -> Any:
    """The network without its head, with compiled layers; `compiler` holds options of torch.compile."""
    other = twin(body)
    layers = [CompiledLayer(layer, n, **compiler) for n, layer in enumerate(body.layers)]
    for layer, following in pairwise(layers):
        if layer.narrow:
            layer.narrow.following = following.narrow
    other.layers = nn.ModuleList(layers)
    return other.eval()


def scratch(body: Any) -> list[Tensor]:
    """Tensors that compiled layers write to besides their results."""
    return [count for layer in body.layers if layer.narrow for count in layer.narrow.counts.values()]


def twin(module: Kind) -> Kind:
    """A shallow copy: a new module with the same parameters and submodules."""
    other = copy.copy(module)
    other._modules = dict(module._modules)
    return other
