"""Which path is taken, and that a whole decode does not depend on it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import softdlm
from softdlm import Additive, Alternate, Euclidean, NormMix, Slerp, UsageError, kernels
from softdlm.feedback import FeedbackRule
from softdlm.feedback import fused as fused_feedback
from softdlm.kernels import soft, vocabulary_triton
from softdlm.predict import Sampling, fused
from softdlm.types import Canvas, Embeddings
from tests.conftest import DEVICE, tiny

CUDA = torch.device("cuda")


class Counted:
    """A function that knows how often it was called."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.calls += 1
        return self.function(*arguments, **keywords)


def test_kernels_are_for_gpus_unless_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.wanted(CUDA)
    assert not kernels.wanted(torch.device("cpu"))
    monkeypatch.setenv(kernels.SWITCH, "off")
    assert not kernels.wanted(CUDA)
    monkeypatch.setenv(kernels.SWITCH, "no")
    with pytest.raises(UsageError, match="SOFTDLM_KERNELS must be auto or off, not 'no'"):
        kernels.wanted(CUDA)


@pytest.mark.parametrize(
    ("settings", "dtype", "expected"),
    [
        ({}, torch.bfloat16, True),
        ({"forbid": (1,), "last": (2,), "k": 16, "top_p": 1.0}, torch.float32, True),
        ({"temperature": 0.1}, torch.bfloat16, False),
        ({"top_p": 0.9}, torch.bfloat16, False),
        ({"top_k": 5}, torch.bfloat16, False),
        ({"k": 17}, torch.bfloat16, False),
        ({"needs": frozenset({"mean"})}, torch.bfloat16, False),
        ({"min_p": 0.1}, torch.bfloat16, False),
        ({"confidence": "untempered"}, torch.bfloat16, True),
        ({"last_candidates": False}, torch.bfloat16, True),
        ({"last": (2,), "last_candidates": False}, torch.bfloat16, False),
        ({}, torch.float64, False),
    ],
)
def test_the_kernel_reduces_greedy_choices_only(settings: Any, dtype: torch.dtype, expected: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "wanted", lambda device: True)
        assert fused(Sampling(0, **settings), CUDA, dtype) is expected
    assert not fused(Sampling(0, **settings), torch.device("cpu"), dtype)


def test_the_kernel_feeds_back_plane_rules_only(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.empty(3, 4, dtype=torch.bfloat16)
    assert not fused_feedback(Slerp(), Embeddings(table, table[0]))
    monkeypatch.setattr(kernels, "wanted", lambda device: True)
    assert fused_feedback(Slerp(), Embeddings(table, table[0]))
    assert not fused_feedback(Slerp(), Embeddings(table.double(), table[0].double()))
    assert not any(fused_feedback(rule, Embeddings(table, table[0])) for rule in (Additive(), NormMix()))
    monkeypatch.setattr(kernels, "has_triton", lambda: False)
    assert not fused_feedback(Slerp(), Embeddings(table, table[0]))


@pytest.mark.parametrize(
    "rule", [Slerp(k=3, lam=0.4), Euclidean(k=2, lam=0.3), Additive(), Alternate(Slerp(k=2, lam=0.4), 3, 2)], ids=str
)
def test_a_decode_is_the_same_through_the_kernels(rule: FeedbackRule, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llada")
    canvas = Canvas.pack([[5, 6, 7], [8, 9]], [9, 7], model.mask_id, 0)

    def steps() -> list[Any]:
        keywords = {"commit": softdlm.TopN(2), "feedback": rule, "eos": "last"}
        return list(softdlm.denoise(model, canvas, **keywords))  # type: ignore[arg-type]

    plain = steps()
    reduce, write = Counted(vocabulary_triton.reduce_triton), Counted(soft.write_soft)
    monkeypatch.setattr(kernels, "wanted", lambda device: True)
    monkeypatch.setattr(vocabulary_triton, "reduce_triton", reduce)
    monkeypatch.setattr(soft, "write_soft", write)
    through = steps()
    assert [step.canvas.ids.tolist() for step in through] == [step.canvas.ids.tolist() for step in plain]
    for ours, theirs in zip(through, plain, strict=True):
        torch.testing.assert_close(
            ours.prediction.entropy, theirs.prediction.entropy, atol=1e-3, rtol=0, equal_nan=True
        )
    additive = isinstance(rule, Additive)
    assert (reduce.calls > 0, write.calls > 0) == (not additive, not additive)


def test_without_triton_a_gpu_takes_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers, without Triton's kernel."""
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    special = Sampling(4).special(logits.device)
    by_triton = kernels.reduce_greedy(logits, special, 2)
    monkeypatch.setattr(kernels, "has_triton", lambda: False)
    monkeypatch.setattr(vocabulary_triton, "reduce_triton", None)
    tiled = kernels.reduce_greedy(logits, special, 2)
    assert torch.equal(tiled.token, by_triton.token)
    torch.testing.assert_close(tiled.entropy, by_triton.entropy)
