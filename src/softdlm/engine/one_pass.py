"""One pass: predict, commit, and leave soft tokens for the next one.

The shape of a pass is data. Without a shape it is exact: it follows what is open, and learning that synchronises with
the device. A Shape rounds it up, and then nothing synchronises, so the same code can be captured as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.blocks import Clock
from softdlm.cache import Part, Scope, Shape, takes_part
from softdlm.engine.plan import Plan
from softdlm.engine.state import Buffers, History, State
from softdlm.engine.tensor_records import tensors
from softdlm.errors import UsageError
from softdlm.feedback import feed_back
from softdlm.predict import predict, uniforms
from softdlm.registry import spell
from softdlm.types import Context, Prediction, RuleState, Stateful, Step


class PassView(NamedTuple):
    """What a pass is about to do."""

    clock: Clock
    scope: Scope
    active: Bool[Tensor, "B L"]
    requested: Bool[Tensor, "B L"]
    context: Context
    draws: Float[Tensor, "B L"] | None


def begin(plan: Plan, state: State, size: tuple[int | None, int] | None) -> tuple[PassView, Sequence[Part]]:
    """What comes before the network; `size` is width and reach of a rounded shape."""
    back = plan.model.first_open
    if size is None:
        view = view_pass(plan, state)
        return view, view.scope.exact(view.requested, back)
    width, reach = size
    view = view_pass(plan, state, reach)
    return view, (view.scope.rounded(view.requested, width, back),)


def end(
    plan: Plan,
    state: State,
    history: History,
    census: Int[Tensor, "B C"],
    view: PassView,
    prediction: Prediction,
    exact: bool,
) -> Step:
    """What comes after the network, except for the soft tokens; it is written to the buffers.

    The room of a pass that is not exact is filled with positions that nobody requested.
    """
    after, step = settle(plan, state, view, prediction if exact else prediction.only(view.requested))
    history.note(step)
    for buffer, value in zip(tensors(state), tensors(after), strict=True):
        if buffer is not value:
            buffer.copy_(value)
    census.copy_(count_rows(plan, after))
    return step


def run_pass(
    plan: Plan, buffers: Buffers, shape: Shape | None, begin: Callable[..., Any] = begin, end: Callable[..., Any] = end
) -> Step:
    """One pass of a given shape, None for exact. `begin` and `end` may be compiled."""
    state = buffers.state
    view, parts = begin(plan, state, None if shape is None else (shape.width, shape.reach))
    parts = parts if shape is None else [part.cut(shape) for part in parts]
    flat, places = predict(
        plan.model, state.embeds, state.canvas, parts, plan.sampling, view.draws, view.scope.attention, buffers.memory
    )
    exact = shape is None
    laid = flat.lay(places, view.requested, fill=exact)
    step = end(plan, state, buffers.history, buffers.census, view, laid, exact)
    feed_on(plan, state, step, flat, places)
    return step


def view_pass(plan: Plan, state: State, reach: int | None = None) -> PassView:
    """What a pass is to predict, and where it may commit; `reach` lets rows wait that need another kind of pass."""
    canvas, block = state.canvas, plan.blocks.current(state.canvas)
    ahead = state.clock.tick(block.start)
    turn = state.running if reach is None else state.running & takes_part(plan.caching.reach(ahead), reach)
    clock = ahead.only(turn, state.clock)
    scope = plan.caching.scope(block, clock, turn)
    active = canvas.open & turn & block.inside
    requested = active if plan.vanilla else canvas.open & scope.computed
    soft = canvas.open & (state.embeds != plan.embeddings.mask).any(-1)
    draws = uniforms(state.seeds, state.requests, clock.passes, canvas.positions) if plan.draws else None
    return PassView(clock, scope, active, requested, clock.context(canvas, block, active, soft), draws)


def settle(plan: Plan, state: State, view: PassView, prediction: Prediction) -> tuple[State, Step]:
    """Commit; every open position that was predicted is [MASK] again, until `feed_on` makes it soft."""
    ends = torch.isin(prediction.topk_ids[..., 0], plan.ends)
    view = view._replace(context=replace(view.context, ends=ends))
    memories = {
        name: _updated(getattr(plan, name), getattr(state, name), prediction, view) for name in ("commit", "feedback")
    }
    context = replace(view.context, state=memories["commit"])
    committed = _chosen(plan, prediction, view.active, context)
    canvas = state.canvas.commit(committed, prediction.token)
    unseen = canvas.open & ~view.requested  # stay as they are, soft or [MASK]
    embeds = torch.where(unseen[..., None], state.embeds, plan.model.embed(canvas.ids))
    step = Step(0, canvas, prediction, view.requested, view.active, committed, view.context)
    running = state.running & canvas.open.any(1, keepdim=True) & ~plan.finished(step)[:, None]
    took_part, gained = (each.any(1, keepdim=True) for each in (view.active, committed))
    idle = torch.where(took_part, torch.where(gained, 0, state.idle + 1), state.idle)
    broken = state.broken | (view.requested & ~prediction.entropy.isfinite()).any(1, keepdim=True)
    now = replace(state, canvas=canvas, embeds=embeds, running=running, clock=view.clock, idle=idle, broken=broken)
    return replace(now, **memories), step


def _chosen(plan: Plan, prediction: Prediction, active: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
    """What the rule commits. It says so for each position: another shape would be broadcast in silence."""
    found = plan.commit(prediction, active, context)
    if not isinstance(found, Tensor) or found.dtype != torch.bool or found.shape != active.shape:
        given = f"{found.dtype} {list(found.shape)}" if isinstance(found, Tensor) else repr(found)[:80]
        raise UsageError(
            f"{spell(plan.commit)} returned {given}; a commit rule returns torch.bool {list(active.shape)}"
        )
    return found & active


def feed_on(plan: Plan, state: State, step: Step, flat: Prediction, places: Int[Tensor, "N"]) -> None:
    """Soft tokens into the next pass's input, in place."""
    if not plan.vanilla:
        chosen = step.requested & step.canvas.open
        context = replace(step.context, state=state.feedback)
        feed_back(plan.feedback, step.prediction, plan.embeddings, context, chosen, state.embeds, flat, places)


def count_rows(plan: Plan, state: State) -> Int[Tensor, "B C"]:
    """The census: a `RowCensus` for each row."""
    clock, block, open = state.clock, plan.blocks.current(state.canvas), state.canvas.open & state.running
    reach = plan.caching.reach(clock.tick(block.start))
    left = [each.sum(1, keepdim=True) for each in (open, open & block.inside)]
    return torch.cat([state.running, reach, *left, block.start, clock.passes + 1, state.idle, state.broken], 1)


def _updated(rule: Any, memory: RuleState, prediction: Prediction, view: PassView) -> RuleState:
    """The rule's next memory; it changes only where the row took part and the position was predicted."""
    if not isinstance(rule, Stateful):
        return memory
    found = rule.update(memory, prediction, replace(view.context, state=memory))
    if found.keys() != memory.keys():
        raise UsageError(f"{spell(rule)}: update gave {sorted(found)}, but init gave {sorted(memory)}")
    whole, rows = view.requested, view.requested.any(1, keepdim=True)
    return {name: _merged(memory[name], found[name], whole if found[name].shape[1] > 1 else rows) for name in memory}


def _merged(before: Tensor, after: Tensor, changed: Bool[Tensor, "B _"]) -> Tensor:
    """A memory keeps the type that `init` gave it."""
    return torch.where(changed.view(*changed.shape, *[1] * (after.ndim - 2)), after.to(before.dtype), before)
