"""Accuracy of a checkpoint on held-out validation items, decoded without feedback. Test items are not used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from softdlm.commit import TopN
from softdlm.feedback import Mask
from softdlm.generation import generate
from softdlm.models.denoiser import Denoiser
from softdlm.tasks import load_task

RATES = (1, 4)
"""Tokens per step: 1 for the best quality, 4 for parallel decoding."""


def validate(model: Denoiser, tasks: Sequence[str], size: int, batch_size: int) -> Iterator[dict[str, Any]]:
    """Yield the accuracy for each task and rate."""
    for name in tasks:
        task = load_task(name, split="validation", size=size)
        prompts = [item.prompt for item in task]
        for rate in RATES:
            length = task.max_new_tokens
            answers = generate(
                model, prompts, max_new_tokens=length, commit=TopN(rate), feedback=Mask(), batch_size=batch_size
            )
            right = sum(task.score_all(task.items, [answer.text for answer in answers]))
            yield {"task": name, "tokens_per_step": rate, "items": size, "accuracy": round(100 * right / size, 2)}
