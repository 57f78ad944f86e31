"""A network whose own forward pass is called as it is: the remote code of LLaDA, Dream and LLaDA-2, and encoders.

Such a network returns logits at every position, so all of them go through its LM head, and it has no place for our keys
and values. What it is told of padding and blocks follows the conventions of its code.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.models.attention import Attention, aligned, attention_pattern
from softdlm.models.denoiser import Denoiser, NetworkDenoiser
from softdlm.types import row_positions


class Sight(NamedTuple):
    """What a pass is told besides its input."""

    real: Bool[Tensor, "B L"]
    places: Int[Tensor, "B L"]
    pattern: Bool[Tensor, "B 1 L L"] | None
    """Who sees whom; None is everybody."""


Call = Callable[[Any, Float[Tensor, "B L D"], Sight], Float[Tensor, "B L V"]]


def call_llada(network: Any, embeds: Float[Tensor, "B L D"], sight: Sight) -> Float[Tensor, "B L V"]:
    """Positions count from column 0, which rotary embeddings do not notice; a mask of padding is an attention bias."""
    return network(inputs_embeds=embeds, attention_bias=sight.pattern).logits


def call_dream(network: Any, embeds: Float[Tensor, "B L D"], sight: Sight) -> Float[Tensor, "B L V"]:
    mask = "full" if sight.pattern is None else sight.pattern
    return network(inputs_embeds=embeds, attention_mask=mask, position_ids=sight.places).logits


def call_llada2(network: Any, embeds: Float[Tensor, "B L D"], sight: Sight) -> Float[Tensor, "B L V"]:
    """Always with an additive mask: without one, what its code sees depends on its kind of attention."""
    batch, length, _ = embeds.shape
    mask = embeds.new_zeros(batch, 1, length, length)
    if sight.pattern is not None:
        mask = mask.masked_fill(~sight.pattern, float("-inf"))
    return network(inputs_embeds=embeds, attention_mask=mask, position_ids=sight.places).logits


def call_encoder(network: Any, embeds: Float[Tensor, "B L D"], sight: Sight) -> Float[Tensor, "B L V"]:
    """A masked language model of transformers, such as BERT: it makes its own mask of the padding."""
    numbered = "position_ids" in signature(network.forward).parameters
    places = {"position_ids": sight.places} if numbered else {}
    return network(inputs_embeds=embeds, attention_mask=sight.real.long(), **places).logits


class CalledNetwork(Denoiser):
    """Its states are its logits: `head` has nothing left to do."""

    def __init__(
        self, network: Any, call: Call, kind: type[NetworkDenoiser], *, attention: Attention = "auto", **identity: Any
    ) -> None:
        self.network, self.call, self.kind, self.attention = network.eval(), call, kind, attention
        self.blocks_from_zero, self.first_open = kind.blocks_from_zero, kind.first_open
        super().__init__(network.get_input_embeddings().weight.detach(), **identity)

    @torch.no_grad()
    def hidden(
        self,
        embeds: Float[Tensor, "B L D"],
        *,
        attention_mask: Bool[Tensor, "B L"] | None = None,
        position_ids: Int[Tensor, "B L"] | None = None,
        block_length: int | None = None,
        block_start: Int[Tensor, "B 1"] | None = None,
    ) -> Float[Tensor, "B L V"]:
        everyone = torch.ones(embeds.shape[:2], dtype=torch.bool, device=embeds.device)
        real = everyone if attention_mask is None else attention_mask
        places = row_positions(real) if position_ids is None else position_ids
        pattern = attention_pattern(attention_mask, places, block_length, block_start=block_start)
        logits = self.call(self.network, embeds, Sight(real, places, pattern)).to(self.device)
        return aligned(logits) if self.first_open else logits

    def head(self, hidden: Float[Tensor, "*S V"]) -> Float[Tensor, "*S V"]:
        return hidden

    def attention_block(self, block_length: int | None) -> int | None:
        return self.kind.attention_block(self, block_length)  # type: ignore[arg-type]

    def weights(self) -> list[Tensor]:
        return [*self.network.parameters(), *self.network.buffers()]

    def weight_addresses(self) -> tuple[int, ...]:
        return ()  # nothing is captured, and quantised weights have no one address

    def working_bytes(self, positions: int) -> int:
        """The network's own, and logits at every position."""
        return super().working_bytes(positions) + 2 * positions * len(self.embedding) * self.dtype.itemsize
