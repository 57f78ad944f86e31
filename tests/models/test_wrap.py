"""softdlm.wrap: the wrapped network gives its own logits, and what cannot be known or done is said.

LLaDA's, Dream's and LLaDA-2's remote code cannot be fetched here. Small classes with the signatures of their forward
passes stand in for it; they show that conventions are kept, not that it runs.
bitsandbytes, torchao, peft and accelerate are in no extra of this package: without them their tests are skipped.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import softdlm
from softdlm import Steps, UsageError
from softdlm.models import llada
from tests.conftest import DATA, IDS, tiny
from tests.parity_cases import agrees, cases
from tests.small_checkpoints import stock_network

CONFIG = json.loads((DATA / "llada" / "config.json").read_text())
SPECIAL: dict[str, Any] = {"mask_id": 187, "eos_ids": [181, 190]}
ROWS = torch.arange(3, 23).reshape(2, 10)


def llada_network(**more: Any) -> Any:
    """The fixtures' weights in a stock Llama, as a user would have made it: causal."""
    from transformers import LlamaConfig, LlamaForCausalLM

    same = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
    same |= {
        "num_key_value_heads": "n_kv_heads",
        "intermediate_size": "mlp_hidden_size",
        "vocab_size": "embedding_size",
    }
    same |= {
        "max_position_embeddings": "max_sequence_length",
        "rms_norm_eps": "rms_norm_eps",
        "rope_theta": "rope_theta",
    }
    values = {ours: CONFIG[theirs] for ours, theirs in same.items()}
    network = LlamaForCausalLM(LlamaConfig(**values, **more))
    tensors = load_file(DATA / "llada" / "model.safetensors")
    network.load_state_dict({each.parts[0].parameter: tensors[each.name] for each in llada.weights(CONFIG)})
    return network.eval()


def own_logits(network: Any, rows: Tensor) -> Tensor:
    """The network's own, under an explicit mask that lets everybody see everybody."""
    length = rows.shape[1]
    with torch.no_grad():
        return network(input_ids=rows, attention_mask=torch.ones(len(rows), 1, length, length, dtype=torch.bool)).logits


@cache
def wrapped() -> Any:
    return softdlm.wrap(llada_network(), family="llada", **SPECIAL)


@pytest.mark.parametrize("case", cases("llada"), ids=lambda case: case["name"])
def test_a_stock_llama_with_the_fixtures_weights_gives_the_fixtures_decodes(case: dict[str, Any]) -> None:
    assert agrees(wrapped(), "llada", case)


def test_weights_are_neither_copied_nor_frozen() -> None:
    network = llada_network()
    before = {name: each.data_ptr() for name, each in network.named_parameters()}
    model = softdlm.wrap(network, family="llada", **SPECIAL)
    softdlm.generate(model, [3, 4, 5], max_new_tokens=4, engine="static")
    assert {name: each.data_ptr() for name, each in network.named_parameters()} == before
    assert all(each.requires_grad for each in network.parameters())
    assert model.embedding.data_ptr() == network.model.embed_tokens.weight.data_ptr()
    with torch.no_grad():
        network.model.embed_tokens.weight.mul_(2)
    torch.testing.assert_close(model.logits(ROWS), own_logits(network, ROWS))


def test_compiled_layers_would_move_the_weights() -> None:
    with pytest.raises(UsageError, match="compiled layers lay the weights anew"):
        softdlm.generate(wrapped(), [3, 4], max_new_tokens=2, engine="compiled")


class Remote(nn.Module):
    """What the imitations share: a configuration, embeddings, a head, and a stock body inside."""

    def __init__(self, inner: Any, kind: str, **config: Any) -> None:
        super().__init__()
        self.inner = inner
        values = {"model_type": kind, **config}
        self.config = SimpleNamespace(**values, to_dict=lambda: values)

    def get_input_embeddings(self) -> Any:
        return self.inner.get_input_embeddings()

    def get_output_embeddings(self) -> Any:
        return self.inner.get_output_embeddings()

    def run(self, ids: Any, embeds: Any, mask: Any, places: Any) -> Any:
        both = self.inner.model(input_ids=ids, inputs_embeds=embeds, attention_mask=mask, position_ids=places)
        return SimpleNamespace(logits=self.inner.lm_head(both.last_hidden_state))


class LLaDAModelLM(Remote):
    def forward(
        self, input_ids: Any = None, inputs_embeds: Any = None, attention_mask: Any = None, attention_bias: Any = None
    ):
        assert attention_mask is None  # ignored by older copies of the code
        return self.run(input_ids, inputs_embeds, attention_bias, None)


class DreamModel(Remote):
    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None, inputs_embeds: Any = None
    ):
        full = attention_mask == "full" if isinstance(attention_mask, str) else False
        assert full or getattr(attention_mask, "ndim", 0) == 4
        return self.run(input_ids, inputs_embeds, None if full else attention_mask, position_ids)


