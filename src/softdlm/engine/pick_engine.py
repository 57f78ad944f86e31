"""Which engine runs a decode."""

from __future__ import annotations

from typing import Any, cast

from softdlm.engine.plan import Plan
from softdlm.errors import UsageError
from softdlm.models.pace import EngineKind
from softdlm.parsing import one_of
from softdlm.registry import inside


def pick_engine(plan: Plan, engine: str | None) -> EngineKind:
    """The engine that was named, or the model's own, checked.

    "auto" stays "auto" (static, compiling the shapes where that pays) on a GPU where the static engine is known to fit;
    else it is the dynamic one.
    """
    chosen = check_engine(plan.model.engine if engine is None else engine)
    if chosen == "auto":
        fits = plan.model.device.type == "cuda" and obstacle(plan) is None
        known = _ours(plan.commit) and _ours(plan.feedback)
        if not (fits and known and plan.blocks.attention is None):
            return "dynamic"
        return "auto" if plan.model.compiles else "static"
    if chosen != "dynamic":
        check_capture(plan)
    return chosen


def check_engine(engine: str) -> EngineKind:
    return cast(EngineKind, one_of(EngineKind)("engine", engine))


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
