"""The loop: predict, commit, feed back, until closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.blocks import Blocks, Clock, check_block_length, first
from softdlm.cache import CacheKind, Caching, Scope
from softdlm.commit import CommitRule, TopN
from softdlm.errors import PromptError, UsageError
from softdlm.feedback import FeedbackRule, Mask, feed_back
from softdlm.models.denoiser import Denoiser
from softdlm.predict import Sampling, predict, uniforms
from softdlm.types import Canvas, Context, Embeddings, Prediction, Step, ids_on

EosPolicy = Literal["allow", "last", "forbid"]
EarlyFinish = bool | Literal["block"]
EngineKind = Literal["dynamic", "static", "compiled"]
Until = Callable[[Step], Bool[Tensor, "B"]]


class DecodeOptions(TypedDict, total=False):
    """The keywords of `denoise`, for those who pass them on."""

    commit: CommitRule
    feedback: FeedbackRule
    block_length: int | None
    cache: CacheKind | None
    refresh: int | None
    renew: int
    eos: EosPolicy
    forbid: Sequence[int]
    last: Sequence[int]
    temperature: float
    top_p: float | None
    top_k: int | None
    seed: int
    candidates: int


class PlanOptions(DecodeOptions, total=False):
    """The keywords of `plan_decode`: those, and what belongs to one batch of rows."""

    requests: Sequence[int] | None
    early_finish: EarlyFinish


@dataclass(frozen=True)
class Plan:
    """What stays the same over a decode."""

    model: Denoiser
    commit: CommitRule
    feedback: FeedbackRule
    blocks: Blocks
    caching: Caching
    sampling: Sampling
    draw: Draw | None
    early_finish: EarlyFinish
    ends: Int[Tensor, "_"]
    """The model's EOS ids."""

    @property
    def vanilla(self) -> bool:
        """Whether an open position stays [MASK], so that only the block's positions need a prediction."""
        return self.feedback.k == 0 and not self.feedback.needs_mean

    @property
    def embeddings(self) -> Embeddings:
        return Embeddings(self.model.embedding, self.model.embedding[self.model.mask_id])

    def finished(self, step: Step) -> Bool[Tensor, "B"]:
        """Rows in which nothing is open before the first EOS: what comes after never reaches the text."""
        if not self.early_finish:
            return torch.zeros_like(step.block_closed)
        done = eos_reached(step.canvas, self.ends)
        return done & step.block_closed if self.early_finish == "block" else done

    @property
    def key(self) -> tuple[Any, ...]:
        """What two decodes must share to use the same captured passes."""
        cached = (self.caching.kind, self.caching.refresh, self.caching.renew)
        return self.commit, self.feedback, self.blocks, *cached, self.sampling, self.early_finish

    def with_memory(self, batch: int, length: int) -> Plan:
        """The same plan with room for the keys and values of a batch, where it caches them."""
        return replace(self, caching=self.caching.with_memory(self.model, batch, length))


@dataclass(frozen=True)
class State:
    """What one pass leaves to the next."""

    canvas: Canvas
    embeds: Float[Tensor, "B L D"]
    running: Bool[Tensor, "B 1"]
    clock: Clock

    @staticmethod
    def start(model: Denoiser, canvas: Canvas) -> State:
        embeds = model.embed(canvas.ids)  # the first pass sees hard masks
        return State(canvas, embeds, canvas.open.any(1, keepdim=True), Clock.start(canvas))


class PassView(NamedTuple):
    """What a pass is about to do."""

    clock: Clock
    scope: Scope
    active: Bool[Tensor, "B L"]
    requested: Bool[Tensor, "B L"]
    context: Context


def denoise(
    model: Denoiser,
    canvas: Canvas,
    *,
    until: Until | None = None,
    engine: EngineKind = "dynamic",
    **options: Unpack[PlanOptions],
) -> Iterator[Step]:
    """Decode a canvas, one Step per forward pass; the options are the keywords of `plan_decode`.

    `until` stops rows on a condition of your own. The engine decides how the passes are run, not what they do: see
    `static`.
    """
    plan = plan_decode(model, **options)
    check_start(model, int(canvas.positions[canvas.open].min()) if canvas.open.any() else model.first_open)
    check_length(model, int(canvas.real.sum(1).max()))
    if engine == "dynamic":
        return passes(plan.with_memory(*canvas.ids.shape), canvas.to(model.device), until)
    from softdlm.engine.captured import fixed_passes
    from softdlm.engine.pick_engine import check_static

    check_static(plan)
    return fixed_passes(plan, canvas.to(model.device), until, engine)


