"""Dream-v0, Dream-Coder-v0 and DiffuCoder: Qwen2 without the causal mask; the output at j - 1 predicts token j."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from softdlm.models.a2d import weights
from softdlm.models.a2d_qwen2 import LAYER
from softdlm.models.attention import bidirectional
from softdlm.models.chat_templates import chat_template
from softdlm.models.config import COMMON, SIZES, THETA, Flag, check_fields, check_heads, require, setting, settings
from softdlm.models.denoiser import NetworkDenoiser
from softdlm.models.family import Family

USABLE_CONTEXT = 2048
"""Longest prompt and answer together, from the model's README; config.json repeats its parent's 131072."""

CHAT_TEMPLATE = chat_template("dream")


class Dream(NetworkDenoiser):
    """The state at j - 1 predicts the token at j, as in its autoregressive parent; position 0 cannot be predicted."""

    first_open = 1


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


FAMILY = Family(
    name="Dream",
    stock="Qwen2ForCausalLM",
    check=check,
    network=network,
    weights=partial(weights, leaves=LAYER),
    denoiser=Dream,
    mask_id=151666,
    mask_token="<|mask|>",
    eos_id=151643,
    end_of_turn=("<|im_end|>", 151645),
    chat_template=CHAT_TEMPLATE,
    max_length=lambda config: min(USABLE_CONTEXT, setting(config, "max_position_embeddings")),
    tokenizer_class="Qwen2Tokenizer",
)
