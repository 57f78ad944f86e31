"""A model's own decoding settings: a checkpoint's, or those of a settings file that take their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from softdlm.errors import CheckpointError, UsageError
from softdlm.records.files import parse_json, read_input
from softdlm.registry import is_from_file

VERSION = 1
"""Of settings files: what `softdlm_settings` says in them."""
COUNTS = ("max_new_tokens", "k", "block_length")
LARGEST = 1 << 20
"""Bytes of a settings file: real ones have about a thousand."""


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
    block_length: int | None = None

    @staticmethod
    def read(stated: Any, place: str = "config.json") -> OwnSettings:
        """Checked types and ranges; whether a spelled rule exists is checked where it is used.

        A rule in a file is a program, which whoever wrote these settings must not choose.
        """
        kinds = {"max_new_tokens": int, "feedback": str, "commit": str, "k": int, "lam": (int, float)}
        kinds |= {"block_length": int}
        if not isinstance(stated, Mapping) or stated.keys() - kinds.keys():
            raise CheckpointError(f"{place} says decoding = {stated!r}; it may hold {', '.join(kinds)}")
        for name, value in stated.items():
            if isinstance(value, bool) or not isinstance(value, kinds[name]):
                raise CheckpointError(f"{place} says decoding.{name} = {value!r}, which has the wrong type")
            if isinstance(value, str) and is_from_file(value):
                raise CheckpointError(
                    f"{place} says decoding.{name} = {value!r}, a rule in a file, which is a program: "
                    f"leave it out there and give {name} yourself"
                )
        own = OwnSettings(**stated)
        counts = [value for name in COUNTS if (value := getattr(own, name)) is not None]
        if min(counts, default=1) < 1 or not 0 <= (own.lam or 0) <= 1:
            raise CheckpointError(
                f"{place} says decoding = {dict(stated)!r}; block_length, k and max_new_tokens start at 1, lam "
                "lies in [0, 1]"
            )
        return own

    @staticmethod
    def of(given: str | Path | OwnSettings | None) -> OwnSettings:
        """Settings as `softdlm.load` takes them: a file, the word `recommended`, the settings themselves, or none."""
        if given is None or isinstance(given, OwnSettings):
            return given or OwnSettings()
        if given == WORD:
            return RECOMMENDED
        if not isinstance(given, str | Path):
            raise UsageError(f"settings must be a file that softdlm tune wrote, or {WORD}, not {given!r}")
        return read_settings(Path(given))

    def over(self, base: OwnSettings) -> OwnSettings:
        """These settings, and those of `base` where they say nothing."""
        stated = {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}
        return OwnSettings(**{**vars(base), **stated})


WORD = "recommended"
RECOMMENDED = OwnSettings(feedback="alternate(slerp(k=1, lam=0.3))", commit="entropy(0.1)")
"""For models that nobody has tuned: weak enough to lose nothing on any network and task that was measured
(docs/when-soft-tokens-help.md). A model that was tuned bears more and saves more.
"""


def read_settings(file: Path) -> OwnSettings:
    """The settings in a file such as `softdlm tune` writes, which anybody may have made."""
    try:
        value = parse_json(read_input(file, LARGEST))
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    if not isinstance(value, dict) or "softdlm_settings" not in value:
        raise UsageError(f"{file} is not a settings file: it must be a JSON object with softdlm_settings = {VERSION}")
    if (version := value["softdlm_settings"]) != VERSION or isinstance(version, bool):
        raise UsageError(f"{file} says softdlm_settings = {version!r}; this version of softdlm reads {VERSION}")
    if unknown := value.keys() - {"softdlm_settings", "decoding", "made"}:
        raise UsageError(f"{file} holds {', '.join(sorted(unknown))}; a settings file holds decoding and made")
    if not isinstance(value.get("made", {}), dict):
        raise UsageError(f"{file} says made = {value['made']!r}, which must be an object")
    try:
        return OwnSettings.read(value.get("decoding"), str(file))
    except CheckpointError as error:
        raise UsageError(str(error)) from error
