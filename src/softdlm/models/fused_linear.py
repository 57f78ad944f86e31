"""Linear maps of one input as one product, which a GPU launches once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of transformers' for maps of one input, in the order in which they are called."""


class Joined(nn.Module):
    """The maps' weights in one tensor, of which their own become views: no byte is kept twice."""

    def __init__(self, maps: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.sizes = [each.out_features for each in maps]
        self.weight = _one([each.weight for each in maps])
        self.bias = None if maps[0].bias is None else _one([each.bias for each in maps])
        self.results: tuple[Tensor, ...] = ()

    def parts(self) -> list[Part]:
        return [Part(self, index) for index in range(len(self.sizes))]


class Part(nn.Module):
    """Stands for one of the maps. The first of them to be called computes all, the last leaves nothing behind."""

    def __init__(self, joined: Joined, index: int) -> None:
        super().__init__()
        self.joined, self.index = joined, index

    def forward(self, x: Float[Tensor, "*S in"]) -> Float[Tensor, "*S out"]:
        joined = self.joined
        if self.index == 0:
            joined.results = F.linear(x, joined.weight, joined.bias).split(joined.sizes, -1)
        result = joined.results[self.index]
        if self.index == len(joined.sizes) - 1:
            joined.results = ()
        return result


def join(module: Any) -> None:
    """Replace the maps of GROUPS that a module has by their one product."""
    for names in GROUPS:
        maps: list[Any] = [getattr(module, name, None) for name in names]
        if all(type(each) is nn.Linear for each in maps) and len({each.bias is None for each in maps}) == 1:
            for name, part in zip(names, Joined(maps).parts(), strict=True):
                setattr(module, name, part)


@torch.no_grad()
def _one(tensors: Sequence[Tensor]) -> nn.Parameter:
    """All of them in one tensor, of which they become views; where they are that already, that tensor."""
    whole = _found(tensors)
    if whole is None:
        whole = torch.cat(list(tensors))
        for tensor, part in zip(tensors, whole.split([len(each) for each in tensors]), strict=True):
            tensor.data = part
    return nn.Parameter(whole, requires_grad=False)


def _found(tensors: Sequence[Tensor]) -> Tensor | None:
    """The tensor in whose storage these lie one after another, as an earlier join left them."""
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
