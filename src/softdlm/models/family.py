"""Description of a model family: what the one loader needs to know about each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from softdlm.errors import UsageError
from softdlm.models.attention import Attention
from softdlm.models.denoiser import NetworkDenoiser
from softdlm.models.known import known_model
from softdlm.models.own_settings import OwnSettings

Index = tuple[int | slice, ...]


@dataclass(frozen=True)
class ParameterSlice:
    """A region of a parameter of the stock network; an empty index means the whole parameter."""

    parameter: str
    index: Index = ()


@dataclass(frozen=True)
class Weight:
    """A tensor of the checkpoint and where it goes: its slices follow one another along the first dimension."""

    name: str
    parts: tuple[ParameterSlice, ...]

    @staticmethod
    def whole(name: str, parameter: str) -> Weight:
        return Weight(name, (ParameterSlice(parameter),))


@dataclass(frozen=True)
class Family:
    """How a family's checkpoints become a stock network, and its special tokens."""

    name: str
    stock: str
    """The class of transformers that `network` makes."""
    check: Callable[[Mapping[str, Any]], None]
    """Refuses a config.json whose values cannot be those of a network; nothing else reads one that was not checked."""
    network: Callable[[Mapping[str, Any]], Any]
    """config.json -> an uninitialised stock network (built on the meta device)."""
    weights: Callable[[Mapping[str, Any]], Iterator[Weight]]
    """config.json -> every tensor that the checkpoint must hold."""
    denoiser: type[NetworkDenoiser]
    mask_token: str
    end_of_turn: tuple[str, int | None]
    """The token that ends a turn and, if known, its id in the published checkpoints."""
    chat_template: str
    max_length: Callable[[Mapping[str, Any]], int]
    mask_id: int | None = None
    """[MASK] in the published checkpoints; what config.json and the tokenizer say takes precedence."""
    eos_id: int | None = None
    """EOS in the published checkpoints; None: config.json or the tokenizer says it."""
    other_ends: tuple[str, ...] = ()
    """Tokens besides EOS and the end of a turn that end a text, such as what fills the canvas after it."""
    attentions: tuple[Attention, ...] = ("full",)
    """What `load(..., attention=)` may choose."""
    template_start: str = ""
    """Jinja text that goes before the checkpoint's own chat template."""
    tokenizer_class: str = "AutoTokenizer"
    float32: tuple[str, ...] = ()
    """Name endings of parameters that stay at least float32 in every dtype."""

    def check_attention(self, attention: Attention) -> None:
        if attention != "auto" and attention not in self.attentions:
            raise UsageError(f"{self.name} models have full attention, not {attention!r}: leave attention out")


def published(family: Family, name: str) -> OwnSettings:
    """Decoding settings that go with a checkpoint that is known by name: the blocks of one that must have blocks."""
    known = known_model(name)
    blocks = known.block_length if known and family.name.startswith("a2d") else None
    return OwnSettings(block_length=blocks)
