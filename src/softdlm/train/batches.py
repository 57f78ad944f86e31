"""Batches for the training loop: made by worker processes, in order, and the same for any number of workers."""

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

from softdlm.models.folder import CheckpointFolder
from softdlm.models.llada import FAMILY
from softdlm.models.tokenizer import load_tokenizer, token_id
from softdlm.models.weights import read_meaning
from softdlm.tasks.task import RESPONSE_TOKENS
from softdlm.train.examples import ExampleMaker, Examples, Tokens

AHEAD = 3
"""Jobs queued per worker: enough for uneven steps, few enough to stop quickly."""
TOGETHER = 16
"""Batches per job. With one per job, receiving the results slowed GPU launches to two thirds."""


@dataclass(frozen=True)
class Batch:
    """Examples on the device. A row is a prompt, an answer region (the response, then EOS), and masked padding."""

    ids: Int[Tensor, "B L"]
    prompt: Int[Tensor, "B"]
    """Tokens of the prompt."""
    answer: Int[Tensor, "B"]
    """Positions of the answer region."""

    @property
    def positions(self) -> Int[Tensor, "B L"]:
        return torch.arange(self.ids.shape[1], device=self.ids.device).expand_as(self.ids)

    @property
    def real(self) -> Bool[Tensor, "B L"]:
        return self.positions < (self.prompt + self.answer)[:, None]

    @property
    def places(self) -> Int[Tensor, "B A"]:
        """The positions after each prompt, as many as the longest answer region has, so that the shape is fixed."""
        return self.prompt[:, None] + torch.arange(RESPONSE_TOKENS, device=self.ids.device)

    @property
    def open(self) -> Bool[Tensor, "B A"]:
        """Which of `places` belong to the answer region."""
        return torch.arange(RESPONSE_TOKENS, device=self.ids.device) < self.answer[:, None]


def read_tokens(folder: Path) -> Tokens:
    """The tokenizer of a folder. Rendering a placeholder prompt gives the chat template's constant ids."""
    tokenizer = load_tokenizer(folder, read_meaning(CheckpointFolder(folder)), FAMILY)
    mask_id = token_id(tokenizer, FAMILY.mask_token)
    assert mask_id is not None
    gap = "\x00"
    text = tokenizer.apply_chat_template([{"role": "user", "content": gap}], add_generation_prompt=True, tokenize=False)
    prefix, suffix = (tuple(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in text.split(gap))
    return Tokens(folder / "tokenizer.json", len(tokenizer), mask_id, tokenizer.eos_token_id, prefix, suffix)


def stream_examples(maker: ExampleMaker, start: int, workers: int, pool: int) -> Generator[Examples, None, None]:
    """Batches from step `start` on, without end. Step s uses batch s % pool; each is made once and kept.

    A resumed run makes the batches that it needs again, so it sees the same ones as an uninterrupted run.
    """
    kept: dict[int, Examples] = {}
    numbers = [step % pool for step in range(start, start + pool)]
    with closing(_fresh_examples(maker, numbers, workers)) as fresh:
        for number in cycle(numbers):
            if number not in kept:
                kept[number] = next(fresh)
            yield kept[number]


def _fresh_examples(maker: ExampleMaker, numbers: Sequence[int], workers: int) -> Generator[Examples, None, None]:
    """The batches with these numbers, in order; with 0 workers they are made in this process.

    Workers are spawned, not forked: a forked process would inherit the threads and the GPU context of this one.
    """
    if workers == 0:
        yield from map(maker.rows, numbers)
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_quiet_worker)
    try:
        waiting: deque[Future[list[Examples]]] = deque()
        for start in range(0, len(numbers), TOGETHER):
            waiting.append(pool.submit(maker.several, numbers[start : start + TOGETHER]))
            if len(waiting) > AHEAD * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def to_device(rows: Examples, device: torch.device) -> Batch:
    """Copy a batch: two bytes per id, and from pinned memory, so that the loop does not wait for the copy."""
    tensors = [torch.from_numpy(array) for array in rows]
    if device.type == "cuda":
        tensors = [tensor.pin_memory().to(device, non_blocking=True) for tensor in tensors]
    return Batch(*(tensor.long() for tensor in tensors))


def default_workers(device: torch.device) -> int:
    """All cores but one with a GPU, which would wait for examples; 0 on a CPU, where the network needs the cores."""
    return 0 if device.type == "cpu" else max(1, (os.cpu_count() or 1) - 1)


def _quiet_worker() -> None:
    """One thread per worker; Ctrl-C is handled by the parent process only."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
