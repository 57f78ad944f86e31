"""Which engine runs a decode."""

from __future__ import annotations

from typing import Any, Literal, get_args

from softdlm.engine.plan import Plan
from softdlm.errors import UsageError
from softdlm.registry import inside

EngineKind = Literal["dynamic", "static", "compiled"]


def pick_engine(plan: Plan, engine: EngineKind | Literal["auto"]) -> EngineKind:
    """The engine that was named, checked. "auto" is the static one on a GPU, where it is known to fit."""
    if engine not in ("auto", *get_args(EngineKind)):
        raise UsageError(f"engine must be one of auto, {', '.join(get_args(EngineKind))}, not {engine!r}")
    if engine == "auto":
        fits = plan.model.device.type == "cuda" and obstacle(plan) is None
        known = _ours(plan.commit) and _ours(plan.feedback)
        return "static" if fits and known and plan.blocks.attention is None else "dynamic"
    if engine != "dynamic":
        check_capture(plan)
    return engine


def check_capture(plan: Plan) -> None:
    reason = obstacle(plan)
    if reason:
        raise UsageError(f"the static engine cannot do this: {reason}; take engine='dynamic'")


def obstacle(plan: Plan) -> str | None:
    """Why passes of rounded shape cannot run this decode; None if they can."""
    if "probs" in plan.sampling.needs:
        return "a rule needs the full distribution"
    if plan.caching.policy is not None and plan.blocks.attention:
        return f"cache {plan.caching.policy.kind!r} under block-causal attention"
    if not plan.model.sync_free:
        return f"{plan.model.source.name} may synchronise with the device inside a pass"
    return None


def _ours(rule: Any) -> bool:
    """Whether a rule, and every rule inside it, belongs to this package; other rules may synchronise with a GPU."""
    return all(type(each).__module__.startswith("softdlm.") for each in inside(rule))