def plan_decode(
    model: Denoiser,
    *,
    commit: CommitRule = TopN(1),
    feedback: FeedbackRule = Mask(),
    block_length: int | None = None,
    cache: CacheKind | None = None,
    refresh: int | None = None,
    renew: int = 1,
    eos: EosPolicy = "allow",
    forbid: Sequence[int] = (),
    last: Sequence[int] = (),
    temperature: float = 0.0,
    top_p: float | None = None,
    top_k: int | None = None,
    seed: int = 0,
    requests: Sequence[int] | None = None,
    candidates: int = 3,
    early_finish: EarlyFinish = False,
) -> Plan:
    """What `denoise` is asked for, checked.

    block_length None is one block over the whole canvas (the paper's setting). `cache` computes less of the canvas in
    most passes, `refresh` all of it every so many passes of a block, `renew` only at the start of every so many
    blocks (cache.py). `forbid` and `last` are token policies per id, `eos` their short form for the model's EOS ids.
    Draws depend on (seed, request, pass, position) only; `requests` numbers the rows. Each Step keeps at least
    `candidates` candidates. early_finish lets a row stop once nothing is open before its first EOS ("block": only
    when its block is closed, as LLaDA-2's reference does).
    """
    if eos not in get_args(EosPolicy):
        raise UsageError(f"eos must be one of {', '.join(get_args(EosPolicy))}, not {eos!r}")
    check_block_length(block_length)
    if candidates < 1:
        raise UsageError(f"candidates must be at least 1, not {candidates}")
    sampling = Sampling(
        mask_id=model.mask_id,
        forbid=_token_ids(model, forbid, eos == "forbid"),
        last=_token_ids(model, last, eos == "last"),
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        k=max(feedback.k, candidates),
        needs_mean=feedback.needs_mean,
    )
    draw = None if temperature == 0 else Draw(seed, requests)
    blocks = Blocks.of(model, block_length)
    caching, ends = Caching.of(blocks, cache, refresh, renew), ids_on(model.device, model.eos_ids)
    return Plan(model, commit, feedback, blocks, caching, sampling, draw, early_finish, ends)


@torch.no_grad()
def passes(plan: Plan, canvas: Canvas, until: Until | None) -> Iterator[Step]:
    """The loop. Its shapes follow what is open, so each pass asks the device what that is."""
    state = State.start(plan.model, canvas)
    for index in count(1):
        if not state.running.any():
            return
        state, step = advance(plan, state, index)
        yield step
        if until:
            state = replace(state, running=state.running & ~until(step)[:, None])


def advance(plan: Plan, state: State, index: int) -> tuple[State, Step]:
    """One pass."""
    view = view_pass(plan, state)
    numbers = plan.draw(state.canvas, view.context.passes) if plan.draw else None
    prediction = predict(plan.model, state.embeds, state.canvas, view.requested, plan.sampling, numbers, view.scope)
    after, step = settle(plan, state, view, prediction, index)
    feed_on(plan, step, after.embeds)
    return after, step


def view_pass(plan: Plan, state: State, reach: int | None = None) -> PassView:
    """What a pass is to predict, and where it may commit; `reach` lets rows wait that are due for another kind."""
    canvas, block = state.canvas, plan.blocks.current(state.canvas)
    ahead = state.clock.tick(block.start)
    turn = state.running if reach is None else state.running & plan.caching.due(ahead, reach)
    clock = ahead.only(turn, state.clock)
    scope = plan.caching.scope(block, clock, turn)
    active = canvas.open & turn & block.inside
    requested = active if plan.vanilla else canvas.open & scope.computed
    return PassView(clock, scope, active, requested, clock.context(canvas, block, active))


def settle(plan: Plan, state: State, view: PassView, prediction: Prediction, index: int) -> tuple[State, Step]:
    """Commit; every open position that was predicted is [MASK] again, until `feed_on` makes it soft."""
    committed = plan.commit(prediction, view.active, view.context) & view.active
    canvas = state.canvas.commit(committed, prediction.token)
    unseen = canvas.open & ~view.requested  # stay as they are, soft or [MASK]
    embeds = torch.where(unseen[..., None], state.embeds, plan.model.embed(canvas.ids))
    step = Step(index, canvas, prediction, view.requested, view.active, committed, view.context)
    running = state.running & canvas.open.any(1, keepdim=True) & ~plan.finished(step)[:, None]
    return State(canvas, embeds, running, view.clock), step


def feed_on(plan: Plan, step: Step, embeds: Float[Tensor, "B L D"], places: Int[Tensor, "R"] | None = None) -> None:
    """Soft tokens into the next pass's input, in place."""
    if not plan.vanilla:
        chosen = step.requested & step.canvas.open
        feed_back(plan.feedback, step.prediction, plan.embeddings, step.context, chosen, embeds, places)


@dataclass(frozen=True)
class Draw:
    """The uniform numbers of a pass, a function of (seed, request, pass, position)."""

    seed: int
    requests: Sequence[int] | None
    """One per row; None numbers the rows."""

    def __call__(self, canvas: Canvas, passes: Int[Tensor, "B 1"]) -> Float[Tensor, "B L"]:
        names = range(len(canvas.ids)) if self.requests is None else self.requests
        return uniforms(self.seed, names, passes.flatten().tolist(), canvas)


def eos_reached(canvas: Canvas, eos_ids: Int[Tensor, "_"]) -> Bool[Tensor, "B"]:
    """Rows whose answer holds an EOS with no open position before it."""
    ends = torch.isin(canvas.ids, eos_ids) & canvas.free & ~canvas.open
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
