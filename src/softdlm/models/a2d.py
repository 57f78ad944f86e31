"""What the A2D families share: autoregressive networks that were trained on as diffusion models (dLLM's A2D).

The network is the parent's without its causal mask, and its logits are not shifted. Two kinds exist, which config.json
does not tell apart. MDLM checkpoints see the whole canvas. BD3LM checkpoints (arXiv 2503.09573) see blocks: a position
attends to its own block and to earlier ones. Blocks are counted as their sampler does it, from the first position of
the answer in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from softdlm.errors import UsageError
from softdlm.models.config import (
    COMMON,
    SIZES,
    THETA,
    Field,
    Flag,
    check_fields,
    check_heads,
    require,
    setting,
    settings,
)
from softdlm.models.denoiser import NetworkDenoiser
from softdlm.models.family import Weight
from softdlm.models.known import known_model

PROJECTIONS = (
    *(f"self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
)
NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight")
FIELDS: dict[str, Field] = {**COMMON, "rope_theta": THETA, "tie_word_embeddings": Flag(), "attention_bias": Flag()}


class A2D(NetworkDenoiser):
    """Full attention (MDLM), or attention in blocks that start where the answer starts (BD3LM)."""

    def __init__(self, network: Any, **identity: Any) -> None:
        super().__init__(network, **identity)
        name, known = self.source.name, known_model(self.source.name)
        if self.attention == "auto" and known is None and "bd3lm" in name.lower():
            raise UsageError(
                f"{name} is called bd3lm, and its config.json cannot say what it is: pass attention='block-causal' if "
                "it sees blocks (BD3LM), attention='full' if it sees the whole canvas (MDLM)"
            )
        trained = known.attention if known else "full"
        self.block_causal = (trained if self.attention == "auto" else self.attention) == "block-causal"

    def attention_block(self, block_length: int | None) -> int | None:
        if self.block_causal and block_length is None:
            raise UsageError(
                f"{self.source.name} sees blocks, and its config.json does not say how long they are: give "
                "block_length (32 in the published BD3LM checkpoints)"
            )
        return block_length if self.block_causal else None


def check(config: Mapping[str, Any]) -> None:
    check_fields(config, {**FIELDS, "head_dim": COMMON["hidden_size"]})
    heads = (setting(config, key) for key in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    check_heads(*heads, head_width=config.get("head_dim"))
    require(config, right_shift_logits=False)


def rope(config: Mapping[str, Any], *kinds: str) -> dict[str, Any]:
    """The rotary settings as transformers 5 writes them, from its own form or from the one before it."""
    found = dict(config.get("rope_parameters") or {"rope_theta": config.get("rope_theta")})
    found |= config.get("rope_scaling") or {}
    found["rope_type"] = found.pop("type", None) or found.get("rope_type") or "default"
    require({"rope_type": found["rope_type"] in ("default", *kinds) or found["rope_type"]}, rope_type=True)
    check_fields(found, {"rope_theta": THETA})
    return {**found, "rope_theta": setting(found, "rope_theta")}


def options(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that all three networks take."""
    require(config, hidden_act="silu", use_sliding_window=False, sliding_window=None)
    width = {} if config.get("head_dim") is None else {"head_dim": config["head_dim"]}
    return {"tie_word_embeddings": bool(config.get("tie_word_embeddings")), **width, **settings(config, *SIZES)}


def weights(config: Mapping[str, Any], leaves: tuple[str, ...]) -> Iterator[Weight]:
    """The names of a stock network of `leaves` per layer; a tied head is not in the file."""
    names = ["model.embed_tokens.weight", "model.norm.weight"]
    names += [] if config.get("tie_word_embeddings") else ["lm_head.weight"]
    layers = range(setting(config, "num_hidden_layers"))
    for name in [*names, *(f"model.layers.{layer}.{leaf}" for layer in layers for leaf in leaves)]:
        yield Weight.whole(name, name)
