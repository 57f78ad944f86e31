"""The loop: predict, commit, feed back, until closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, TypedDict, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.blocks import Blocks, Clock, check_block_length, first
from softdlm.cache import CacheKind, Caching
from softdlm.commit import CommitRule, TopN
from softdlm.errors import PromptError, UsageError
from softdlm.feedback import FeedbackRule, Mask, feed_back
from softdlm.models.denoiser import Denoiser
from softdlm.predict import Choice, predict, uniforms
from softdlm.types import Canvas, Embeddings, Step

EosPolicy = Literal["allow", "last", "forbid"]
Until = Callable[[Step], Bool[Tensor, "B"]]


class DecodeOptions(TypedDict, total=False):
    """The keywords of `denoise`, for those who pass them on."""

    commit: CommitRule
    feedback: FeedbackRule
    block_length: int | None
    cache: CacheKind | None
    refresh: int | None
    eos: EosPolicy
    forbid: Sequence[int]
    last: Sequence[int]
    temperature: float
    top_p: float | None
    top_k: int | None
    seed: int
    candidates: int


def denoise(
    model: Denoiser,
    canvas: Canvas,
    *,
    commit: CommitRule = TopN(1),
    feedback: FeedbackRule = Mask(),
    block_length: int | None = None,
    cache: CacheKind | None = None,
    refresh: int | None = None,
    eos: EosPolicy = "allow",
    forbid: Sequence[int] = (),
    last: Sequence[int] = (),
    temperature: float = 0.0,
    top_p: float | None = None,
    top_k: int | None = None,
    seed: int = 0,
    requests: Sequence[int] | None = None,
    candidates: int = 3,
    early_finish: bool | Literal["block"] = False,
    until: Until | None = None,
) -> Iterator[Step]:
    """Decode a canvas, one Step per forward pass.

    block_length None is one block over the whole canvas (the paper's setting). `cache` computes less of the canvas in
    most passes, `refresh` all of it every so many passes of a block (cache.py). `forbid` and `last` are token
    policies per id, `eos` their short form for the model's EOS ids. Draws depend on (seed, request, pass, position)
    only; `requests` numbers the rows. Each Step keeps at least `candidates` candidates. early_finish lets a row
    stop once nothing is open before its first EOS ("block": only when its block is closed, as LLaDA-2's
    reference does); `until` adds a stopping condition of your own.
    """
    if eos not in get_args(EosPolicy):
        raise UsageError(f"eos must be one of {', '.join(get_args(EosPolicy))}, not {eos!r}")
    check_block_length(block_length)
    if candidates < 1:
        raise UsageError(f"candidates must be at least 1, not {candidates}")
    check_start(model, int(canvas.positions[canvas.open].min()) if canvas.open.any() else model.first_open)
    check_length(model, int(canvas.real.sum(1).max()))
    choice = Choice(
        mask_id=model.mask_id,
        forbid=_token_ids(model, forbid, eos == "forbid"),
        last=_token_ids(model, last, eos == "last"),
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        k=max(feedback.k, candidates),
        needs_mean=feedback.needs_mean,
    )
    stops = [stop for stop in (finish(model, early_finish), until) if stop is not None]
    names = range(len(canvas.ids)) if requests is None else requests
    draw = None if temperature == 0 else Draw(seed, names)
    blocks = Blocks.of(model, block_length)
    caching = Caching.of(model, blocks, canvas, cache, refresh)
    return _passes(model, canvas.to(model.device), commit, feedback, blocks, caching, choice, draw, stops)


@torch.no_grad()
def _passes(
    model: Denoiser,
    canvas: Canvas,
    commit: CommitRule,
    feedback: FeedbackRule,
    blocks: Blocks,
    caching: Caching,
    choice: Choice,
    draw: Draw | None,
    stops: Sequence[Until],
) -> Iterator[Step]:
    embeddings = Embeddings(model.embedding, model.embedding[model.mask_id])
    vanilla = feedback.k == 0 and not feedback.needs_mean
    running, clock = canvas.open.any(1, keepdim=True), Clock.start(canvas)
    embeds = model.embed(canvas.ids)  # the first pass sees hard masks
    for index in count(1):
        if not running.any():
            return
        block = blocks.current(canvas)
        clock = clock.tick(block.start)
        scope = caching.scope(block, clock)
        active = canvas.open & running & block.inside
        requested = active if vanilla else canvas.open & running & scope.computed
        context = clock.context(canvas, block, active)
        numbers = draw(canvas, context.passes) if draw else None

        prediction = predict(model, embeds, canvas, requested, choice, numbers, scope)
        committed = commit(prediction, active, context) & active
        canvas = canvas.commit(committed, prediction.token)
        unseen = canvas.open & ~requested  # stay as they are, soft or [MASK]
        embeds = torch.where(unseen[..., None], embeds, model.embed(canvas.ids))
        if not vanilla:
            feed_back(feedback, prediction, embeddings, context, requested & canvas.open, embeds)

        step = Step(index, canvas, prediction, requested, active, committed, context)
        yield step
        running = running & canvas.open.any(1, keepdim=True)
        for stop in stops:
            running = running & ~stop(step)[:, None]


@dataclass(frozen=True)
class Draw:
    """The uniform numbers of a pass, a function of (seed, request, pass, position)."""

    seed: int
    requests: Sequence[int]

    def __call__(self, canvas: Canvas, passes: Int[Tensor, "B 1"]) -> Float[Tensor, "B L"]:
        return uniforms(self.seed, self.requests, passes.flatten().tolist(), canvas)


def finish(model: Denoiser, early_finish: bool | Literal["block"]) -> Until | None:
    """Stop a row once nothing is open before its first EOS: what comes after never reaches the text."""
    if not early_finish:
        return None

    def reached(step: Step) -> Bool[Tensor, "B"]:
        done = eos_reached(step.canvas, model.eos_ids)
        return done & step.block_closed if early_finish == "block" else done

    return reached


def eos_reached(canvas: Canvas, eos_ids: Sequence[int]) -> Bool[Tensor, "B"]:
    """Rows whose answer holds an EOS with no open position before it."""
    ends = torch.isin(canvas.ids, torch.tensor(list(eos_ids), device=canvas.ids.device)) & canvas.free & ~canvas.open
    before = torch.arange(canvas.ids.shape[1], device=canvas.ids.device) < first(ends)
    return ends.any(1) & ~(canvas.open & before).any(1)


def _token_ids(model: Denoiser, ids: Sequence[int], with_eos: bool) -> tuple[int, ...]:
    chosen = tuple(dict.fromkeys([*ids, *(model.eos_ids if with_eos else ())]))
    for token in chosen:
        if not 0 <= token < len(model.embedding):
            raise UsageError(f"token id {token} lies outside the vocabulary of {len(model.embedding)}")
    return chosen


def check_start(model: Denoiser, first: int) -> None:
    """`first` is the first position that is to be predicted: the length of the prompt."""
    if first < model.first_open:
        raise PromptError("an empty prompt: this model predicts a token from the one before it; begin with BOS")


def check_length(model: Denoiser, length: int) -> None:
    if model.max_length is not None and length > model.max_length:
        raise PromptError(f"prompt and answer take {length} tokens, the model's context is {model.max_length}")
