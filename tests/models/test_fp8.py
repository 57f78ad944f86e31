"""Weights in eight bits: what is rounded, how, and how far predictions move. All of it by emulation, on any device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import softdlm
from softdlm.bench.shapes import SHAPES, build_model
from softdlm.engine.pick_engine import EngineKind
from softdlm.errors import UsageError
from softdlm.evaluate.cell import TaskSpec
from softdlm.evaluate.task import load_eval_task
from softdlm.models.fp8 import CODES, Fp8Linear, product, rounded_rows
from softdlm.models.fused_linear import join
from softdlm.models.weights import Precision
from tests.strategies import generator

EMULATED = Precision(torch.bfloat16, "fp8-emulated")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {kind: softdlm.load("builtin", device="cpu", dtype=kind) for kind in ("float32", "bfloat16", "fp8-emulated")}


def test_each_row_is_rounded_to_four_bits_and_keeps_its_largest_value() -> None:
    x = torch.randn(40, 64, generator=generator(0)) * torch.logspace(-6, 6, 40)[:, None]
    codes, scale = rounded_rows(x)
    back = codes.float() * scale
    assert codes.dtype == CODES
    assert torch.allclose(back.abs().amax(1), x.abs().amax(1))
    assert ((back - x).abs() <= x.abs() / 16 + scale * 2**-10).all()
    assert not rounded_rows(torch.zeros(2, 16))[0].float().any()


def test_matrices_of_layers_are_rounded_while_they_are_loaded_and_nothing_else(models: dict[str, Any]) -> None:
    exact = dict(models["float32"].network.named_parameters())
    eight = dict(models["fp8-emulated"].network.named_parameters())
    shrunk = [name for name, value in eight.items() if value.dtype == CODES]
    assert len(shrunk) == 7 * models["float32"].network.config.num_hidden_layers - 5
    for name in shrunk:
        codes, scale = rounded_rows(exact[name])
        assert torch.equal(eight[name].float(), codes.float())
        assert torch.equal(eight[f"{name}_scale"], scale.squeeze(1))
    rest = [name for name in exact if name not in shrunk]
    assert all(torch.equal(eight[name], exact[name].bfloat16()) for name in rest)
    assert models["fp8-emulated"].precision == "fp8-emulated"


def test_joined_maps_make_what_they_make_apart() -> None:
    layer = build_model(SHAPES["tiny-dream"], CPU, EMULATED).network.model.layers[0]
    x = torch.randn(1, 5, layer.mlp.gate_proj.weight.shape[1], generator=generator(1)).bfloat16()
    apart = [getattr(layer.mlp, name)(x) for name in ("gate_proj", "up_proj")]
    kept = layer.mlp.gate_proj
    join(layer.mlp)
    assert layer.mlp.gate_proj is not kept
    assert all(torch.equal(a, b) for a, b in zip(apart, [layer.mlp.gate_proj(x), layer.mlp.up_proj(x)], strict=True))


def test_a_product_has_both_scales_and_the_bias() -> None:
    x, weight = (torch.randn(n, 32, generator=generator(n)).bfloat16() for n in (3, 48))
    bias = torch.full((48,), 100.0).bfloat16()
    codes, scale = rounded_rows(weight)
    made = product(7 * x, codes, scale.squeeze(1), bias, "fp8-emulated")
    expected = 7 * x.float() @ weight.float().T + 100
    assert (made.float() - expected).abs().max() < 0.05 * (expected - 100).abs().max() + 0.5


@pytest.mark.parametrize("shape", ["tiny-llada", "tiny-dream", "tiny-llada2"])
def test_every_family_decodes_in_eight_bits_the_same_under_both_engines(shape: str) -> None:
    model = build_model(SHAPES[shape], CPU, EMULATED)
    assert any(isinstance(module, Fp8Linear) for module in model.network.modules())
    assert not any(type(each) is nn.Linear for layer in model.network.model.layers[:-1] for each in layer.modules())
    ways: tuple[EngineKind, ...] = ("dynamic", "static")
    made = [softdlm.generate(model, [5, 6, 7], max_new_tokens=12, tokens_per_step=3, engine=way) for way in ways]
    assert made[0].canvas_ids == made[1].canvas_ids


def test_predictions_move_about_two_and_a_half_times_as_far_as_in_bfloat16(models: dict[str, Any]) -> None:
    """Open positions whose likeliest token is another one than in float32; on few canvases, so with room for chance."""
    prompts = [item.prompt for item in load_eval_task(TaskSpec("mini-math", "validation", 32), models["float32"]).items]
    answers = softdlm.generate(models["float32"], prompts, chat=False, max_new_tokens=64, tokens_per_step=8)
    places = torch.rand(len(prompts), 64, generator=generator(2))
    moved = dict.fromkeys(("bfloat16", "fp8-emulated"), 0)
    for answer, place in zip(answers, places, strict=True):
        for share in (0.5, 1.0):
            tokens = torch.tensor(answer.canvas_ids)
            ids = torch.cat(
                [torch.tensor(answer.trace.prompt_ids), tokens.masked_fill(place < share, models["float32"].mask_id)]
            )
            best = {kind: best_tokens(model, ids) for kind, model in models.items()}
            for kind in moved:
                moved[kind] += int((best[kind] != best["float32"]).sum())
    assert 0 < moved["bfloat16"] < moved["fp8-emulated"] <= 3 * moved["bfloat16"]


def best_tokens(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits = model.logits(ids[None])[0].float()
    logits[:, model.mask_id] = -torch.inf
    return logits.argmax(-1)[ids == model.mask_id]


def test_a_cpu_says_what_it_can_do() -> None:
    with pytest.raises(UsageError, match=r"dtype fp8 needs a GPU of Hopper or later, not cpu: .* fp8-emulated"):
        softdlm.load("builtin", device="cpu", dtype="fp8")
