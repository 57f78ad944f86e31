"""A decode to measure, and the size of each of its passes, computed independently of the decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from softdlm.cache import CachePolicy, Prefix
from softdlm.commit import CommitRule, TopN
from softdlm.decoding import Decoding
from softdlm.engine.pick_engine import EngineKind
from softdlm.feedback import FeedbackRule, Mask
from softdlm.generation import Generation, generate
from softdlm.models.denoiser import Denoiser
from softdlm.registry import spell

NATS = 11.3
"""Entropy of a position under random weights, with the vocabularies of LLaDA-8B and Dream-7B."""


def nats(tokens: int) -> float:
    """The entropy bound that commits so many positions a pass."""
    return round(NATS * (tokens - 0.5), 1)


class PassSize(NamedTuple):
    """Size of one pass."""

    batch: int
    queries: int
    """Computed positions per row."""
    keys: int
    """Positions that each computed position attends to."""
    rows: int
    """Positions per row that go through the LM head."""


@dataclass(frozen=True)
class Decode:
    """A decode of random prompts of equal length with TopN, without early finish."""

    prompt: int
    new: int
    rate: int
    """Tokens committed per pass."""
    block: int | None = None
    cache: CachePolicy | None = None
    feedback: FeedbackRule = field(default_factory=Mask)
    batch: int = 1
    commit: CommitRule | None = None
    """Instead of `rate` tokens a pass; how many passes there are is then unknown."""

    def __str__(self) -> str:
        cache = f"{spell(self.cache)} cache" if self.cache else "no cache"
        words = [f"{self.prompt} + {self.new} tokens", f"{self.rate} a step", cache]
        words += [f"blocks of {self.block}"] if self.block else []
        words += [spell(self.feedback)]
        return ", ".join(words + ([f"batch {self.batch}"] if self.batch > 1 else []))

    @property
    def length(self) -> int:
        return self.prompt + self.new

    @property
    def tokens(self) -> int:
        return self.batch * self.new

    def ending(self, new: int, rate: int) -> Decode:
        """The last `new` tokens of the same canvas at another rate: the same length, fewer passes."""
        return replace(self, prompt=self.length - new, new=new, rate=rate)

    def passes(self, first_open: int = 0) -> list[PassSize]:
        """The size of every pass, by the rules of cache.py; `first_open` is the model's."""
        return list(self._passes(first_open))

    def _passes(self, first_open: int) -> Iterator[PassSize]:
        size, ahead = self.block or self.new, isinstance(self.cache, Prefix)
        for block, start in enumerate(range(0, self.new, size)):
            inside = min(size, self.new - start)
            after = self.new - start - inside
            for number in range(-(-inside // self.rate)):
                open = inside - number * self.rate
                begins = number == 0
                whole = self.cache is None or (begins and block % self.cache.renew == 0)
                near = inside + (after if ahead else 0) + (size if begins else 0)
                soft = self.feedback != Mask() and (whole or ahead)
                queries = self.length if whole else near + first_open
                yield PassSize(self.batch, queries, self.length, open + (after if soft else 0))

    @property
    def decoding(self) -> Decoding:
        plain = Decoding(self.commit or TopN(self.rate), self.feedback, max_new_tokens=self.new, early_finish=False)
        return replace(plain, block_length=self.block, cache=self.cache).settled()

    def run(self, model: Denoiser, engine: EngineKind = "auto") -> list[Generation]:
        texts = prompts(model, self.batch, self.prompt)
        return generate(model, texts, decoding=self.decoding, batch_size=self.batch, engine=engine)


def prompts(model: Denoiser, batch: int, length: int) -> list[list[int]]:
    """Random ids without [MASK] and EOS; the same at every call."""
    source = torch.Generator().manual_seed(length)
    special = torch.tensor([model.mask_id, *model.eos_ids])
    ordinary = torch.arange(len(model.embedding))
    ordinary = ordinary[~torch.isin(ordinary, special)]
    return ordinary[torch.randint(len(ordinary), (batch, length), generator=source)].tolist()
