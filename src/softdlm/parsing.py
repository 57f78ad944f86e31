"""Values that come from outside, as text, JSON or Python, checked and turned into what they should be.

Each function takes the name of the setting, for its error message, and the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, get_args

from softdlm.errors import UsageError

LARGEST = 2**63 - 1
"""What a tensor of whole numbers can hold."""
_PIECE = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|.""", re.DOTALL)
"""A text in quotes, or one letter."""
_DEEPER = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


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


def between_commas(text: str) -> list[str]:
    """The texts between commas; a comma inside brackets or quotes belongs to its text."""
    return _between(",", text)


def words_of(text: str) -> list[str]:
    """The words of a text, between spaces and commas; those inside brackets or quotes belong to their word."""
    return [word for word in _between(", \t", text) if word]


def _between(separators: str, text: str) -> list[str]:
    found = [""]
    for piece, depth in _depths(text):
        if piece in separators and depth == 0:
            found.append("")
        else:
            found[-1] += piece
    return found


def balanced(text: str) -> bool:
    """Whether every bracket is closed, and none before it is opened."""
    depths = [0, *(depth for _, depth in _depths(text))]
    return min(depths) == depths[-1] == 0


def _depths(text: str) -> Iterator[tuple[str, int]]:
    """Each piece of a text, and how many brackets are open after it."""
    pieces = _PIECE.findall(text)
    return zip(pieces, accumulate(_DEEPER.get(piece, 0) for piece in pieces), strict=True)


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
