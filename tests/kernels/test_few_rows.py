"""Layers of few rows against the stock layers that they stand for, and against attention in torch."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, Qwen2Config
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

import softdlm
from softdlm import Slerp, TopN
from softdlm.bench.shapes import LLADA_8B, SHAPES, build_model
from softdlm.kernels import few_rows
from softdlm.kernels import split_kv_attention as attention
from softdlm.kernels.split_kv_attention import attend
from softdlm.kernels.tiles import Tiles
from softdlm.models import compiled
from softdlm.models.attention import bidirectional
from softdlm.models.fp8 import EMULATED, Fp8Linear, fill, rounded_rows
from softdlm.models.fused_linear import join
from softdlm.models.hf_cache import WindowLayer
from softdlm.models.kv_memory import Window
from softdlm.models.narrow_layers import NarrowLayer, narrowed
from tests.conftest import DEVICE
from tests.strategies import generator

KINDS: dict[str, Any] = {
    "llama": (LlamaDecoderLayer, LlamaConfig, {"num_attention_heads": 2, "num_key_value_heads": 2}),
    "qwen2": (Qwen2DecoderLayer, Qwen2Config, {"num_attention_heads": 6, "num_key_value_heads": 2}),
}
"""Qwen2 has biases, and heads that share keys."""


@dataclass(frozen=True)
class Case:
    """A stock layer, the same one with joined maps, and rows in the midst of a cache."""

    stock: Any
    joined: Any
    x: Tensor
    turn: Any
    window: Window
    keys: Tensor
    values: Tensor

    @staticmethod
    def of(kind: str, rows: int = 9, length: int = 300, seed: int = 0) -> Case:
        layer_type, config_type, heads = KINDS[kind]
        width = 32 * heads["num_attention_heads"]
        config = config_type(hidden_size=width, intermediate_size=96, head_dim=32, **heads, **bidirectional())
        stock = layer_type(config, 0).eval().requires_grad_(False)
        source = generator(seed)
        for tensor in stock.parameters():
            tensor.normal_(0, 0.3, generator=source)
        stock = stock.to(DEVICE)
        joined = deepcopy(stock)
        join(joined.self_attn)
        join(joined.mlp)
        columns = torch.tensor([[5], [length - rows]]) + torch.arange(rows)
        written = torch.rand(2, rows, generator=generator(seed)) > 0.3
        all_rows, all_keys = torch.arange(2), torch.arange(length)
        window = Window(*(each.to(DEVICE) for each in (all_rows, all_keys, columns, columns, written)))
        x = torch.randn(2, rows, width, generator=generator(seed + 1)).to(DEVICE)
        kept = (2, heads["num_key_value_heads"], length, 32)
        keys, values = (torch.randn(kept, generator=generator(seed + n)).to(DEVICE) for n in (2, 3))
        turn = LlamaRotaryEmbedding(config).to(DEVICE)(x, window.columns)
        return Case(stock, joined, x, turn, window, keys, values)

    def kept(self) -> WindowLayer:
        return WindowLayer(self.keys.clone(), self.values.clone(), self.window)

    def stock_run(self, x: Tensor, kept: WindowLayer) -> Tensor:
        cache = type("Cache", (), {"update": lambda _, keys, values, index: kept.update(keys, values)})()
        return self.stock(x, past_key_values=cache, use_cache=True, position_embeddings=self.turn, is_causal=False)


@pytest.mark.parametrize("rows", [1, 9, 32])
@pytest.mark.parametrize("kind", KINDS)
def test_a_thin_layer_is_the_stock_layer(kind: str, rows: int) -> None:
    case = Case.of(kind, rows)
    kept, expected = case.kept(), case.kept()
    made = NarrowLayer(case.joined)(case.x, kept, case.turn)
    stock = case.stock_run(case.x, expected)
    assert torch.allclose(made, stock, atol=1e-5 * stock.abs().max().item())
    for ours, theirs, before in zip(kept.stored, expected.stored, (case.keys, case.values), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
        assert not torch.equal(ours, before)


@pytest.mark.parametrize("rows", [1, 9, 32])
@pytest.mark.parametrize("kind", KINDS)
def test_a_thin_layer_in_eight_bits_is_the_emulated_one(kind: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.of(kind, rows)
    for module in (case.stock.self_attn, case.stock.mlp):
        for name, linear in [*module.named_children()]:
            if isinstance(linear, torch.nn.Linear):
                setattr(module, name, eight_bits(linear))
    joined = deepcopy(case.stock)
    join(joined.self_attn)
    join(joined.mlp)
    kept, expected = case.kept(), case.kept()
    made = NarrowLayer(joined)(case.x, kept, case.turn)
    exact = Case.of(kind, rows).stock_run(case.x, case.kept())
    if DEVICE == "cpu":
        monkeypatch.setattr("softdlm.models.fp8.rounded_rows", interpreted_rows)
    stock = case.stock_run(case.x, expected)
    most = 0.01 if DEVICE == "cpu" else 0.3  # a GPU sums in another order, so some values fall on the next code
    assert (made - stock).norm() < most * (stock - exact).norm(), "much nearer than what rounding changes"
    for ours, theirs in zip(kept.stored, expected.stored, strict=True):
        assert torch.allclose(ours, theirs, atol=0.02 * theirs.abs().max().item())


def eight_bits(linear: Any) -> Fp8Linear:
    made = Fp8Linear(linear, EMULATED).to(DEVICE)
    made.bias = linear.bias
    fill({"w": made.weight, "w_scale": made.weight_scale}, "w", ..., linear.weight)
    return made


def interpreted_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """`rounded_rows` as Triton's interpreter has it: rounding up to 2, 8, 32 ... gives half of that."""
    codes, scale = rounded_rows(x)
    bits = codes.view(torch.uint8)
    carried = (codes.float().abs() > (x.float() / scale).abs()) & (bits & 15 == 0)
    return (bits - 8 * carried.to(torch.uint8)).view(codes.dtype), scale


