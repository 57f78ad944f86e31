"""Plain JSON values in one spelling, and their digests."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from softdlm.errors import UsageError


def canonical(value: Any) -> Any:
    """Plain JSON values, whole numbers as integers: 1.0 and 1 are the same setting."""
    if isinstance(value, Mapping):
        return {str(key): canonical(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(each) for each in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError(f"a setting must be a finite number, not {value}")
        return int(value) if value.is_integer() else value
    if value is None or isinstance(value, str | bool | int):
        return value
    raise UsageError(f"a setting must be a number, a word or a list of them, not {value!r}")


def digest(value: Any) -> str:
    """20 hexadecimal digits of a JSON value."""
    return digest_text(json.dumps(value, sort_keys=True, separators=(",", ":")))


def digest_text(text: str) -> str:
    """20 hexadecimal digits of a text."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:20]
