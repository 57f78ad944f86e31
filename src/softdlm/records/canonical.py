"""One canonical form and one digest for settings; one digest for text, bytes and files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
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


def digest(value: Any, length: int = 20) -> str:
    """The first hexadecimal digits of the SHA-256 of a JSON value, keys sorted."""
    return content_digest(json.dumps(value, sort_keys=True, separators=(",", ":")), length=length)


def content_digest(*parts: str | bytes | Path, length: int = 64) -> str:
    """The first hexadecimal digits of the SHA-256 of texts, bytes and the contents of files, one after another."""
    total = sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                while block := file.read(1 << 20):
                    total.update(block)
        else:
            total.update(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part)
    return total.hexdigest()[:length]
