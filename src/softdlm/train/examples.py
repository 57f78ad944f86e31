"""Training rows: prompt, answer region and padding, as a function of the seed and the step.

Worker processes import this file, so it stays free of torch: a worker is up in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from softdlm.tasks import training_stream
from softdlm.tasks.either_or import NAME as EITHER_OR
from softdlm.tasks.task import PROMPT_TOKENS, RESPONSE_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LENGTH = PROMPT_TOKENS + RESPONSE_TOKENS


class Rows(NamedTuple):
    """Arrays of one batch: ids [B, LENGTH], tokens of the prompt [B], positions of the answer region [B]."""

    ids: np.ndarray
    prompt: np.ndarray
    answer: np.ndarray


@dataclass(frozen=True)
class Tokens:
    """What rows and network must know of a tokenizer; prefix and suffix are the chat template around a prompt."""

    file: Path
    size: int
    mask_id: int
    eos_id: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]


@dataclass(frozen=True)
class RowMaker:
    """Makes the rows of any step alone, so that workers need no order and a resumed run no history."""

    tokens: Tokens
    mixture: Mapping[str, float]
    batch: int
    seed: int

    def rows(self, step: int) -> Rows:
        rng = Random(f"rows/{self.seed}/{step}")
        names = rng.choices(list(self.mixture), list(self.mixture.values()), k=self.batch)
        streams = {name: training_stream(name, seed=f"{self.seed}/{step}") for name in self.mixture}
        pairs = [next(streams[name]) for name in names]
        texts = [text for pair in pairs for text in pair]
        encoded = _encode(self.tokens.file, texts)
        prompts = [self._prompt(rng, *each) for each in zip(names, encoded[::2], strict=True)]
        responses = encoded[1::2]
        check(prompts, responses)
        ids = np.full((self.batch, LENGTH), self.tokens.eos_id, dtype=np.int16)
        for row, prompt, response in zip(ids, prompts, responses, strict=True):
            row[: len(prompt) + len(response)] = prompt + response
        lengths = [answer_length(rng, *each) for each in zip(names, map(len, responses), strict=True)]
        return Rows(ids, np.array([len(prompt) for prompt in prompts], np.int16), np.array(lengths, np.int16))

    def several(self, steps: Sequence[int]) -> list[Rows]:
        return [self.rows(step) for step in steps]

    def _prompt(self, rng: Random, task: str, prompt: list[int]) -> list[int]:
        """Inside the chat template; half of either-or as raw text, which is how the paper's prompts are read."""
        if task == EITHER_OR and rng.random() < 0.5:
            return prompt
        return [*self.tokens.prefix, *prompt, *self.tokens.suffix]


def answer_length(rng: Random, task: str, response: int) -> int:
    """Positions from the end of the prompt to the end of the canvas; what the response leaves is EOS.

    Half of the canvases are full, the rest of any length, so that a user may choose max_new_tokens. Prompts of the
    paper's controlled study are decoded with exactly as many masks as the answer has words, so either-or sees that.
    """
    if task == EITHER_OR and rng.random() < 0.5:
        return response
    return RESPONSE_TOKENS if rng.random() < 0.5 else rng.randint(response + 1, RESPONSE_TOKENS)


def check(prompts: Sequence[list[int]], responses: Sequence[list[int]]) -> None:
    """A tokenizer other than the tasks' own may need more room than a row has."""
    prompt, response = max(map(len, prompts)), max(map(len, responses))
    if prompt > PROMPT_TOKENS or response >= RESPONSE_TOKENS:
        raise ValueError(
            f"a prompt of {prompt} or a response of {response} tokens, where a row has room for {PROMPT_TOKENS} and "
            f"{RESPONSE_TOKENS - 1}: the tokenizer is not the one the tasks were made for"
        )


def _encode(file: Path, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in _tokenizer(file).encode_batch_fast(texts, add_special_tokens=False)]


@cache
def _tokenizer(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))
