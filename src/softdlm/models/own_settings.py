"""A checkpoint's own decoding settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from softdlm.errors import CheckpointError


@dataclass(frozen=True)
class OwnSettings:
    """What a checkpoint says suits it, in its config.json under `decoding`; None: it says nothing.

    These fill the fields of a Decoding that are left out. `feedback` and `commit` are spelled rules.
    """

    max_new_tokens: int | None = None
    feedback: str | None = None
    commit: str | None = None
    k: int | None = None
    lam: float | None = None

    @staticmethod
    def read(stated: Any) -> OwnSettings:
        """Checked types and ranges; whether a spelled rule exists is checked where it is used."""
        kinds = {"max_new_tokens": int, "feedback": str, "commit": str, "k": int, "lam": (int, float)}
        if not isinstance(stated, Mapping) or stated.keys() - kinds.keys():
            raise CheckpointError(f"config.json says decoding = {stated!r}; it may hold {', '.join(kinds)}")
        for name, value in stated.items():
            if isinstance(value, bool) or not isinstance(value, kinds[name]):
                raise CheckpointError(f"config.json says decoding.{name} = {value!r}, which has the wrong type")
        own = OwnSettings(**stated)
        fits = min(own.max_new_tokens or 1, own.k or 1) >= 1 and 0 <= (own.lam or 0) <= 1
        if not fits or 0 in (own.max_new_tokens, own.k):
            raise CheckpointError(
                f"config.json says decoding = {dict(stated)!r}; k and max_new_tokens start at 1, lam lies in [0, 1]"
            )
        return own
