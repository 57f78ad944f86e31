"""A KVMemory in the form of transformers' `Cache`. Importing this module imports transformers."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from softdlm.models.kv_memory import KVMemory, Window


class WindowLayer(CacheLayerMixin):
    """Keys and values of one layer. `update` writes the window's new ones and returns those of all keys it sees."""

    is_sliding = False

    def __init__(self, keys: Float[Tensor, "B heads L d"], values: Float[Tensor, "B heads L d"], window: Window):
        super().__init__()
        self.stored, self.window, self.is_initialized = (keys, values), window, True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """No work to do: the tensors are allocated before the first pass."""

    def update(
        self, key_states: Float[Tensor, "G heads Q d"], value_states: Float[Tensor, "G heads Q d"], *_: object
    ) -> tuple[Float[Tensor, "G heads K d"], Float[Tensor, "G heads K d"]]:
        for stored, states in zip(self.stored, (key_states, value_states), strict=True):
            self.window.store(stored, states)
        if self.window.written is None:
            return key_states, value_states
        keys, values = self.stored
        return self.window.recall(keys), self.window.recall(values)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return len(self.window.keys), 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.stored[0].shape[2]


def network_cache(memory: KVMemory, window: Window) -> Cache:
    pairs = zip(memory.keys, memory.values, strict=True)
    return Cache(layers=[WindowLayer(keys, values, window) for keys, values in pairs])
