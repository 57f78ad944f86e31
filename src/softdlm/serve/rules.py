"""Rules that requests may name: softdlm's own, and those of files that the operator of the server named."""

from __future__ import annotations

import dataclasses
import inspect
import math
from pathlib import Path
from typing import Any, cast

from softdlm import registry
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.feedback import FeedbackRule
from softdlm.rule_files import load_module

LONGEST_SPELLING = 500
"""Letters of a rule's spelling."""
MOST_CANDIDATES = 64
"""Candidates of a soft token, and of a record."""
LARGEST_NUMBER = 1_000_000
"""Of any parameter of a rule."""


def offer_rules(file: Path) -> list[str]:
    """Give the rules of an operator's file names that requests may spell: those of its classes and functions."""
    module = load_module(file)
    own = [each for each in vars(module).values() if getattr(each, "__module__", None) == module.__name__]
    found = [each for each in own if _is_rule(each)]
    if not found:
        raise UsageError(f"--rules {file} holds no rule: give it a dataclass or a function that can be called as one")
    for rule in found:
        for kind in ("feedback", "commit") if inspect.isclass(rule) else ("commit",):
            try:
                registry.named(kind, rule.__name__)(cast(Any, rule))
            except ValueError as error:
                raise UsageError(f"--rules {file}: {error}; rename it") from error
    return [rule.__name__ for rule in found]


def _is_rule(value: Any) -> bool:
    if inspect.isfunction(value):
        return not value.__name__.startswith("_") and len(inspect.signature(value).parameters) == 3
    return inspect.isclass(value) and dataclasses.is_dataclass(value) and "__call__" in vars(value)


def check_spelling(name: str, text: str) -> None:
    """Refuse what would make the server read a file that the client chose."""
    if len(text) > LONGEST_SPELLING:
        raise UsageError(f"{name} has {len(text)} letters; a rule is spelled in at most {LONGEST_SPELLING}")
    if ".py:" in text:
        raise UsageError(f"{name} names a file: this server takes rules only from files that its operator named")


def check_rules(decoding: Decoding) -> None:
    """Refuse numbers that no decode needs and that would cost the server memory or time."""
    for rule in decoding.rules:
        for each in registry.inside(rule):
            for field in dataclasses.fields(each) if dataclasses.is_dataclass(each) else ():
                _check_number(f"{field.name} of {registry.title(each)}", getattr(each, field.name))
        most = max((getattr(each, "k", 0) for each in registry.inside(rule)), default=0)
        if isinstance(rule, FeedbackRule) and most > MOST_CANDIDATES:
            raise UsageError(f"k is {most}; this server allows at most {MOST_CANDIDATES}")
    if (decoding.candidates or 0) > MOST_CANDIDATES:
        raise UsageError(f"candidates is {decoding.candidates}; this server allows at most {MOST_CANDIDATES}")


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, int | float) and not (math.isfinite(value) and abs(value) <= LARGEST_NUMBER):
        raise UsageError(f"{name} is {value}; this server allows at most {LARGEST_NUMBER}")
