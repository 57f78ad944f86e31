"""The kernels of a mixture of experts against transformers' own modules and against sorting and loops in torch."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, library
from transformers import Glm4MoeConfig
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeExperts, Glm4MoeTopkRouter

from softdlm.bench.shapes import SHAPES, build_model
from softdlm.kernels.experts import TILES, arrange, mix, mix_with, round_rows, tile_rows
from softdlm.kernels.router import route
from softdlm.kernels.tiles import Tiles
from softdlm.models import moe
from softdlm.models.fp8 import EMULATED, emulated_experts, rounded_rows
from softdlm.models.weights import Precision
from tests.conftest import DEVICE
from tests.strategies import generator

CONFIG = Glm4MoeConfig(
    hidden_size=48, moe_intermediate_size=32, n_routed_experts=32, num_experts_per_tok=3, n_group=4, topk_group=2,
    n_shared_experts=1, routed_scaling_factor=2.5, norm_topk_prob=True,
)  # fmt: skip
"""The width is no power of two."""
CONFIG._experts_implementation = "eager"


def drawn(module: Any, seed: int = 0) -> Any:
    source = generator(seed)
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data.normal_(generator=source)
    return module.to(DEVICE).requires_grad_(False)


def weighed(weights: Tensor, ids: Tensor, experts: int) -> Tensor:
    return torch.zeros(len(ids), experts, device=ids.device).scatter(1, ids, weights)


@settings(max_examples=25)
@given(tokens=st.integers(1, 90), experts=st.integers(1, 40), k=st.integers(1, 4), seed=st.integers(0, 99))
def test_choices_are_arranged_by_expert_each_in_order(tokens: int, experts: int, k: int, seed: int) -> None:
    ids = torch.randint(experts, (tokens, k), generator=generator(seed)).to(DEVICE)
    order, offsets = arrange(ids, experts)
    assert torch.equal(order.long(), ids.flatten().sort(stable=True).indices)
    counts = torch.bincount(ids.flatten(), minlength=experts)
    assert torch.equal(offsets[1:].long(), counts.cumsum(0))
    assert offsets[0] == 0


def test_more_choices_than_a_program_looks_at_together() -> None:
    ids = torch.randint(5, (1200, 2), generator=generator(1)).to(DEVICE)
    order, _ = arrange(ids, 5)
    assert torch.equal(order.long(), ids.flatten().sort(stable=True).indices)


@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("tokens", [1, 70])
def test_tokens_go_to_the_experts_that_the_stock_router_chooses(tokens: int, normed: bool) -> None:
    router = drawn(Glm4MoeTopkRouter(CONFIG))
    router.norm_topk_prob = normed
    x = torch.randn(tokens, 48, generator=generator(tokens)).to(DEVICE)
    logits, weights, ids = router(x)
    ours, our_weights, our_ids = route(x, router.weight, router.e_score_correction_bias, 4, 2, 3, normed, 2.5)
    assert torch.allclose(ours, logits, atol=1e-4)
    assert torch.equal(our_ids.sort(1).values, ids.sort(1).values)
    assert torch.allclose(weighed(our_weights, our_ids, 32), weighed(weights, ids, 32), atol=1e-6)


def test_the_router_keeps_float32_precision_for_bfloat16_rows() -> None:
    router = drawn(Glm4MoeTopkRouter(CONFIG))
    x = torch.randn(70, 48, generator=generator(5)).bfloat16().to(DEVICE)
    logits, _, _ = route(x, router.weight, router.e_score_correction_bias, 4, 2, 3, True, 2.5)
    exact = x.double() @ router.weight.double().T
    assert (logits - exact).abs().max() < 3e-6 * exact.abs().max()
    assert (x @ router.weight.bfloat16().T - exact).abs().max() > 1e-3 * exact.abs().max(), "bfloat16 has not"


def test_among_equal_experts_the_first_are_chosen() -> None:
    weight, bias = torch.zeros(32, 48, device=DEVICE), torch.zeros(32, device=DEVICE)
    _, weights, ids = route(torch.ones(2, 48, device=DEVICE), weight, bias, 4, 2, 3, True, 3.0)
    assert ids.tolist() == [[0, 1, 2]] * 2
    assert torch.allclose(weights, torch.ones_like(weights))


@pytest.mark.parametrize(
    ("tiles", "rows"), [(TILES, 16), (Tiles(16, 16), 16), (TILES, 64), (TILES, tile_rows(120, 48))]
)
@pytest.mark.parametrize("experts", [48, 2])
def test_experts_make_what_the_stock_ones_make(tiles: Tiles, rows: int, experts: int) -> None:
    """Of two experts each gets more tokens than the least tile holds; of 48, no power of two, some get none."""
    config = deepcopy(CONFIG)
    config.n_routed_experts = config.num_local_experts = 48
    module = drawn(Glm4MoeExperts(config))
    x = torch.randn(40, 48, generator=generator(3)).to(DEVICE)
    ids = torch.stack([torch.randperm(48, generator=generator(n))[:3] % experts for n in range(40)]).to(DEVICE)
    weights = torch.rand(40, 3, generator=generator(4)).to(DEVICE)
    made = mix_with(tiles, rows, x, ids, weights, module.gate_up_proj, module.down_proj)
    expected = module(x, ids, weights)
    assert torch.allclose(made, expected, atol=1e-5 * expected.abs().max().item())


def test_no_tokens_give_none() -> None:
    module = drawn(Glm4MoeExperts(CONFIG))
    none = torch.empty(0, 3, device=DEVICE)
    made = mix(torch.empty(0, 48, device=DEVICE), none.long(), none, module.gate_up_proj, module.down_proj)
    assert made.shape == (0, 48)


def test_a_compiler_is_told_the_shapes() -> None:
    module, router = drawn(Glm4MoeExperts(CONFIG)), drawn(Glm4MoeTopkRouter(CONFIG))
    x = torch.randn(5, 48, generator=generator(5)).to(DEVICE)
    asked = (x, router.weight, router.e_score_correction_bias, 4, 2, 3, True, 2.5)
    _, weights, ids = route(*asked)
    checks = ("test_schema", "test_faketensor")
    library.opcheck(route, asked, test_utils=checks)
    library.opcheck(mix, (x, ids, weights, module.gate_up_proj, module.down_proj), test_utils=checks)


def test_a_network_on_the_kernels_is_the_same_network() -> None:
    shape, device = SHAPES["tiny-llada2"], torch.device(DEVICE)
    model = build_model(shape, device, torch.float32)
    model.network.set_experts_implementation("eager")
    embeds = torch.randn(2, 20, 32, generator=generator(6)).to(DEVICE)
    before = model.hidden(embeds)
    assert moe.fuse(model.network)
    calls = []
    assert model.network.config._experts_implementation == moe.EXPERTS
    for module in model.network.modules():
        if isinstance(module, moe.Router):
            module.register_forward_hook(lambda *_: calls.append(1))
    assert torch.allclose(model.hidden(embeds), before, atol=1e-5)
    assert len(calls) == 1, "the second of two layers is a mixture"


@pytest.mark.parametrize(
    ("dtype", "hidden"),
    [(torch.float64, 32), (torch.float32, 24), (Precision(torch.float32, EMULATED), 48)],
)
def test_what_does_not_fit_is_left_as_it_is(dtype: torch.dtype | Precision, hidden: int) -> None:
    config = {**(SHAPES["tiny-llada2"].config or {}), "hidden_size": hidden}
    model = build_model(type(SHAPES["tiny-llada2"])("odd", config), torch.device("cpu"), dtype)
    before = model.network.config._experts_implementation
    assert not moe.fuse(model.network)
    assert model.network.config._experts_implementation == before
    assert not any(isinstance(module, moe.Router) for module in model.network.modules())


@pytest.mark.parametrize(("tokens", "experts"), [(40, 48), (3, 2)])
def test_experts_in_eight_bits_make_what_plain_torch_makes_of_the_same_rounding(tokens: int, experts: int) -> None:
    config = deepcopy(CONFIG)
    config.n_routed_experts = config.num_local_experts = 48
    config.hidden_size = 64
    module = drawn(Glm4MoeExperts(config))
    x = torch.randn(tokens, 64, generator=generator(3)).to(DEVICE)
    ids = torch.stack([torch.randperm(48, generator=generator(n))[:3] % experts for n in range(tokens)]).to(DEVICE)
    weights = torch.rand(tokens, 3, generator=generator(4)).to(DEVICE)
    exact = module(x, ids, weights)
    for name in ("gate_up_proj", "down_proj"):
        codes, scale = rounded_rows(getattr(module, name))
        setattr(module, name, torch.nn.Parameter(codes, requires_grad=False))
        setattr(module, f"{name}_scale", torch.nn.Parameter(scale.squeeze(-1), requires_grad=False))
    scales = module.gate_up_proj_scale, module.down_proj_scale
    tiles = Tiles(outputs=32, inputs=32)  # one tile holds all that a token's second product reads, as one row does
    made = mix_with(tiles, 16, x, ids, weights, module.gate_up_proj, module.down_proj, scales)
    expected = emulated_experts(module, x, ids, weights)
    assert (made - expected).norm() < (0.01 if DEVICE == "cuda" else 0.12) * expected.norm()
    assert 0.01 < (made - exact).norm() / exact.norm() < 0.15


def test_rows_are_rounded_as_in_torch() -> None:
    x = torch.randn(5, 48, generator=generator(1)).to(DEVICE)
    x[1], x[2] = 0, x[2] * 1e-20
    codes, scales = round_rows(x)
    expected, factor = rounded_rows(x)
    same = torch.isclose(codes.float(), expected.float(), rtol=0.0 if DEVICE == "cuda" else 0.13, atol=0.0)
    assert same.all() or (DEVICE == "cpu" and same.float().mean() > 0.9), "the interpreter loses carries of e4m3"
    assert torch.equal(scales, factor.squeeze(1))
