"""Batches for the training loop: made by worker processes, taken in order, the same for any number of workers."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softdlm.models.llada import FAMILY
from softdlm.models.tokenizer import load_tokenizer, token_id
from softdlm.tasks.task import RESPONSE_TOKENS
from softdlm.train.examples import RowMaker, Rows, Tokens

AHEAD = 3
"""Tasks given to each worker in advance; enough to ride out an uneven step, little enough to stop quickly."""
TOGETHER = 16
"""Batches in a task: with one in each, taking in the results slows the launches of a GPU to two thirds."""


@dataclass(frozen=True)
class Batch:
    """Rows on the device: a prompt, an answer region (response, then EOS), padding that nobody sees."""

    ids: Int[Tensor, "B L"]
    prompt: Int[Tensor, "B"]
    answer: Int[Tensor, "B"]

    @property
    def positions(self) -> Int[Tensor, "B L"]:
        return torch.arange(self.ids.shape[1], device=self.ids.device).expand_as(self.ids)

    @property
    def real(self) -> Bool[Tensor, "B L"]:
        return self.positions < (self.prompt + self.answer)[:, None]

    @property
    def places(self) -> Int[Tensor, "B A"]:
        """The positions after each prompt, as many as the longest answer region has: a fixed shape."""
        return self.prompt[:, None] + torch.arange(RESPONSE_TOKENS, device=self.ids.device)

    @property
    def open(self) -> Bool[Tensor, "B A"]:
        """Which of `places` belong to the answer region."""
        return torch.arange(RESPONSE_TOKENS, device=self.ids.device) < self.answer[:, None]


def read_tokens(folder: Path) -> Tokens:
    """The tokenizer of a folder; the chat template's constant ids are found by rendering an empty prompt."""
    tokenizer = load_tokenizer(folder, FAMILY)
    mask_id = token_id(tokenizer, FAMILY.mask_token)
    assert mask_id is not None
    gap = "\x00"
    text = tokenizer.apply_chat_template([{"role": "user", "content": gap}], add_generation_prompt=True, tokenize=False)
    prefix, suffix = (tuple(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in text.split(gap))
    return Tokens(folder / "tokenizer.json", len(tokenizer), mask_id, tokenizer.eos_token_id, prefix, suffix)


def stream_rows(maker: RowMaker, start: int, workers: int, pool: int) -> Generator[Rows, None, None]:
    """Rows of the steps from `start` on, without end: batch `step % pool`, made once and kept.

    A resumed run makes again what it needs, so it meets the same rows as an undisturbed one.
    """
    kept: dict[int, Rows] = {}
    numbers = [step % pool for step in range(start, start + pool)]
    with closing(_fresh_rows(maker, numbers, workers)) as fresh:
        for number in cycle(numbers):
            if number not in kept:
                kept[number] = next(fresh)
            yield kept[number]


def _fresh_rows(maker: RowMaker, numbers: Sequence[int], workers: int) -> Generator[Rows, None, None]:
    """Batches by their numbers, in order. With 0 workers they are made here.

    Workers are spawned, never forked: a fork would inherit the threads and the GPU of this process.
    """
    if workers == 0:
        yield from map(maker.rows, numbers)
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_quiet_worker)
    try:
        waiting: deque[Future[list[Rows]]] = deque()
        for start in range(0, len(numbers), TOGETHER):
            waiting.append(pool.submit(maker.several, numbers[start : start + TOGETHER]))
            if len(waiting) > AHEAD * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def to_device(rows: Rows, device: torch.device) -> Batch:
    """Two bytes an id across the bus, from pinned memory so that the copy does not hold up the loop."""
    tensors = [torch.from_numpy(array) for array in rows]
    if device.type == "cuda":
        tensors = [tensor.pin_memory().to(device, non_blocking=True) for tensor in tensors]
    return Batch(*(tensor.long() for tensor in tensors))


def default_workers(device: torch.device) -> int:
    """All cores but one where a GPU waits for rows; none on a CPU, whose cores the network needs itself."""
    return 0 if device.type == "cpu" else max(1, (os.cpu_count() or 1) - 1)


def _quiet_worker() -> None:
    """One thread each, and Ctrl-C is the parent's to handle."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
