"""LLaDA-2.0-mini: Glm4Moe (a mixture of experts) under block-causal or full attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from softdlm import kernels
from softdlm.errors import CheckpointError
from softdlm.models.attention import bidirectional
from softdlm.models.chat_templates import chat_template
from softdlm.models.config import (
    COMMON,
    EXPERTS,
    LAYERS,
    SIZES,
    THETA,
    WIDTH,
    Field,
    Flag,
    Real,
    Whole,
    check_fields,
    check_heads,
    require,
    setting,
    settings,
)
from softdlm.models.denoiser import NetworkDenoiser
from softdlm.models.family import Family, ParameterSlice, Weight
from softdlm.models.fp8 import CODES, emulate_experts

TRAINED_BLOCK = 32

CHAT_TEMPLATE = chat_template("llada2")

_LAYER = {
    "input_layernorm": "input_layernorm",
    "post_attention_layernorm": "post_attention_layernorm",
    "attention.query_layernorm": "self_attn.q_norm",
    "attention.key_layernorm": "self_attn.k_norm",
    "attention.dense": "self_attn.o_proj",
}
_MLP = ("gate_proj", "up_proj", "down_proj")


class LLaDA2(NetworkDenoiser):
    """Blocks start at position 0, so they include the prompt; a token sees its own and earlier blocks."""

    blocks_from_zero = True

    def __init__(self, network: Any, **identity: Any) -> None:
        super().__init__(network, **identity)
        fused = False
        if self.owned and self.dtype == torch.bfloat16 and kernels.wanted(self.device) and kernels.has_triton():
            from softdlm.models.moe import fuse

            fused = fuse(network)
        if not fused and any(value.dtype == CODES and value.ndim == 3 for value in network.parameters()):
            emulate_experts(network)
        if self.dtype == torch.float64:  # the default grouped product supports float32 at most
            network.set_experts_implementation("eager")

    @property
    def sync_free(self) -> bool:
        """Whether a pass never synchronises. On a GPU, other types than bfloat16 read back the tokens per expert."""
        return self.device.type == "cpu" or self.dtype == torch.bfloat16

    def attention_block(self, block_length: int | None) -> int | None:
        """`auto` follows the decoding: full attention for one block over the whole canvas (the paper's setting)."""
        if self.attention == "full":
            return None
        return TRAINED_BLOCK if self.attention == "block-causal" and block_length is None else block_length


FIELDS: dict[str, Field] = {
    **COMMON,
    "rope_theta": THETA,
    "partial_rotary_factor": Real(1.0),
    "head_dim": WIDTH,
    "moe_intermediate_size": WIDTH,
    "num_experts": EXPERTS,
    "num_shared_experts": EXPERTS,
    "num_experts_per_tok": EXPERTS,
    "n_group": EXPERTS,
    "topk_group": EXPERTS,
    "first_k_dense_replace": Whole(0, LAYERS.most),
    "routed_scaling_factor": Real(1e6),
    "norm_topk_prob": Flag(),
    "tie_word_embeddings": Flag(),
}


def check(config: Mapping[str, Any]) -> None:
    check_fields(config, FIELDS)
    width = setting(config, "head_dim")
    heads = (setting(config, key) for key in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    check_heads(*heads, head_width=width)
    turned = width * setting(config, "partial_rotary_factor")
    if turned < 2 or turned % 2:
        raise CheckpointError(
            f"config.json turns {turned:g} of the {width} values of a head; it must be an even number"
        )
    experts, groups, kept, taken = (
        setting(config, key) for key in ("num_experts", "n_group", "topk_group", "num_experts_per_tok")
    )
    if experts % groups or experts < 2 * groups or kept > groups or taken > kept * experts // groups:
        raise CheckpointError(
            f"config.json takes {taken} of {experts} experts from {kept} of {groups} groups: groups must be equal, "
            "of two experts or more, and hold as many as are taken"
        )


def network(config: Mapping[str, Any]) -> Any:
    from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

    require(config, hidden_act="silu", score_function="sigmoid", moe_router_enable_expert_bias=True)
    off = ("use_bias", "use_qkv_bias", "use_sliding_window", "norm_head", "norm_softmax")
    require(config, **dict.fromkeys((*off, "using_split_qkv_in_self_attention"), False))
    require(config, use_qk_norm=True, use_rmsnorm=True, rope_scaling=None)
    return Glm4MoeForCausalLM(
        Glm4MoeConfig(
            rope_parameters={
                "rope_type": "default",
                "rope_theta": float(setting(config, "rope_theta")),
                "partial_rotary_factor": setting(config, "partial_rotary_factor"),
            },
            n_routed_experts=setting(config, "num_experts"),
            n_shared_experts=setting(config, "num_shared_experts"),
            tie_word_embeddings=bool(config.get("tie_word_embeddings")),
            use_qk_norm=True,
            attention_bias=False,
            num_mtp_layers=0,
            **settings(config, *SIZES),
            **bidirectional(),
            **settings(config, "head_dim", "moe_intermediate_size", "num_experts_per_tok", "n_group", "topk_group"),
            **settings(config, "first_k_dense_replace", "routed_scaling_factor", "norm_topk_prob"),
        )
    )


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    yield Weight.whole("model.word_embeddings.weight", "model.embed_tokens.weight")
    for layer in range(setting(config, "num_hidden_layers")):
        prefix = f"model.layers.{layer}"
        for theirs, ours in _LAYER.items():
            yield Weight.whole(f"{prefix}.{theirs}.weight", f"{prefix}.{ours}.weight")
        fused = tuple(ParameterSlice(f"{prefix}.self_attn.{name}_proj.weight") for name in "qkv")
        yield Weight(f"{prefix}.attention.query_key_value.weight", fused)
        if layer < setting(config, "first_k_dense_replace"):
            yield from _same(f"{prefix}.mlp")
        else:
            yield from _experts(f"{prefix}.mlp", config)
    yield Weight.whole("model.norm.weight", "model.norm.weight")
    if not config.get("tie_word_embeddings"):
        yield Weight.whole("lm_head.weight", "lm_head.weight")


def _same(prefix: str) -> Iterator[Weight]:
    for leaf in _MLP:
        yield Weight.whole(f"{prefix}.{leaf}.weight", f"{prefix}.{leaf}.weight")


def _experts(prefix: str, config: Mapping[str, Any]) -> Iterator[Weight]:
    yield Weight.whole(f"{prefix}.gate.weight", f"{prefix}.gate.weight")
    yield Weight.whole(f"{prefix}.gate.expert_bias", f"{prefix}.gate.e_score_correction_bias")
    yield from _same(f"{prefix}.shared_experts")
    width = setting(config, "moe_intermediate_size")
    for expert in range(setting(config, "num_experts")):
        homes = {
            "gate_proj": ParameterSlice(f"{prefix}.experts.gate_up_proj", (expert, slice(0, width))),
            "up_proj": ParameterSlice(f"{prefix}.experts.gate_up_proj", (expert, slice(width, 2 * width))),
            "down_proj": ParameterSlice(f"{prefix}.experts.down_proj", (expert,)),
        }
        for leaf, part in homes.items():
            yield Weight(f"{prefix}.experts.{expert}.{leaf}.weight", (part,))


FAMILY = Family(
    name="llada2_moe",
    stock="Glm4MoeForCausalLM",
    check=check,
    network=network,
    weights=weights,
    denoiser=LLaDA2,
    mask_id=156895,
    mask_token="<|mask|>",
    eos_id=156892,
    end_of_turn=("<|role_end|>", None),
    chat_template=CHAT_TEMPLATE,
    max_length=lambda config: setting(config, "max_position_embeddings"),
    attentions=("full", "block-causal"),
    float32=(".mlp.gate.weight", ".mlp.gate.e_score_correction_bias"),
)
