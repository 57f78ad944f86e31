"""A decode to be measured, and the work it cannot do without: its passes, counted by hand."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from softdlm.cache import CacheKind
from softdlm.commit import TopN
from softdlm.decode import DecodeOptions
from softdlm.errors import UsageError
from softdlm.generation import Generation, generate
from softdlm.methods import feedback_rule
from softdlm.models.denoiser import Denoiser


class Work(NamedTuple):
    """One pass."""

    batch: int
    queries: int
    """Positions of a row that are computed."""
    keys: int
    """Positions that each of them sees."""
    rows: int
    """Positions of a row that go through the LM head."""


@dataclass(frozen=True)
class Decode:
    """Equally long random prompts, answered to the end by TopN, every token counted."""

    prompt: int
    new: int
    rate: int
    """Tokens a step."""
    block: int | None = None
    cache: CacheKind | None = None
    refresh: int | None = None
    renew: int = 1
    method: str = "vanilla"
    k: int = 3
    batch: int = 1

    def __str__(self) -> str:
        words = [f"{self.prompt} + {self.new} tokens", f"{self.rate} a step", f"{self.cache or 'no'} cache"]
        words += [f"blocks of {self.block}"] if self.block else []
        words += [f"refresh {self.refresh}"] if self.refresh else []
        words += [f"renew {self.renew}"] if self.renew > 1 else []
        words += [self.method if self.method == "vanilla" else f"{self.method} of {self.k}"]
        return ", ".join(words + ([f"batch {self.batch}"] if self.batch > 1 else []))

    @property
    def length(self) -> int:
        return self.prompt + self.new

    @property
    def tokens(self) -> int:
        return self.batch * self.new

    def ending(self, new: int, rate: int) -> Decode:
        """The last tokens of the same canvas only, at another rate: as long a canvas, fewer passes."""
        return replace(self, prompt=self.length - new, new=new, rate=rate)

    def works(self, first_open: int = 0) -> list[Work]:
        """Every pass, from the contract of cache.py; `first_open` is the model's."""
        return list(self._works(first_open))

    def _works(self, first_open: int) -> Iterator[Work]:
        size = self.block or self.new
        for block, start in enumerate(range(0, self.new, size)):
            inside = min(size, self.new - start)
            after = self.new - start - inside
            for number in range(-(-inside // self.rate)):
                open = inside - number * self.rate
                begins = number % (self.refresh or size) == 0
                whole = self.cache is None or (begins and block % self.renew == 0)
                near = inside + (after if self.cache == "prefix" else 0) + (size if begins else 0)
                soft = self.method != "vanilla" and (whole or self.cache == "prefix")
                queries = self.length if whole else near + first_open
                yield Work(self.batch, queries, self.length, open + (after if soft else 0))

    @property
    def options(self) -> DecodeOptions:
        return {
            "commit": TopN(self.rate),
            "feedback": feedback_rule(self.method, self.k),
            "block_length": self.block,
            "cache": self.cache,
            "refresh": self.refresh,
            "renew": self.renew,
        }

    def run(self, model: Denoiser, engine: str = "auto") -> list[Generation]:
        return generate(
            model,
            prompts(model, self.batch, self.prompt),
            max_new_tokens=self.new,
            batch_size=self.batch,
            early_finish=False,
            **self.options,
            **engine_option(engine),
        )


def prompts(model: Denoiser, batch: int, length: int) -> list[list[int]]:
    """Random ids, the same at every call, without the special ones."""
    source = torch.Generator().manual_seed(length)
    special = torch.tensor([model.mask_id, *model.eos_ids])
    ordinary = torch.arange(len(model.embedding))
    ordinary = ordinary[~torch.isin(ordinary, special)]
    return ordinary[torch.randint(len(ordinary), (batch, length), generator=source)].tolist()


def engine_option(engine: str) -> dict[str, Any]:
    """The engine as a keyword of `generate`, where it has a choice of them."""
    if "engine" in inspect.signature(generate).parameters:
        return {"engine": engine}
    if engine != "auto":
        raise UsageError(f"engine {engine!r}: this version has one way to run a pass; leave --engine out")
    return {}
