"""Training examples (prompt, answer region, padding) as a function of the seed and the step.

Worker processes import this module. It does not import torch, so that they start in a fraction of a second.
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


class Examples(NamedTuple):
    """Arrays of one batch: ids [B, LENGTH], tokens of the prompt [B], positions of the answer region [B]."""

    ids: np.ndarray
    prompt: np.ndarray
    answer: np.ndarray


@dataclass(frozen=True)
class Tokens:
    """The tokenizer as far as training needs it. `prefix` and `suffix` are the chat template around a prompt."""

    file: Path
    size: int
    mask_id: int
    eos_id: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]


@dataclass(frozen=True)
class ExampleMaker:
    """Makes the batch of any step independently of all others, so workers and resumed runs need no common state."""

    tokens: Tokens
    mixture: Mapping[str, float]
    batch: int
    seed: int

    def rows(self, step: int) -> Examples:
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
        return Examples(ids, np.array([len(prompt) for prompt in prompts], np.int16), np.array(lengths, np.int16))

    def several(self, steps: Sequence[int]) -> list[Examples]:
        return [self.rows(step) for step in steps]

    def _prompt(self, rng: Random, task: str, prompt: list[int]) -> list[int]:
        """The prompt inside the chat template; half of either-or stays raw text, as in the paper's controlled study."""
        if task == EITHER_OR and rng.random() < 0.5:
            return prompt
        return [*self.tokens.prefix, *prompt, *self.tokens.suffix]


def answer_length(rng: Random, task: str, response: int) -> int:
    """Positions of the answer region; those after the response are EOS.

    Half of the answer regions have the full length and the others a random one, so that the model works with any
    max_new_tokens. The paper's controlled study decodes with exactly as many masks as the answer has words, so half of
    either-or is trained that way.
    """
    if task == EITHER_OR and rng.random() < 0.5:
        return response
    return RESPONSE_TOKENS if rng.random() < 0.5 else rng.randint(response + 1, RESPONSE_TOKENS)


def check(prompts: Sequence[list[int]], responses: Sequence[list[int]]) -> None:
    """Refuse texts that do not fit into a row, as with a tokenizer other than the tasks' own."""
    prompt, response = max(map(len, prompts)), max(map(len, responses))
    if prompt > PROMPT_TOKENS or response >= RESPONSE_TOKENS:
        raise ValueError(
            f"the longest prompt has {prompt} tokens and the longest response {response}; a row has room for "
            f"{PROMPT_TOKENS} and {RESPONSE_TOKENS - 1}: use the built-in tokenizer"
        )


def _encode(file: Path, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in _tokenizer(file).encode_batch_fast(texts, add_special_tokens=False)]


@cache
def _tokenizer(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))