class LLaDA2MoeModelLM(Remote):
    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None, inputs_embeds: Any = None
    ):
        assert attention_mask.ndim == 4
        assert attention_mask.is_floating_point()
        return self.run(input_ids, inputs_embeds, attention_mask, position_ids)


REMOTE: dict[str, Any] = {"llada": LLaDAModelLM, "dream": DreamModel, "llada2": LLaDA2MoeModelLM}
KINDS = {"llada": "llada", "dream": "Dream", "llada2": "llada2_moe"}
LENGTH = {"llada": "max_sequence_length", "dream": "max_position_embeddings", "llada2": "max_position_embeddings"}


def remote(name: str) -> Any:
    config = json.loads((DATA / name / "config.json").read_text())
    return REMOTE[name](tiny(name).network, KINDS[name], **{k: v for k, v in config.items() if k != "model_type"})


@pytest.mark.parametrize("name", REMOTE)
def test_remote_code_is_called_by_its_conventions(name: str) -> None:
    """Padding, blocks and the shift reach it: whole decodes are those of the family's own denoiser."""
    model, ours = softdlm.wrap(remote(name), **IDS[name]), tiny(name)
    assert (model.mask_id, model.eos_ids, model.max_length) == (ours.mask_id, ours.eos_ids, ours.max_length)
    real = torch.ones_like(ROWS, dtype=torch.bool)
    real[1, 7:] = False
    sights: list[dict[str, Any]] = [{}, {"attention_mask": real}, {"block_length": 4} if name == "llada2" else {}]
    for sight in sights:
        found, expected = model.logits(ROWS, **sight), ours.logits(ROWS, **sight)
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
    how: Any = {
        "max_new_tokens": 12,
        "commit": Steps(4),
        "early_finish": False,
        "feedback": softdlm.Slerp(k=2, lam=0.3),
    }
    how |= {"block_length": 4} if name == "llada2" else {}
    prompts = [[5, 6, 7], [9, 8, 7, 6, 5]]
    assert [each.ids for each in softdlm.generate(model, prompts, **how)] == [
        each.ids for each in softdlm.generate(ours, prompts, **how)
    ]
    with pytest.raises(UsageError, match="has no KV cache: leave cache out"):
        softdlm.generate(model, prompts, cache="prefix", block_length=4)


def test_a_causal_network_is_never_wrapped_in_silence() -> None:
    class Causal(LLaDAModelLM):
        def run(self, ids: Any, embeds: Any, mask: Any, places: Any) -> Any:
            length = (ids if embeds is None else embeds).shape[1]
            return super().run(ids, embeds, torch.ones(length, length).tril().bool()[None, None], places)

    with pytest.raises(UsageError, match="the network is causal: its first position does not see the last"):
        softdlm.wrap(Causal(tiny("llada").network, "llada", **{k: v for k, v in CONFIG.items() if k != "model_type"}))


def test_an_encoder_is_wrapped_as_it_is() -> None:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    small: Any = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    network = BertForMaskedLM(BertConfig(vocab_size=60, **small)).eval()
    model = softdlm.wrap(network, family="encoder", mask_id=59, eos_ids=[1])
    real = torch.ones(1, 8, dtype=torch.bool)
    real[:, 6:] = False
    with torch.no_grad():
        expected = network(input_ids=ROWS[:1, :8], attention_mask=real.long()).logits
    torch.testing.assert_close(model.logits(ROWS[:1, :8], attention_mask=real)[real], expected[real])
    assert len(softdlm.generate(model, [4, 5], max_new_tokens=4, early_finish=False).canvas_ids) == 4


def modernbert() -> Any:
    return softdlm.wrap(stock_network("modernbert"), mask_id=194)


