"""Who sees whom is what we say, and linear maps that are joined stay what they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionMaskInterface

import softdlm
from softdlm.models.fused_linear import join


def masks_of(monkeypatch: pytest.MonkeyPatch, **sight: Any) -> list[Tensor | None]:
    """The masks that attention meets in a pass, when transformers makes one of ones wherever it makes masks.

    Some of its versions do so while a CUDA graph is captured.
    """
    seen: list[Tensor | None] = []
    stock = F.scaled_dot_product_attention

    def spy(*tensors: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
        seen.append(attn_mask)
        assert not options.get("is_causal")
        return stock(*tensors, attn_mask=attn_mask, **options)

    ones = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    for name in list(AttentionMaskInterface._global_mapping):
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, name, lambda *args, **named: ones)
    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    model = softdlm.load("builtin", device="cpu")
    model.hidden(model.embed(torch.arange(5, 13)[None]), **sight)
    return seen


def test_no_pattern_is_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = masks_of(monkeypatch)
    assert seen
    assert all(mask is None for mask in seen)


def test_a_pattern_arrives_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.tensor([[False, False, *[True] * 6]])
    seen = masks_of(monkeypatch, attention_mask=real)
    expected = real.expand(8, 8) | torch.eye(8, dtype=torch.bool)
    assert seen
    assert all(mask is not None and torch.equal(mask[0, 0], expected) for mask in seen)


class Block(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(6, size, bias=bias) for size in (8, 4, 2))
        self.gate_proj = nn.Linear(6, 3, bias=bias)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.q_proj(x), self.k_proj(x), self.v_proj(x), self.gate_proj(x)]


@pytest.mark.parametrize("bias", [False, True])
def test_joined_maps_give_what_they_gave_and_keep_no_weight_twice(bias: bool) -> None:
    block: Any = Block(bias).requires_grad_(False)
    maps = [block.q_proj, block.k_proj, block.v_proj]
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    before = block(x)
    join(block)
    assert isinstance(block.gate_proj, nn.Linear)  # alone, without up_proj
    for ours, theirs in zip(block(x), before, strict=True):
        torch.testing.assert_close(ours, theirs)
    whole = block.q_proj.joined.weight
    assert whole.shape == (14, 6)
    assert {each.weight.untyped_storage().data_ptr() for each in maps} == {whole.untyped_storage().data_ptr()}
    assert block.q_proj.joined.results == ()
    for each, theirs in zip(maps, before, strict=False):
        torch.testing.assert_close(each(x), theirs)
    again: Any = Block(bias)
    again.q_proj, again.k_proj, again.v_proj = maps
    join(again)
    assert again.q_proj.joined.weight.data_ptr() == whole.data_ptr()
    torch.testing.assert_close(again(x)[:3], before[:3])
    turned: Any = Block(bias)
    turned.q_proj, turned.k_proj, turned.v_proj = maps[1], maps[0], maps[2]
    join(turned)
    torch.testing.assert_close(turned(x)[:3], [before[1], before[0], before[2]])
