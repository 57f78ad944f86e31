"""What a family must say of itself, so that one loader serves them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from softdlm.errors import CheckpointError
from softdlm.models.denoiser import NetworkDenoiser

Index = tuple[int | slice, ...]

SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings", "rms_norm_eps"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
)
"""Keys of transformers' own configurations that checkpoints of its making share."""


@dataclass(frozen=True)
class Part:
    """A region of a parameter of the stock network; an empty index is the whole of it."""

    parameter: str
    index: Index = ()


@dataclass(frozen=True)
class Weight:
    """A tensor of the checkpoint: its parts, one after another along the first dimension."""

    name: str
    parts: tuple[Part, ...]

    @staticmethod
    def whole(name: str, parameter: str) -> Weight:
        return Weight(name, (Part(parameter),))


@dataclass(frozen=True)
class Family:
    """A model family: how its checkpoint becomes a stock network, and what its tokens mean."""

    name: str
    models: Mapping[str, int]
    """Hugging Face ids known to be of this family, and their numbers of parameters."""
    network: Callable[[Mapping[str, Any]], Any]
    """config.json -> an uninitialised stock network (built on the meta device)."""
    weights: Callable[[Mapping[str, Any]], Iterator[Weight]]
    """config.json -> every tensor the checkpoint must hold."""
    denoiser: type[NetworkDenoiser]
    mask_id: int
    """Of the published checkpoints; config.json's mask_token_id goes first."""
    mask_token: str
    eos_id: int
    end_of_turn: tuple[str, int | None]
    """Token and, where established, id."""
    chat_template: str
    max_length: Callable[[Mapping[str, Any]], int]
    tokenizer_class: str = "AutoTokenizer"
    float32: tuple[str, ...] = ()
    """Endings of the parameters that stay float32 whatever the model's type."""


def require(config: Mapping[str, Any], **expected: Any) -> None:
    """Refuse a checkpoint that asks for something the stock network would silently not do."""
    for key, wanted in expected.items():
        if key in config and config[key] not in (wanted, None):
            raise CheckpointError(f"config.json says {key} = {config[key]!r}; only {wanted!r} is supported")


def settings(config: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Keys that mean the same in the checkpoint's configuration and in the stock one."""
    return {key: setting(config, key) for key in keys}


def setting(config: Mapping[str, Any], *keys: str) -> Any:
    """The first of these keys that config.json holds."""
    for key in keys:
        if config.get(key) is not None:
            return config[key]
    raise CheckpointError(f"config.json lacks {' and '.join(map(repr, keys))}")
