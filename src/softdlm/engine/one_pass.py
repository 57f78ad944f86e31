"""One pass: what it looks at, what it commits, and the soft tokens it leaves for the next one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.blocks import Clock
from softdlm.cache import Scope
from softdlm.commit import wait_of
from softdlm.engine.plan import Plan
from softdlm.errors import UsageError
from softdlm.feedback import feed_back
from softdlm.predict import predict
from softdlm.registry import spell
from softdlm.types import Canvas, Context, Prediction, RuleState, Stateful, Step


@dataclass(frozen=True)
class State:
    """What one pass leaves to the next."""

    canvas: Canvas
    embeds: Float[Tensor, "B L D"]
    running: Bool[Tensor, "B 1"]
    clock: Clock
    idle: Int[Tensor, "B 1"]
    """Passes in a row in which the row took part and committed nothing."""
    commit: RuleState = field(default_factory=dict)
    """The commit rule's memory."""
    feedback: RuleState = field(default_factory=dict)
    """The feedback rule's memory."""

    @staticmethod
    def start(plan: Plan, canvas: Canvas) -> State:
        """Before the first pass, which sees hard masks."""
        running = canvas.open.any(1, keepdim=True)
        memories = [_initial(rule, canvas) for rule in (plan.commit, plan.feedback)]
        embeds = plan.model.embed(canvas.ids)
        return State(canvas, embeds, running, Clock.start(canvas), running.long() * 0, *memories)


class PassView(NamedTuple):
    """What a pass is about to do."""

    clock: Clock
    scope: Scope
    active: Bool[Tensor, "B L"]
    requested: Bool[Tensor, "B L"]
    context: Context


def advance(plan: Plan, state: State, index: int) -> tuple[State, Step]:
    """One pass of exact shape."""
    view = view_pass(plan, state)
    numbers = plan.draw(state.canvas, view.context.passes) if plan.draw else None
    prediction = predict(plan.model, state.embeds, state.canvas, view.requested, plan.sampling, numbers, view.scope)
    after, step = settle(plan, state, view, prediction, index)
    feed_on(plan, after, step)
    return after, step


def view_pass(plan: Plan, state: State, reach: int | None = None) -> PassView:
    """What a pass is to predict, and where it may commit; `reach` lets rows wait that need another kind of pass."""
    canvas, block = state.canvas, plan.blocks.current(state.canvas)
    ahead = state.clock.tick(block.start)
    turn = state.running if reach is None else state.running & plan.caching.due(ahead, reach)
    clock = ahead.only(turn, state.clock)
    scope = plan.caching.scope(block, clock, turn)
    active = canvas.open & turn & block.inside
    requested = active if plan.vanilla else canvas.open & scope.computed
    soft = canvas.open & (state.embeds != plan.embeddings.mask).any(-1)
    return PassView(clock, scope, active, requested, clock.context(canvas, block, active, soft))


def settle(plan: Plan, state: State, view: PassView, prediction: Prediction, index: int) -> tuple[State, Step]:
    """Commit; every open position that was predicted is [MASK] again, until `feed_on` makes it soft."""
    memories = [
        _updated(rule, memory, prediction, view)
        for rule, memory in ((plan.commit, state.commit), (plan.feedback, state.feedback))
    ]
    committed = plan.commit(prediction, view.active, replace(view.context, state=memories[0])) & view.active
    canvas = state.canvas.commit(committed, prediction.token)
    unseen = canvas.open & ~view.requested  # stay as they are, soft or [MASK]
    embeds = torch.where(unseen[..., None], state.embeds, plan.model.embed(canvas.ids))
    step = Step(index, canvas, prediction, view.requested, view.active, committed, view.context)
    running = state.running & canvas.open.any(1, keepdim=True) & ~plan.finished(step)[:, None]
    took_part, gained = (each.any(1, keepdim=True) for each in (view.active, committed))
    idle = torch.where(took_part, torch.where(gained, 0, state.idle + 1), state.idle)
    return State(canvas, embeds, running, view.clock, idle, *memories), step


def feed_on(plan: Plan, after: State, step: Step, places: Int[Tensor, "R"] | None = None) -> None:
    """Soft tokens into the next pass's input, in place."""
    if not plan.vanilla:
        chosen = step.requested & step.canvas.open
        context = replace(step.context, state=after.feedback)
        feed_back(plan.feedback, step.prediction, plan.embeddings, context, chosen, after.embeds, places)


def check_idle(plan: Plan, idle: int) -> None:
    """A commit rule that commits nothing for longer than it declares would never end."""
    if idle > wait_of(plan.commit):
        raise UsageError(
            f"the commit rule {spell(plan.commit)} committed nothing in {idle} "
            f"{'pass' if idle == 1 else 'passes in a row'} and declares may_wait = {wait_of(plan.commit)}: "
            "commit at least one open position, or declare how long the rule may wait"
        )


def _initial(rule: Any, canvas: Canvas) -> RuleState:
    return rule.init(canvas.ids.shape[0], canvas.ids.shape[1], canvas.ids.device) if isinstance(rule, Stateful) else {}


def _updated(rule: Any, memory: RuleState, prediction: Prediction, view: PassView) -> RuleState:
    """The rule's next memory; it changes only where the row took part and the position was predicted."""
    if not isinstance(rule, Stateful):
        return memory
    found = rule.update(memory, prediction, replace(view.context, state=memory))
    if found.keys() != memory.keys():
        raise UsageError(f"{spell(rule)}: update gave {sorted(found)}, but init gave {sorted(memory)}")
    whole, rows = view.requested, view.requested.any(1, keepdim=True)
    return {name: _merged(memory[name], value, whole if value.shape[1] > 1 else rows) for name, value in found.items()}


def _merged(before: Tensor, after: Tensor, changed: Bool[Tensor, "B _"]) -> Tensor:
    return torch.where(changed.view(*changed.shape, *[1] * (after.ndim - 2)), after, before)
