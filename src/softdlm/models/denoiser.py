"""The Denoiser: the only view of a model that the rest of the code has."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softdlm.errors import UsageError
from softdlm.models.attention import Attention, aligned, attention_pattern
from softdlm.models.fp8 import Fp8
from softdlm.models.kv_memory import KVMemory, Window
from softdlm.models.own_settings import OwnSettings
from softdlm.models.pace import Paced, passes_worth
from softdlm.types import row_positions


@dataclass(frozen=True)
class Source:
    """Where a model came from; written into traces and results."""

    name: str
    family: str
    revision: str | None = None


class Denoiser(Paced):
    """Embeddings in, aligned predictions out: the row at position j predicts the token at position j.

    A subclass supplies `hidden` and `head`. They are separate so that only requested rows go through the LM head.
    """

    blocks_from_zero = False
    """Whether blocks start at position 0, prompt included (LLaDA-2), instead of at the first open position.
    Blocks of block-causal attention are the same: where this is False, `hidden` is told where they start.
    """
    first_open = 0
    """The first position that can be predicted. Dream predicts position j from the state at j - 1, so there it is 1."""
    own = OwnSettings()
    """The checkpoint's own settings: they fill what a Decoding leaves out."""
    stamp: tuple[Any, ...] = ()
    """What the system said of the checkpoint's files when they were read; whether they changed since is seen by it."""
    digest: str | None = None
    """Of the bytes that were loaded, where `load` was asked for it."""
    fp8: Fp8 | None = None
    """Whether the layers' matrices are kept in eight bits (models/fp8.py)."""

    def __init__(
        self,
        embedding: Float[Tensor, "V D"],
        *,
        mask_id: int,
        eos_ids: Sequence[int] = (),
        tokenizer: Any = None,
        max_length: int | None = None,
        source: Source | None = None,
    ) -> None:
        self.embedding = embedding
        self.mask_id = mask_id
        self.eos_ids = tuple(eos_ids)
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.source = source or Source(type(self).__name__, "custom")
        self.slot_cache: list[Any] = []
        """What a decode leaves for the next one: buffers and captured passes (engine/slot_store.py)."""
        self.passes, self.due = {}, set()

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def precision(self) -> str:
        """The `dtype` that it was loaded with, by name."""
        return self.fp8 or str(self.dtype).removeprefix("torch.")

    @property
    def sync_free(self) -> bool:
        """Whether `hidden` and `head` never synchronise with a GPU: only then a pass can be captured (engine/)."""
        return False

    def embed(self, ids: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        return self.embedding[ids]

    def hidden(
        self,
        embeds: Float[Tensor, "B L D"],
        *,
        attention_mask: Bool[Tensor, "B L"] | None = None,
        position_ids: Int[Tensor, "B L"] | None = None,
        block_length: int | None = None,
        block_start: Int[Tensor, "B 1"] | None = None,
    ) -> Float[Tensor, "B L H"]:
        """Aligned states before the LM head; with `block_length`, under block-causal attention.

        `block_start` is a position at which a block starts; None is 0. It is given only with a `block_length`.
        """
        raise TypeError(f"{type(self).__name__} must define hidden()")

    def head(self, hidden: Float[Tensor, "*S H"]) -> Float[Tensor, "*S V"]:
        raise TypeError(f"{type(self).__name__} must define head()")

    def memory(self, batch: int, length: int) -> KVMemory:
        """Empty key and value tensors for a batch. Only models that can use a KV cache (cache.py) define this."""
        raise UsageError(f"{self.source.name} has no KV cache: leave cache out")

    def position_bytes(self) -> int:
        """Bytes of the keys and values of one position."""
        return sum(tensor.nbytes for tensor in self.memory(1, 1).tensors)

    def hidden_in(
        self,
        window: Window,
        memory: KVMemory,
        embeds: Float[Tensor, "G Q D"],
        *,
        attention_mask: Bool[Tensor, "G K"] | None = None,
        position_ids: Int[Tensor, "G K"],
        block_length: int | None = None,
        block_start: Int[Tensor, "G 1"] | None = None,
    ) -> Float[Tensor, "G Q H"]:
        """`hidden` for the window's positions. Reads other keys and values from `memory`, stores new ones in it."""
        raise TypeError(f"{type(self).__name__} defines memory(), so it must define hidden_in() too")

    def weights(self) -> list[Tensor]:
        return [self.embedding]

    def weight_addresses(self) -> tuple[int, ...]:
        """Where the weights lie. Captured passes hold addresses: after a change they are captured anew."""
        return tuple(tensor.data_ptr() for tensor in self.weights())

    def reads(self) -> list[Tensor]:
        """Every tensor that a pass reads besides its input: a captured pass keeps their memory alive."""
        return self.weights()

    def settle_weights(self) -> None:
        """Put the weights where they stay, before the first pass is captured."""

    def working_bytes(self, positions: int) -> int:
        """An estimate of what one pass over so many positions allocates in the network."""
        return 8 * positions * self.embedding.shape[1] * self.dtype.itemsize

    def compiled(self, **compiler: Any) -> Denoiser:
        raise UsageError(f"{self.source.name} has no layers to compile: use another engine than 'compiled'")

    def attention_block(self, block_length: int | None) -> int | None:
        """Block length of block-causal attention when decoding in blocks of `block_length`; None is full attention."""
        return None

    @torch.no_grad()
    def logits(
        self,
        ids: Int[Tensor, "B L"] | None = None,
        *,
        embeds: Float[Tensor, "B L D"] | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Int[Tensor, "B L"] | None = None,
        block_length: int | None = None,
    ) -> Float[Tensor, "B L V"]:
        """Aligned logits over the full vocabulary, for analyses and tests. Decoding never materialises them."""
        if (ids is None) == (embeds is None):
            raise UsageError("logits() takes exactly one of ids and embeds")
        inputs = self.embed(ids.to(self.device)) if ids is not None else embeds
        assert inputs is not None
        hidden = self.hidden(
            inputs.to(self.device),
            attention_mask=None if attention_mask is None else attention_mask.to(self.device).bool(),
            position_ids=None if position_ids is None else position_ids.to(self.device),
            block_length=block_length,
        )
        return self.head(hidden)


class NetworkDenoiser(Denoiser):
    """A stock transformers network without its causal mask."""

    compiles = True
    owned = True
    """Whether nobody else uses the network, so that its weights may be frozen and laid out anew."""

    def __init__(self, network: nn.Module, *, attention: Attention = "auto", **identity: Any) -> None:
        self.network: Any = network.eval().requires_grad_(False) if self.owned else network.eval()
        self.compiled_body: Any = None
        self._compiled: NetworkDenoiser | None = None
        self.attention: Attention = attention
        self.compile_after = passes_worth(sum(each.numel() for each in self.weights()))
        super().__init__(self.network.get_input_embeddings().weight.detach(), **identity)

    @property
    def sync_free(self) -> bool:
        return True

    @torch.no_grad()
    def hidden(
        self,
        embeds: Float[Tensor, "B L D"],
        *,
        attention_mask: Bool[Tensor, "B L"] | None = None,
        position_ids: Int[Tensor, "B L"] | None = None,
        block_length: int | None = None,
        block_start: Int[Tensor, "B 1"] | None = None,
    ) -> Float[Tensor, "B L H"]:
        if position_ids is None:
            everyone = torch.ones(embeds.shape[:2], dtype=torch.bool, device=embeds.device)
            position_ids = row_positions(everyone if attention_mask is None else attention_mask)
        pattern = attention_pattern(attention_mask, position_ids, block_length, block_start=block_start)
        return self.align(self._states(embeds, pattern, position_ids))

    def memory(self, batch: int, length: int) -> KVMemory:
        heads, width = self._heads
        return KVMemory.empty(self.embedding, self.network.config.num_hidden_layers, (batch, heads, length, width))

    def position_bytes(self) -> int:
        heads, width = self._heads
        return 2 * self.network.config.num_hidden_layers * heads * width * self.dtype.itemsize

    @property
    def _heads(self) -> tuple[int, int]:
        """Heads of keys and values, and the width of one."""
        config = self.network.config
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return config.num_key_value_heads, width

    @torch.no_grad()
    def hidden_in(
        self,
        window: Window,
        memory: KVMemory,
        embeds: Float[Tensor, "G Q D"],
        *,
        attention_mask: Bool[Tensor, "G K"] | None = None,
        position_ids: Int[Tensor, "G K"],
        block_length: int | None = None,
        block_start: Int[Tensor, "G 1"] | None = None,
    ) -> Float[Tensor, "G Q H"]:
        from softdlm.models.hf_cache import network_cache

        pattern = attention_pattern(attention_mask, position_ids, block_length, window.queries, block_start)
        places = position_ids.gather(1, window.queries)
        return self.align(self._states(embeds, pattern, places, network_cache(memory, window)))

    def _states(self, embeds: Tensor, pattern: Tensor | None, places: Tensor, cache: Any = None) -> Tensor:
        body = self.compiled_body or self.network.model
        return body(
            inputs_embeds=embeds,
            attention_mask=pattern,
            position_ids=places,
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state

    def weights(self) -> list[Tensor]:
        return [*self.network.parameters(), *self.network.buffers()]

    def reads(self) -> list[Tensor]:
        from softdlm.models.compiled import scratch

        return self.weights() if self.compiled_body is None else [*self.weights(), *scratch(self.compiled_body)]

    def settle_weights(self) -> None:
        """As compiled layers want them, so that compiling later moves nothing."""
        from softdlm.models.fused_linear import join_weights

        for module in self.network.model.modules():
            join_weights(module)

    def working_bytes(self, positions: int) -> int:
        config = self.network.config
        return positions * (8 * config.hidden_size + 3 * config.intermediate_size) * self.dtype.itemsize

    def compiled(self, **compiler: Any) -> NetworkDenoiser:
        """The same model with layers that are compiled once per shape; `compiler` holds options of torch.compile.

        Without options it is made once.
        """
        from softdlm.models.compiled import compiled_body

        if self._compiled is None or compiler:
            other = copy(self)
            other.compiled_body = compiled_body(self.network.model, **compiler)
            if compiler:
                return other
            self._compiled = other
        return self._compiled

    def align(self, states: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        return aligned(states) if self.first_open else states

    @torch.no_grad()
    def head(self, hidden: Float[Tensor, "*S H"]) -> Float[Tensor, "*S V"]:
        return self.network.lm_head(hidden)
