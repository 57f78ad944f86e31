"""A2D on Qwen3, such as Qwen3-0.6B-diffusion: Qwen3 without the causal mask."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from softdlm.models import a2d
from softdlm.models.attention import bidirectional
from softdlm.models.chat_templates import chat_template
from softdlm.models.config import require, setting
from softdlm.models.family import Family

_LAYER = (*a2d.NORMS, *a2d.PROJECTIONS, "self_attn.q_norm.weight", "self_attn.k_norm.weight")


def network(config: Mapping[str, Any]) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    require(config, attention_bias=False)
    return Qwen3ForCausalLM(Qwen3Config(rope_parameters=a2d.rope(config), **a2d.options(config), **bidirectional()))


FAMILY = Family(
    name="a2d-qwen3",
    stock="Qwen3ForCausalLM",
    check=a2d.check,
    network=network,
    weights=partial(a2d.weights, leaves=_LAYER),
    denoiser=a2d.A2D,
    # trained on answers that do not think: its own template leaves that to the caller
    mask_token="<|mask|>",
    end_of_turn=("<|im_end|>", 151645),
    other_ends=("<|endoftext|>",),
    chat_template=chat_template("qwen"),
    max_length=lambda config: setting(config, "max_position_embeddings"),
    attentions=("full", "block-causal"),
    template_start="{% if enable_thinking is not defined %}{% set enable_thinking = false %}{% endif %}",
)
