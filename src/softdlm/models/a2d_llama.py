"""A2D on Llama: Llama without the causal mask."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from softdlm.models import a2d
from softdlm.models.attention import bidirectional
from softdlm.models.chat_templates import chat_template
from softdlm.models.config import require, setting
from softdlm.models.family import Family

_LAYER = (*a2d.NORMS, *a2d.PROJECTIONS)


def network(config: Mapping[str, Any]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    require(config, attention_bias=False, mlp_bias=False)
    rotary = a2d.rope(config, "llama3")
    return LlamaForCausalLM(LlamaConfig(rope_parameters=rotary, **a2d.options(config), **bidirectional()))


FAMILY = Family(
    name="a2d-llama",
    stock="LlamaForCausalLM",
    check=a2d.check,
    network=network,
    weights=partial(a2d.weights, leaves=_LAYER),
    denoiser=a2d.A2D,
    mask_token="<|mask|>",
    end_of_turn=("<|eot_id|>", 128009),
    other_ends=("<|end_of_text|>",),
    chat_template=chat_template("llama"),
    max_length=lambda config: setting(config, "max_position_embeddings"),
    attentions=("full", "block-causal"),
)
