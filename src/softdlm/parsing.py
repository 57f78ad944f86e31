"""Values that come from outside, as text, JSON or Python, checked and turned into what they should be.

Each function takes the name of the setting, for its error message, and the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

from softdlm.errors import UsageError

LARGEST = 2**63 - 1
"""What a tensor of whole numbers can hold."""


def is_none(value: Any) -> bool:
    """None, or text that stands for it."""
    return value is None or (isinstance(value, str) and value.lower() in ("none", "null", ""))


def number(name: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must be a number, not {value!r}") from error


def whole(name: str, value: Any) -> int:
    found = value if isinstance(value, int) and not isinstance(value, bool) else number(name, value)
    if isinstance(found, float) and not found.is_integer():
        raise UsageError(f"{name} must be a whole number, not {value!r}")
    if abs(found) > LARGEST:
        raise UsageError(f"{name} must be a whole number of at most 64 bits, not {value!r}")
    return int(found)


def from_one(name: str, value: Any) -> int:
    found = whole(name, value)
    if found < 1:
        raise UsageError(f"{name} must be at least 1, not {found}")
    return found


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """Token ids as a list, or as text separated by spaces, commas or semicolons."""
    parts = re.split(r"[\s,;]+", value.strip("[] ")) if isinstance(value, str) else value
    parts = [parts] if isinstance(parts, int | float) else parts
    return tuple(whole(name, part) for part in parts)


def texts(name: str, value: Any) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(text, str) and text for text in found):
        raise UsageError(f"{name} must be text that is not empty, or a list of such texts, not {value!r}")
    return found


def one_of(allowed: Any) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        if value not in get_args(allowed):
            raise UsageError(f"{name} must be one of {', '.join(get_args(allowed))}, not {value!r}")
        return value

    return check


def flag(name: str, value: Any) -> bool:
    words = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in words:
        raise UsageError(f"{name} must be true or false, not {value!r}")
    return words[str(value).lower()]
