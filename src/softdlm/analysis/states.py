"""Canvases in the course of a decode, and what one-at-a-time decoding makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import torch

from softdlm.analysis.questions import Question
from softdlm.commit import TopN
from softdlm.decode import denoise
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.feedback import Mask
from softdlm.models.denoiser import Denoiser
from softdlm.sandbox.run import find_sandbox
from softdlm.tasks import load_task, runs_code
from softdlm.trace import Trace
from softdlm.types import Canvas

Scorer = Callable[[Sequence[str], Sequence[str]], Sequence[bool]]
"""From ids of items of one task, and an answer to each, to verdicts."""


@dataclass(frozen=True)
class State:
    """A canvas in the course of a decode."""

    ids: list[int]
    """Prompt and answer; open positions hold [MASK]."""
    prompt: int
    """Tokens of the prompt."""
    passes: int
    """Passes made so far."""


@dataclass(frozen=True)
class Ending:
    """A state, and what one-at-a-time decoding makes of it."""

    state: State
    ids: list[int]
    """Prompt and answer; positions after EOS may still hold [MASK]."""
    solved: bool
    """Whether the answer is right."""


def task_scorer(
    names: Sequence[str], size: int | None = None, split: str = "test", allow_unsandboxed: bool = False
) -> Scorer:
    """The scores of the first `size` items of built-in tasks."""
    known = {}
    for name in names:
        sandbox = find_sandbox(allow_unsandboxed=allow_unsandboxed) if runs_code(name) else None
        try:
            task = load_task(name, size=size, split=split, sandbox=sandbox)
        except ValueError as error:
            raise UsageError(str(error)) from error
        known |= {item.id: (task, item) for item in task}

    def score(items: Sequence[str], texts: Sequence[str]) -> list[bool]:
        found = [known[item] for item in items]
        return found[0][0].score_all([item for _, item in found], texts) if found else []

    return score


def states_of(trace: Trace, count: int, random: Random) -> list[State]:
    """The canvases after some of a decode's passes, drawn at random, in order.

    A decode of n passes has n - 1: its first pass sees no soft tokens, and after its last nothing is left to predict.
    """
    frames = list(trace.frames())
    between = range(1, len(frames) - 1)
    chosen = sorted(random.sample(between, min(count, len(between))))
    return [State(frames[passes], len(trace.prompt_ids), passes) for passes in chosen]


def completed(
    model: Denoiser, asked: Sequence[Question], states: Sequence[State], settled: Decoding, score: Scorer
) -> list[Ending]:
    """Every state decoded to its end without soft tokens, one token a step, and scored; `asked` has its questions."""
    if not states:
        return []
    alone = replace(settled, commit=TopN(1), feedback=Mask(), candidates=1)
    *_, last = denoise(model, canvas_of(model, states), decoding=alone)
    rows = [row[: len(state.ids)] for row, state in zip(last.canvas.ids.tolist(), states, strict=True)]
    texts = [_text(model, ids[state.prompt :]) for ids, state in zip(rows, states, strict=True)]
    verdicts = score([question.item for question in asked], texts)
    return [Ending(*each) for each in zip(states, rows, verdicts, strict=True)]


def canvas_of(model: Denoiser, states: Sequence[State]) -> Canvas:
    """States side by side; what they have committed is part of their answers."""
    prompts, lengths = [state.ids[: state.prompt] for state in states], [len(state.ids) for state in states]
    empty = Canvas.pack(prompts, lengths, model.mask_id, next(iter(model.eos_ids), 0))
    tokens = empty.ids.clone()
    for row, state in zip(tokens, states, strict=True):
        row[: len(state.ids)] = torch.tensor(state.ids)
    return empty.commit(empty.free & (tokens != model.mask_id), tokens)


def open_places(model: Denoiser, ending: Ending) -> list[int]:
    """Where the state is open and its answer has a token, EOS included: what comes after never reaches the text."""
    state = ending.state
    end = state.prompt + len(_until_end(model, ending.ids[state.prompt :]))
    return [place for place, token in enumerate(state.ids[: end + 1]) if token == model.mask_id]


def _until_end(model: Denoiser, answer: Sequence[int]) -> list[int]:
    """Without EOS and what comes after it."""
    ends = {*model.eos_ids, model.mask_id}
    return list(answer[: next((index for index, token in enumerate(answer) if token in ends), len(answer))])


def _text(model: Denoiser, answer: Sequence[int]) -> str:
    kept = _until_end(model, answer)
    return "" if model.tokenizer is None else model.tokenizer.decode(kept, skip_special_tokens=True)
