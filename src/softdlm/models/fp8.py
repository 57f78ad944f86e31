"""Weights in eight bits: the layers' matrices as e4m3, with one float32 scale per output.

Products of many rows also take their input as e4m3, each row with a scale of its own. Embeddings, head, norms and a
mixture's router keep their type, and so does everything between the products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softdlm.errors import UsageError

Fp8 = Literal["fp8", "fp8-emulated"]
CODES = torch.float8_e4m3fn
LARGEST = 448.0
"""The largest number of e4m3."""
TINY = 1e-12
SCALE = "_scale"
"""How the name of a weight's scales ends."""
SIDE = 16
"""The GPU's products need sides that are multiples of it."""
KEPT = ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")
"""Maps of the last layer that keep their type. On 51,133 open positions of the built-in network, predictions that
differ from float32's are 2.4 times as many as in bfloat16, and 2.8 times with these in eight bits too."""
EMULATED: Literal["fp8-emulated"] = "fp8-emulated"
EXPERTS = "softdlm-fp8-emulated"
"""Name under which transformers finds our experts in plain torch."""


def check_device(device: torch.device) -> None:
    """Refuse a device that cannot multiply in e4m3 fast."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        raise UsageError(
            f"dtype fp8 needs a GPU of Hopper or later, not {device}: take bfloat16, or fp8-emulated, which rounds the "
            "same way anywhere and is slow"
        )


def rounded_rows(x: Float[Tensor, "*S K"]) -> tuple[Float[Tensor, "*S K"], Float[Tensor, "*S 1"]]:
    """Each row as e4m3, and its scale: the row's largest value becomes the largest that e4m3 has."""
    wide = x.float()
    scale = wide.abs().amax(-1, keepdim=True).clamp(min=TINY) / LARGEST
    return (wide / scale).clamp(-LARGEST, LARGEST).to(CODES), scale


def product(
    x: Float[Tensor, "*S K"], weight: Float[Tensor, "N K"], scale: Float[Tensor, "N"], bias: Tensor | None, kind: Fp8
) -> Float[Tensor, "*S N"]:
    """`F.linear` of e4m3 weights, in the type of x.

    Scales are applied to the result, where compiled layers fuse them with what follows: the GPU's product with a scale
    per row is no faster with many rows, and up to twice as slow with few (benchmarks/fp8_products.py).
    """
    codes, factor = rounded_rows(x.reshape(-1, x.shape[-1]))
    if kind == EMULATED:
        made = (F.linear(codes.float(), weight.float()) * factor * scale).to(x.dtype)
    else:
        one = torch.ones((), device=x.device)
        multiply: Any = torch._scaled_mm  # type: ignore[reportPrivateImportUsage]
        bare = multiply(codes, weight.t(), one, one, out_dtype=x.dtype, use_fast_accum=True)
        made = (bare.float() * factor * scale).to(x.dtype)
    made = made.view(*x.shape[:-1], len(weight))
    return made if bias is None else made + bias


class Fp8Linear(nn.Module):
    """Takes the place of an `nn.Linear`; its weights are filled by `fill`."""

    def __init__(self, linear: nn.Linear, kind: Fp8) -> None:
        super().__init__()
        weight = linear.weight
        self.out_features = linear.out_features
        self.kind: Fp8 = kind
        self.weight = nn.Parameter(torch.empty_like(weight, dtype=CODES), requires_grad=False)
        scale = torch.empty(weight.shape[0], dtype=torch.float32, device=weight.device)
        self.weight_scale = nn.Parameter(scale, requires_grad=False)
        self.bias = linear.bias

    def forward(self, x: Float[Tensor, "*S K"]) -> Float[Tensor, "*S N"]:
        return product(x, self.weight, self.weight_scale, self.bias, self.kind)


def shrink(network: Any, kind: Fp8) -> None:
    """Turn the matrices of a network's layers, on the meta device, into e4m3 with scales.

    The last layer keeps its attention and its way back to the residual stream (KEPT): nothing after it evens out their
    error.
    """
    last = {*network.model.layers[-1].modules()}
    for module in [*network.model.layers.modules()]:
        for name, child in [*module.named_children()]:
            kept = module in last and name in KEPT
            if type(child) is nn.Linear and _fits(child.weight) and not kept:
                setattr(module, name, Fp8Linear(child, kind))
        for name, value in [*module.named_parameters(recurse=False)]:
            if value.ndim == 3 and _fits(value):
                codes, scale = torch.empty_like(value, dtype=CODES), torch.empty(value.shape[:-1], device=value.device)
                setattr(module, name, nn.Parameter(codes, requires_grad=False))
                setattr(module, name + SCALE, nn.Parameter(scale, requires_grad=False))


def _fits(weight: Tensor) -> bool:
    return all(side % SIDE == 0 for side in weight.shape[-2:])


def stored_types(network: nn.Module) -> Iterator[tuple[str, torch.dtype]]:
    """The names of e4m3 weights and of their scales, each with its type."""
    for name, value in network.state_dict().items():
        if value.dtype == CODES:
            yield name, CODES
            yield name + SCALE, torch.float32


def fill(loaded: Mapping[str, Tensor], name: str, index: Any, values: Tensor, rows: slice = slice(None)) -> Tensor:
    """Write values to their place, rounded to e4m3 where it holds that; returns what tells whether they fit."""
    home, scales = loaded[name][index][rows], loaded.get(name + SCALE)
    if scales is None:
        return home.copy_(values)
    codes, scale = rounded_rows(values.to(home.device))
    home.copy_(codes)
    return scales[index][rows].copy_(scale.squeeze(-1))


def emulate_experts(network: Any) -> None:
    """Have a mixture's experts in e4m3 run in plain torch: slow, and with the rounding of the real ones."""
    from transformers.integrations.moe import ExpertsInterface

    ExpertsInterface.register(EXPERTS, emulated_experts)
    network.set_experts_implementation(EXPERTS)


def emulated_experts(
    module: Any, hidden: Float[Tensor, "N D"], ids: Int[Tensor, "N k"], weights: Float[Tensor, "N k"]
) -> Float[Tensor, "N D"]:
    """Every expert on every token, weighed by its share, which is 0 where it was not chosen."""
    made = torch.zeros_like(hidden, dtype=torch.float32)
    for number in range(len(module.down_proj)):
        share = torch.where(ids == number, weights, 0).sum(1, keepdim=True)
        both = product(hidden, module.gate_up_proj[number], module.gate_up_proj_scale[number], None, EMULATED)
        gate, up = both.chunk(2, -1)
        down, scale = module.down_proj[number], module.down_proj_scale[number]
        made += share * product(F.silu(gate) * up, down, scale, None, EMULATED)
    return made.to(hidden.dtype)
