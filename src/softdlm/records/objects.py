"""JSON Lines that a user wrote: one object a line, each with its place for error messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from softdlm.errors import UsageError
from softdlm.records.files import parse_json, read_input

LARGEST = 1 << 28
"""Bytes of such a file."""


def read_objects(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file, line N", object) for every line that is not blank; the first is for error messages."""
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"no such file: {path}")
    lines = [(number, line) for number, line in enumerate(read_input(file, LARGEST).split(b"\n"), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{path} is empty: put one JSON object per line")
    for number, line in lines:
        yield f"{path}, line {number}", _object(f"{path}, line {number}", line)


def text_field(place: str, line: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = line.get(name, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise UsageError(f"{place}: {name!r} must be a text, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{place}: {name!r} holds {error.object[error.start]!r}, which is no character") from error
    return value


def known_fields(place: str, line: Mapping[str, Any], *names: str) -> None:
    unknown = set(line) - set(names)
    if unknown:
        raise UsageError(f"{place}: unknown field {', '.join(sorted(unknown))}; known are {', '.join(names)}")


def _object(place: str, line: bytes) -> dict[str, Any]:
    try:
        value = parse_json(line)
    except ValueError as error:
        raise UsageError(f"{place}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{place}: must be a JSON object, not {value!r}")
    return value
