"""A2D on Qwen2, such as Qwen2.5-Coder-0.5B-Instruct-diffusion: Qwen2 without the causal mask."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from softdlm.models import a2d
from softdlm.models.attention import bidirectional
from softdlm.models.chat_templates import chat_template
from softdlm.models.config import setting
from softdlm.models.family import Family

LAYER = (*a2d.NORMS, *a2d.PROJECTIONS, *(f"self_attn.{name}_proj.bias" for name in "qkv"))


def network(config: Mapping[str, Any]) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(rope_parameters=a2d.rope(config), **a2d.options(config), **bidirectional()))


FAMILY = Family(
    name="a2d-qwen2",
    stock="Qwen2ForCausalLM",
    check=a2d.check,
    network=network,
    weights=partial(a2d.weights, leaves=LAYER),
    denoiser=a2d.A2D,
    mask_token="<|mask|>",
    end_of_turn=("<|im_end|>", 151645),
    other_ends=("<|endoftext|>",),
    chat_template=chat_template("dream"),
    max_length=lambda config: setting(config, "max_position_embeddings"),
    attentions=("full", "block-causal"),
)
