"""Dream-v0-Instruct-7B: Qwen2 without the causal mask; its output at j - 1 predicts the token at j."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softdlm.models.attention import bidirectional
from softdlm.models.chat_templates import chat_template
from softdlm.models.config import COMMON, SIZES, THETA, Flag, check_fields, check_heads, require, setting, settings
from softdlm.models.denoiser import NetworkDenoiser
from softdlm.models.family import Family, Weight

USABLE_CONTEXT = 2048
"""Longest prompt and answer together, from the model's README; config.json repeats its parent's 131072."""

CHAT_TEMPLATE = chat_template("dream")

_LAYER = (
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    *(f"self_attn.{name}_proj.{kind}" for name in "qkv" for kind in ("weight", "bias")),
    "self_attn.o_proj.weight",
    *(f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
)


class Dream(NetworkDenoiser):
    """The state at j - 1 predicts the token at j, as in its autoregressive parent; position 0 cannot be predicted."""

    first_open = 1

    def align(self, states: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        return torch.cat([states[:, :1], states[:, :-1]], dim=1)


def check(config: Mapping[str, Any]) -> None:
    check_fields(config, {**COMMON, "rope_theta": THETA, "tie_word_embeddings": Flag()})
    heads = (setting(config, key) for key in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    check_heads(*heads)


def network(config: Mapping[str, Any]) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    require(config, hidden_act="silu", use_sliding_window=False, rope_scaling=None)
    return Qwen2ForCausalLM(
        Qwen2Config(
            rope_parameters={"rope_type": "default", "rope_theta": setting(config, "rope_theta")},
            tie_word_embeddings=bool(config.get("tie_word_embeddings")),
            **settings(config, *SIZES),
            **bidirectional(),
        )
    )


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    names = ["model.embed_tokens.weight", "model.norm.weight"]
    names += [] if config.get("tie_word_embeddings") else ["lm_head.weight"]
    layers = range(setting(config, "num_hidden_layers"))
    for name in [*names, *(f"model.layers.{layer}.{leaf}" for layer in layers for leaf in _LAYER)]:
        yield Weight.whole(name, name)


FAMILY = Family(
    name="Dream",
    models={"Dream-org/Dream-v0-Instruct-7B": 7_615_616_512},
    check=check,
    network=network,
    weights=weights,
    denoiser=Dream,
    mask_id=151666,
    mask_token="<|mask|>",
    eos_id=151643,
    end_of_turn=("<|im_end|>", 151645),
    chat_template=CHAT_TEMPLATE,
    max_length=lambda config: min(USABLE_CONTEXT, setting(config, "max_position_embeddings")),
    tokenizer_class="Qwen2Tokenizer",
)