def test_layers_hand_their_rows_on() -> None:
    case = Case.of("llama")
    first, second = NarrowLayer(case.joined), NarrowLayer(case.joined)
    first.following = second
    x = first(case.x, case.kept(), case.turn)
    assert second.ready is not None
    assert second.ready[0] is x
    handed = second(x, case.kept(), case.turn)
    assert second.ready is None
    assert torch.equal(handed, second(x.clone(), case.kept(), case.turn)), "prepared anew it is the same"
    stock = case.stock_run(case.stock_run(case.x, case.kept()), case.kept())
    assert torch.allclose(handed, stock, atol=1e-5 * stock.abs().max().item())


def test_rows_left_for_others_are_not_taken() -> None:
    case = Case.of("llama")
    first, second = NarrowLayer(case.joined), NarrowLayer(case.joined)
    first.following = second
    first(case.x, case.kept(), case.turn)
    alone = NarrowLayer(case.joined)(case.x, case.kept(), case.turn)
    assert torch.equal(second(case.x, case.kept(), case.turn), alone)


@settings(max_examples=15)
@given(st.integers(1, 400), st.integers(1, 20), st.sampled_from([(2, 2), (4, 2), (3, 1)]), st.integers(1, 200))
def test_attention_shared_out_is_attention(length: int, rows: int, heads: tuple[int, int], programs: int) -> None:
    many, kv = heads
    queries = torch.randn(2 * rows, many, 16, generator=generator(0)).to(DEVICE)
    keys, values = (torch.randn(2, kv, length, 16, generator=generator(n)).to(DEVICE) for n in (1, 2))
    count = torch.zeros(2 * many, dtype=torch.int32, device=DEVICE)
    before, attention.PROGRAMS = attention.PROGRAMS, programs
    made = attend(queries, keys, values, 0.3, count)
    attention.PROGRAMS = before
    apart = queries.view(2, rows, many, 16).transpose(1, 2)
    expected = F.scaled_dot_product_attention(apart, keys, values, scale=0.3, enable_gqa=True)
    assert torch.allclose(made.view(2, rows, many, 16).transpose(1, 2), expected, atol=1e-5)
    assert not count.any(), "the next one counts from zero"


def test_large_scores_do_not_overflow() -> None:
    queries, keys = (torch.full((1, 1, 16), 100.0, device=DEVICE), torch.full((1, 1, 300, 16), 100.0, device=DEVICE))
    keys[..., 150:, :] = -100.0
    values = torch.arange(300.0, device=DEVICE)[:, None].expand(1, 1, 300, 16).contiguous()
    made = attend(queries, keys, values, 1.0, torch.zeros(1, dtype=torch.int32, device=DEVICE))
    assert torch.allclose(made, torch.full_like(made, 74.5))


