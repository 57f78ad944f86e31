"""Linear maps of the same input, fused into one matrix product: one kernel launch instead of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softdlm.models.fp8 import Fp8, Fp8Linear, product

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names in transformers of maps that take the same input, in the order in which they are called."""


class FusedLinear(nn.Module):
    """All weights in one tensor. The maps' own weights become views of it, so nothing is stored twice."""

    def __init__(self, maps: Sequence[Any]) -> None:
        super().__init__()
        self.sizes = [each.out_features for each in maps]
        self.weight = _one([each.weight for each in maps])
        self.bias = None if maps[0].bias is None else _one([each.bias for each in maps])
        self.kind: Fp8 | None = getattr(maps[0], "kind", None)
        self.scale = None if self.kind is None else _one([each.weight_scale for each in maps])
        self.results: tuple[Tensor, ...] = ()

    def slices(self) -> list[FusedSlice]:
        return [FusedSlice(self, index) for index in range(len(self.sizes))]

    def product(self, x: Float[Tensor, "*S in"]) -> Float[Tensor, "*S out"]:
        if self.kind is None or self.scale is None:
            return F.linear(x, self.weight, self.bias)
        return product(x, self.weight, self.scale, self.bias, self.kind)


class FusedSlice(nn.Module):
    """Takes the place of one map. The first one called computes all results, the last one called drops them."""

    def __init__(self, joined: FusedLinear, index: int) -> None:
        super().__init__()
        self.joined, self.index = joined, index

    def forward(self, x: Float[Tensor, "*S in"]) -> Float[Tensor, "*S out"]:
        joined = self.joined
        if self.index == 0:
            joined.results = joined.product(x).split(joined.sizes, -1)
        result = joined.results[self.index]
        if self.index == len(joined.sizes) - 1:
            joined.results = ()
        return result


def join(module: Any) -> Any:
    """The module itself, in which slices of a fused product replace the maps that GROUPS names."""
    for names, maps in _groups(module):
        for name, fused in zip(names, FusedLinear(maps).slices(), strict=True):
            setattr(module, name, fused)
    return module


def join_weights(module: Any) -> None:
    """Lay the weights as `join` does and leave the module as it is; a later `join` then moves nothing."""
    for _, maps in _groups(module):
        FusedLinear(maps)


def _groups(module: Any) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    for names in GROUPS:
        maps: list[Any] = [getattr(module, name, None) for name in names]
        alike = any(all(type(each) is kind for each in maps) for kind in (nn.Linear, Fp8Linear))
        if alike and len({each.bias is None for each in maps}) == 1:
            yield names, maps


@torch.no_grad()
def _one(tensors: Sequence[Tensor]) -> nn.Parameter:
    """One tensor that holds all of them. They become views of it; if they already are views of one, it is reused."""
    whole = _found(tensors)
    if whole is None:
        sizes = [len(each) for each in tensors]
        whole = tensors[0].new_empty(sum(sizes), *tensors[0].shape[1:])
        for tensor, part in zip(tensors, whole.split(sizes), strict=True):
            tensor.data = part.copy_(tensor)
    return nn.Parameter(whole, requires_grad=False)


def _found(tensors: Sequence[Tensor]) -> Tensor | None:
    """The tensor whose storage holds these one after another, as an earlier `join` left them; else None."""
    if not all(tensor.is_contiguous() for tensor in tensors):
        return None
    first, *others = tensors
    end = first.storage_offset() + first.numel()
    for tensor in others:
        if tensor.untyped_storage().data_ptr() != first.untyped_storage().data_ptr() or tensor.storage_offset() != end:
            return None
        end += tensor.numel()
    rows = sum(len(each) for each in tensors)
    return first.as_strided((rows, *first.shape[1:]), first.stride(), first.storage_offset())
