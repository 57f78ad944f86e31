"""ModernBERT chat models: the stock masked language model, which looks both ways already.

Every third layer attends to all positions, the others to a window around each. There is no KV cache: the network has
no place for keys and values of earlier passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softdlm.errors import UsageError
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
    settings,
)
from softdlm.models.denoiser import NetworkDenoiser
from softdlm.models.family import Family, Weight
from softdlm.models.kv_memory import KVMemory

SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
FIELDS: dict[str, Field] = {
    **dict(zip(SIZES, (VOCABULARY, WIDTH, WIDTH, LAYERS, HEADS), strict=True)),
    "max_position_embeddings": POSITIONS,
    "local_attention": Whole(2, POSITIONS.most),
    "global_attn_every_n_layers": LAYERS,
    "norm_eps": EPSILON,
    "global_rope_theta": THETA,
    "local_rope_theta": THETA,
    "tie_word_embeddings": Flag(),
}
BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")
"""Biases that the published networks have not; the one of the LM head they have."""
_LAYER = ("attn.Wqkv", "attn.Wo", "mlp_norm", "mlp.Wi", "mlp.Wo")


class ModernBert(NetworkDenoiser):
    compiles = False

    def memory(self, batch: int, length: int) -> KVMemory:
        raise UsageError(f"{self.source.name} has no KV cache: leave cache out")

    def position_bytes(self) -> int:
        return self.memory(1, 1).keys[0].nbytes  # which refuses

    def compiled(self, **compiler: Any) -> NetworkDenoiser:
        raise UsageError(f"{self.source.name} has no layers to compile: use another engine than 'compiled'")

    def _states(self, embeds: Tensor, pattern: Tensor | None, places: Tensor, cache: Any = None) -> Tensor:
        near = self._near(embeds)
        masks = {"full_attention": pattern, "sliding_attention": near if pattern is None else near & pattern}
        body = self.network.model
        return body(inputs_embeds=embeds, attention_mask=masks, position_ids=places).last_hidden_state

    def _near(self, embeds: Tensor) -> Tensor:
        """Whether a position lies in another's window; itself always does, so no row of the mask is empty."""
        index = torch.arange(embeds.shape[1], device=embeds.device)
        near = (index[:, None] - index).abs() <= self.network.config.sliding_window
        return near.expand(len(embeds), 1, -1, -1)

    @torch.no_grad()
    def head(self, hidden: Float[Tensor, "*S H"]) -> Float[Tensor, "*S V"]:
        return self.network.decoder(self.network.head(hidden))


def check(config: Mapping[str, Any]) -> None:
    check_fields(config, FIELDS)
    heads = setting(config, "num_attention_heads")
    check_heads(setting(config, "hidden_size"), heads, heads)


def network(config: Mapping[str, Any]) -> Any:
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    require(config, hidden_activation="gelu", classifier_activation="gelu", decoder_bias=True, tie_word_embeddings=True)
    require(config, **dict.fromkeys(BIASES, False))
    given = ("max_position_embeddings", "norm_eps", "local_attention", "layer_types", "rope_parameters")
    older = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")
    stated = {key: config[key] for key in (*given, *older) if config.get(key) is not None}
    special = dict.fromkeys(f"{name}_token_id" for name in ("pad", "eos", "bos", "cls", "sep"))  # of no use to it
    return ModernBertForMaskedLM(ModernBertConfig(**settings(config, *SIZES), **stated, **special, **bidirectional()))


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    names = ["model.embeddings.tok_embeddings", "model.embeddings.norm", "model.final_norm", "head.dense", "head.norm"]
    for layer in range(setting(config, "num_hidden_layers")):
        names += [f"model.layers.{layer}.{leaf}" for leaf in (*(["attn_norm"] if layer else []), *_LAYER)]
    for name in [*(f"{name}.weight" for name in names), "decoder.bias"]:
        yield Weight.whole(name, name)


FAMILY = Family(
    name="modernbert",
    stock="ModernBertForMaskedLM",
    check=check,
    network=network,
    weights=weights,
    denoiser=ModernBert,
    mask_token="[MASK]",
    end_of_turn=("[SEP]", 50282),
    other_ends=("[PAD]",),
    chat_template=chat_template("modernbert"),
    max_length=lambda config: setting(config, "max_position_embeddings"),
)
