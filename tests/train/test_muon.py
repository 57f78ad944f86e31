"""Muon for many matrices at once gives what torch's own gives one by one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from softdlm.train.muon import Muon, orthogonalised


def matrices(*shapes: tuple[int, int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def test_three_updates_equal_those_of_torch() -> None:
    shapes = ((8, 8), (8, 8), (24, 8), (8, 24), (8, 24))
    ours, theirs = ([nn.Parameter(each.clone()) for each in matrices(*shapes)] for _ in range(2))
    mine = Muon([ours[:2], ours[2:3], ours[3:]], lr=0.02, weight_decay=0.1, momentum=0.9)
    reference = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        mine.step()
        reference.step()
    for a, b, first in zip(ours, theirs, matrices(*shapes), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-3)  # bfloat16 products of another order
        assert (a - first).abs().max() > 0.01


def test_singular_values_come_near_one() -> None:
    values = torch.linalg.svdvals(orthogonalised(torch.stack(matrices((16, 6), (16, 6)))).float())
    assert ((values > 0.6) & (values < 1.3)).all()
