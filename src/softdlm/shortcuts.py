"""Short words for fields of a Decoding: `tokens_per_step=4` for `commit="topn(4)"`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from softdlm import parsing, registry
from softdlm.cache import Dual, Prefix
from softdlm.commit import Rank, TopN
from softdlm.errors import UsageError

RATES = {"tokens_per_step": "topn", "threshold": "threshold", "entropy_bound": "entropy", "factor": "factor"}
"""Short words for a commit rule, and the rule's name."""
SHORTCUTS = ("method", *RATES, "refresh", "renew")


def expand(words: Mapping[str, Any]) -> dict[str, Any]:
    """Fields instead of short words for them; the values are checked already where they are fields."""
    rates = [name for name in ("commit", *RATES) if name in words]
    if len(rates) > 1:
        raise UsageError(f"{' and '.join(rates)} exclude each other: give one of them")
    if {"method", "feedback"} <= words.keys():
        raise UsageError("method and feedback exclude each other: give one of them")
    made = {name: value for name, value in words.items() if name not in SHORTCUTS}
    if "method" in words:
        made["feedback"] = words["method"]
    if rates and rates[0] in RATES:
        made |= _rate(rates[0], words[rates[0]], words.get("rank"))
    elif "rank" in words and not rates:
        made["commit"] = "topn(1)"
    return made | _cache(words)


def _rate(name: str, value: Any, rank: Any) -> dict[str, Any]:
    number = parsing.whole(name, value) if name == "tokens_per_step" else parsing.number(name, value)
    if rank is None:
        return {"commit": f"{RATES[name]}({number!r})"}
    if name == "factor":
        if rank != "confidence":
            raise UsageError(f"the factor rule ranks by confidence, not by {rank}: leave rank out")
        return {"commit": f"factor({number!r})", "rank": None}
    if name == "threshold":
        floor = TopN(1, parsing.one_of(Rank)("rank", rank))
        return {"commit": f"threshold({number!r}, floor={registry.spell(floor)})", "rank": None}
    return {"commit": f"{RATES[name]}({number!r})"}


def _cache(words: Mapping[str, Any]) -> dict[str, Any]:
    extra = {name: parsing.whole(name, words[name]) for name in ("refresh", "renew") if name in words}
    if not extra:
        return {}
    if extra == {"renew": 1} and "cache" not in words:
        return {}
    if "cache" not in words:
        name, value = next(iter(extra.items()))
        raise UsageError(f"{name} {value} belongs to a cache: give cache as well, or leave it out")
    if words["cache"] not in (Prefix(), Dual()):
        raise UsageError(f"{words['cache']!r} already says when to refresh: leave out {' and '.join(extra)}")
    return {"cache": replace(words["cache"], **extra)}