def test_a_masked_language_model_of_a_known_type_needs_no_family() -> None:
    model, network = modernbert(), stock_network("modernbert")
    with torch.no_grad():
        torch.testing.assert_close(model.logits(ROWS), network(input_ids=ROWS).logits, atol=1e-5, rtol=1e-5)
    assert model.eos_ids == (192,)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("network", "words", "message"),
    [
        (lambda: llada_network(), {}, r"model_type 'llama', is causal by itself: pass family= .*\(llada, a2d-llama\)"),
        (lambda: llada_network(), {"family": "a2d-qwen3"}, "'a2d-qwen3' is a Qwen3ForCausalLM of transformers"),
        (lambda: llada_network(), {"family": "gpt"}, "family must be one of llada, Dream, .* not 'gpt'"),
        (
            lambda: llada_network(),
            {"family": "llada"},
            "no mask token: the configuration has no mask_token_id.*mask_id=",
        ),
        (lambda: llada_network(eos_token_id=None), {"family": "llada", "mask_id": 187}, "no EOS: .* pass eos_ids="),
        (
            lambda: llada_network(),
            {"family": "llada", "mask_id": 999},
            "mask_id 999 lies outside the vocabulary of 192",
        ),
        (lambda: llada_network(), {"family": "llada", "attention": "block-causal", **SPECIAL}, "have full attention"),
        (lambda: llada_network().model, {"family": "llada"}, "has no LM head: load it with AutoModelForCausalLM"),
        (lambda: nn.DataParallel(llada_network()), {}, r"DataParallel: pass its \.module"),
        (lambda: nn.Linear(2, 2), {}, "must be a transformers model with an LM head, not torch.nn.*own-model.md"),
        (lambda: "GSAI-ML/LLaDA-8B-Instruct", {}, r"not a name: softdlm.load\('GSAI-ML/LLaDA-8B-Instruct'\)"),
        (lambda: None, {}, "must be a transformers model with an LM head, not NoneType"),
        (lambda: tiny("llada"), {}, "is a Denoiser already: use it as it is"),
    ],
)
def test_what_is_wrong_or_missing_is_one_line(network: Any, words: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        softdlm.wrap(network(), **words)
    assert "\n" not in str(caught.value)


def test_a_wrapped_network_is_not_filed_under_the_weights_of_another(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="was not loaded from a checkpoint"):
        softdlm.evaluate(wrapped(), "mini-math", [softdlm.Decoding()], out=tmp_path, limit=1)


def test_the_shift_can_be_said() -> None:
    shifted, plain = softdlm.wrap(llada_network(), family="llada", shift=True, **SPECIAL), wrapped()
    assert (shifted.first_open, plain.first_open) == (1, 0)
    assert shifted.logits(ROWS)[:, 1:].equal(plain.logits(ROWS)[:, :-1])


others_warn = pytest.mark.filterwarnings("ignore")
"""These libraries warn of their own use of transformers and torch."""


@others_warn
def test_lora_is_part_of_the_network() -> None:
    peft: Any = pytest.importorskip("peft")
    network = llada_network()
    plain = own_logits(network, ROWS)
    tuned = peft.get_peft_model(network, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "up_proj"]))
    for name, each in tuned.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(each, std=0.3)
    model = softdlm.wrap(tuned.eval(), family="llada", **SPECIAL)
    torch.testing.assert_close(model.logits(ROWS), own_logits(tuned, ROWS))
    assert (model.logits(ROWS) - plain).abs().max() > 0.05
    assert [name for name, each in tuned.named_parameters() if each.requires_grad] != []
    assert softdlm.generate(model, [3, 4, 5], max_new_tokens=8, block_length=4, cache="dual", engine="static").forwards
    wide = peft.get_peft_model(llada_network(), peft.LoraConfig(r=4, target_modules=["embed_tokens"]))
    with pytest.raises(UsageError, match="does more than look up rows: merge an adapter on it first"):
        softdlm.wrap(wide, family="llada", **SPECIAL)


def check_quantised(network: Any, plain: Tensor) -> None:
    """The logits are that network's own, not those of the network before; it decodes, also with a cache."""
    model = softdlm.wrap(network, family="llada", **SPECIAL)
    found = model.logits(ROWS)
    torch.testing.assert_close(found, own_logits(network, ROWS))
    assert 0.97 < torch.cosine_similarity(found.float().flatten(), plain.flatten(), 0) < 1 - 1e-6
    assert not model.sync_free
    for kept in (None, "prefix"):
        answer = softdlm.generate(model, [3, 4, 5], max_new_tokens=8, block_length=4, cache=kept, early_finish=False)
        assert model.mask_id not in answer.canvas_ids


@others_warn
def test_eight_bits_of_torchao() -> None:
    quantization: Any = pytest.importorskip("torchao.quantization")
    network = llada_network()
    plain = own_logits(network, ROWS)
    quantization.quantize_(network, quantization.Int8WeightOnlyConfig())
    check_quantised(network, plain)


@others_warn
def test_eight_bits_of_bitsandbytes() -> None:
    modules: Any = pytest.importorskip("bitsandbytes").nn
    network = llada_network()
    plain = own_logits(network, ROWS)
    for layer in network.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, each in list(part.named_children()):
                if isinstance(each, nn.Linear):
                    eight = modules.Linear8bitLt(
                        each.in_features, each.out_features, bias=False, has_fp16_weights=False
                    )
                    eight.load_state_dict(each.state_dict())
                    setattr(part, name, eight.to("cpu"))
    check_quantised(network, plain)


@others_warn
def test_a_dispatched_network() -> None:
    """Hooks of accelerate, as device_map installs them, here all on one device."""
    accelerate: Any = pytest.importorskip("accelerate")
    network = llada_network()
    plain = own_logits(network, ROWS)
    places = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu", "lm_head": "cpu"}
    places |= {f"model.layers.{n}": "cpu" for n in range(len(network.model.layers))}
    accelerate.dispatch_model(network, places, main_device="cpu", force_hooks=True)
    model = softdlm.wrap(network, family="llada", **SPECIAL)
    torch.testing.assert_close(model.logits(ROWS), plain)
