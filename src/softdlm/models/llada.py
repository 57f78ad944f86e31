"""LLaDA-8B-Instruct, LLaDA-1.5 and the built-in model: Llama without the causal mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from softdlm.models.attention import bidirectional
from softdlm.models.chat_templates import chat_template
from softdlm.models.config import (
    EPSILON,
    HEADS,
    LAYERS,
    POSITIONS,
    THETA,
    VOCABULARY,
    WIDTH,
    Field,
    Flag,
    Whole,
    check_fields,
    check_heads,
    require,
    setting,
)
from softdlm.models.denoiser import NetworkDenoiser
from softdlm.models.family import Family, Weight

CHAT_TEMPLATE = chat_template("llada")

KIND = {"block_type": "llama", "block_group_size": 1, "layer_norm_type": "rms", "activation_type": "silu", "rope": True}
OFF = (
    *("alibi", "attention_layer_norm", "bias_for_layer_norm", "include_bias"),
    *("include_qkv_bias", "input_emb_norm", "scale_logits"),
)
"""The settings of config.json that the stock network has, and those that it has not."""

# checkpoint leaf -> Llama leaf; ff_proj is the gated half, and ff_out means the LM head outside the blocks
_BLOCK = {
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}


FIELDS: dict[str, Field] = {
    "d_model": WIDTH,
    "n_layers": LAYERS,
    "n_heads": HEADS,
    "n_kv_heads": HEADS,
    "mlp_hidden_size": WIDTH,
    "mlp_ratio": Whole(1, 1000),
    "vocab_size": VOCABULARY,
    "embedding_size": VOCABULARY,
    "max_sequence_length": POSITIONS,
    "rms_norm_eps": EPSILON,
    "rope_theta": THETA,
    "weight_tying": Flag(),
    "multi_query_attention": Flag(),
}


def check(config: Mapping[str, Any]) -> None:
    check_fields(config, FIELDS)
    check_heads(setting(config, "d_model"), setting(config, "n_heads"), _key_heads(config))


def network(config: Mapping[str, Any]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    require(config, **KIND, **dict.fromkeys(OFF, False))
    width = setting(config, "d_model")
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=setting(config, "embedding_size", "vocab_size"),
            hidden_size=width,
            intermediate_size=config.get("mlp_hidden_size") or setting(config, "mlp_ratio") * width,
            num_hidden_layers=setting(config, "n_layers"),
            num_attention_heads=setting(config, "n_heads"),
            num_key_value_heads=_key_heads(config),
            max_position_embeddings=setting(config, "max_sequence_length"),
            rms_norm_eps=setting(config, "rms_norm_eps"),
            rope_parameters={"rope_type": "default", "rope_theta": setting(config, "rope_theta")},
            tie_word_embeddings=bool(config.get("weight_tying")),
            attention_bias=False,
            mlp_bias=False,
            **bidirectional(),
        )
    )


def _key_heads(config: Mapping[str, Any]) -> int:
    return config.get("n_kv_heads") or (1 if config.get("multi_query_attention") else setting(config, "n_heads"))


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    yield Weight.whole("model.transformer.wte.weight", "model.embed_tokens.weight")
    for layer in range(setting(config, "n_layers")):
        for theirs, ours in _BLOCK.items():
            yield Weight.whole(
                f"model.transformer.blocks.{layer}.{theirs}.weight", f"model.layers.{layer}.{ours}.weight"
            )
    yield Weight.whole("model.transformer.ln_f.weight", "model.norm.weight")
    if not config.get("weight_tying"):
        yield Weight.whole("model.transformer.ff_out.weight", "lm_head.weight")


FAMILY = Family(
    name="llada",
    stock="LlamaForCausalLM",
    check=check,
    network=network,
    weights=weights,
    denoiser=NetworkDenoiser,
    mask_id=126336,
    mask_token="<|mdm_mask|>",
    eos_id=126081,
    end_of_turn=("<|eot_id|>", 126348),
    chat_template=CHAT_TEMPLATE,
    max_length=lambda config: setting(config, "max_sequence_length"),
)
