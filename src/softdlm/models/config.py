"""config.json, checked: every value that a network is made of has its type and its range, stated once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softdlm.errors import CheckpointError


@dataclass(frozen=True)
class Whole:
    """A whole number in a range. The upper ends lie far beyond any real model: they catch nonsense, not progress."""

    least: int
    most: int

    def fits(self, value: Any) -> bool:
        return type(value) is int and self.least <= value <= self.most

    def __str__(self) -> str:
        return f"a whole number from {self.least} to {self.most:,}"


@dataclass(frozen=True)
class Real:
    """A finite number above 0, up to a limit."""

    most: float

    def fits(self, value: Any) -> bool:
        return type(value) in (int, float) and math.isfinite(value) and 0 < value <= self.most

    def __str__(self) -> str:
        return f"a finite number above 0, at most {self.most:g}"


class Flag:
    def fits(self, value: Any) -> bool:
        return isinstance(value, bool)

    def __str__(self) -> str:
        return "true or false"


class Ids:
    """A token id, or a list of them."""

    def fits(self, value: Any) -> bool:
        return all(map(TOKEN_ID.fits, value)) if isinstance(value, list) and value else TOKEN_ID.fits(value)

    def __str__(self) -> str:
        return f"{TOKEN_ID}, or a list of such numbers"


Field = Whole | Real | Flag | Ids
LAYERS, HEADS, WIDTH = Whole(1, 10_000), Whole(1, 10_000), Whole(1, 1_000_000)
VOCABULARY, POSITIONS = Whole(1, 10_000_000), Whole(1, 1_000_000_000)
EXPERTS = Whole(1, 100_000)
TOKEN_ID = Whole(0, VOCABULARY.most)
TOKEN_IDS = Ids()
EPSILON, THETA = Real(1.0), Real(1e15)

COMMON: dict[str, Field] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": WIDTH,
    "max_position_embeddings": POSITIONS,
    "rms_norm_eps": EPSILON,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
}
"""Keys with the same name in Dream's and LLaDA-2's config.json and in transformers' configurations."""
SIZES = tuple(COMMON)
LM_HEADS = ("lm_head.weight", "decoder.weight", "model.transformer.ff_out.weight")
"""Names of the LM head in the families' checkpoints."""


def check_fields(config: Mapping[str, Any], fields: Mapping[str, Field]) -> None:
    """Refuse the first value that is not of its type and range; a key that is absent or null counts as left out."""
    for key, field in fields.items():
        if config.get(key) is not None and not field.fits(config[key]):
            raise CheckpointError(f"config.json says {key} = {config[key]!r}; it must be {field}")


def check_heads(width: int, heads: int, key_heads: int, head_width: int | None = None) -> None:
    """Refuse heads that do not share the width evenly, or whose width has no rotary pairs."""
    if head_width is None and width % heads:
        raise CheckpointError(f"config.json says {heads} heads for a width of {width}, which they do not divide")
    if heads % key_heads:
        raise CheckpointError(f"config.json says {key_heads} key heads for {heads} heads, which they do not divide")
    if (head_width or width // heads) % 2:
        raise CheckpointError(f"config.json says heads of the odd width {head_width or width // heads}")


def require(config: Mapping[str, Any], **expected: Any) -> None:
    """Refuse a checkpoint with a setting that the stock network would silently ignore."""
    for key, wanted in expected.items():
        if key in config and config[key] not in (wanted, None):
            raise CheckpointError(f"config.json says {key} = {config[key]!r}; only {wanted!r} is supported")


def settings(config: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Settings whose key and meaning are the same in the checkpoint's and in the stock configuration."""
    return {key: setting(config, key) for key in keys}


def setting(config: Mapping[str, Any], *keys: str) -> Any:
    """The value of the first of these keys that config.json holds."""
    for key in keys:
        if config.get(key) is not None:
            return config[key]
    raise CheckpointError(f"config.json lacks {' and '.join(map(repr, keys))}")


def check_ties(config: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse weights with an LM head where config.json says that it is the embedding.

    transformers decides such a case by itself, without a word.
    """
    head = next((name for name in names if name in LM_HEADS), None)
    if head and any(config.get(key) for key in ("tie_word_embeddings", "weight_tying")):
        raise CheckpointError(
            f"config.json ties the LM head to the embedding, but the weights hold {head} as well: remove it if it "
            "repeats the embedding, else set tie_word_embeddings to false"
        )