def test_a_thin_layer_says_what_it_can_do() -> None:
    case = Case.of("llama")
    layer, kept = NarrowLayer(case.joined), case.kept()
    assert layer.fits(case.x, kept, None)
    assert not layer.fits(case.x, None, None), "without a cache"
    assert not layer.fits(case.x, kept, torch.ones(2, 1, 9, 300, dtype=torch.bool)), "some keys hidden"
    assert not layer.fits(torch.empty(2, few_rows.MOST, 64), kept, None), "too many rows"
    window = replace(case.window, written=None)
    assert not layer.fits(case.x, WindowLayer(case.keys, case.values, window), None), "everything computed"
    window = replace(case.window, keys=case.window.keys[:50])
    assert not layer.fits(case.x, WindowLayer(case.keys, case.values, window), None), "some keys left out"


def layer_of(config: dict[str, Any], dtype: torch.dtype = torch.bfloat16) -> Any:
    small = {"n_layers": 1, "vocab_size": 64, "embedding_size": 64, "mask_token_id": 60, "eos_token_id": 61}
    shape = type(SHAPES["llada-8b"])("part", {**LLADA_8B, "d_model": 256, "mlp_hidden_size": 64, **small, **config})
    layer = build_model(shape, torch.device("cpu"), dtype).network.model.layers[0]
    join(layer.self_attn)
    join(layer.mlp)
    return layer


def test_which_layers_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = {"n_heads": 8, "n_kv_heads": 8}
    assert narrowed(layer_of(heads)) is None, "4 tiles of outputs leave a GPU idle"
    monkeypatch.setattr("softdlm.models.narrow_layers.ENOUGH", 4)
    assert isinstance(narrowed(layer_of(heads)), NarrowLayer)
    assert narrowed(layer_of(heads, torch.float32)) is None
    assert narrowed(layer_of(heads | {"mlp_hidden_size": 72})) is None, "72 is not made of tiles"
    assert narrowed(layer_of({"n_heads": 16, "n_kv_heads": 16})) is None, "half a head of 16 is too narrow"
    assert narrowed(layer_of({"n_heads": 1, "n_kv_heads": 1})) is None, "a head of 256 is too wide"
    small = build_model(SHAPES["tiny-llada2"], torch.device("cpu"), torch.bfloat16)
    assert narrowed(small.network.model.layers[0]) is None


def test_a_cached_decode_with_thin_layers_is_the_same_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"d_model": 64, "n_heads": 2, "n_kv_heads": 2, "mlp_hidden_size": 64, "n_layers": 2}
    small = {"vocab_size": 64, "embedding_size": 64, "mask_token_id": 60, "eos_token_id": 61}
    model = build_model(
        type(SHAPES["llada-8b"])("part", {**LLADA_8B, **sizes, **small}), torch.device(DEVICE), torch.float32
    )
    monkeypatch.setattr(compiled, "compile_fixed", lambda work, **_: work)
    monkeypatch.setattr("softdlm.engine.slot_store.compile_fixed", lambda work, **_: work)
    calls: list[int] = []

    class Counted(NarrowLayer):
        def __call__(self, *given: Any) -> Any:
            calls.append(1)
            return super().__call__(*given)

    decode = {"max_new_tokens": 24, "block_length": 8, "cache": "dual", "commit": TopN(2), "feedback": Slerp()}
    prompts = [[1, 2, 3, 4], [5, 6, 7, 8]]
    expected = softdlm.generate(model, prompts, **decode, engine="compiled")
    monkeypatch.setattr(compiled, "narrowed", lambda layer: Counted(layer))
    model.slot_cache.clear()
    model._compiled = None
    made = softdlm.generate(model, prompts, **decode, engine="compiled")
    assert [each.ids for each in made] == [each.ids for each in expected]
    assert DEVICE != "cpu" or len(calls) == 3 * 3 * 2, "three cached steps a block, three blocks, two layers"


@pytest.mark.parametrize(("room", "expected"), [(200, (128, 5)), (60, (64, 3)), (10, (16, 2)), (1, (16, 2))])
def test_tiles_shrink_to_what_a_gpu_holds(
    monkeypatch: pytest.MonkeyPatch, room: int, expected: tuple[int, int]
) -> None:
    monkeypatch.setattr("softdlm.kernels.tiles.room", lambda device: room * 1024)
    launch = Tiles(64, 128, stages=9).launch(torch.empty(1, dtype=torch.bfloat16), 20, 4096, 4096, matrices=2)
    assert (launch["OUTPUTS"], launch["ROWS"]) == (64, 32)
    assert (launch["INPUTS"], launch["num_stages"]) == expected
