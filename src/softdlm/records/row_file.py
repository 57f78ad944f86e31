"""Rows on disk: the first line says what was measured and where, every further line is one row.

A row is flushed as soon as it is known, so stopping loses nothing; starting again with the same settings goes on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from softdlm.errors import UsageError

VERSION = 1
Row = TypeVar("Row")


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head (settings, environment) and the rows of a file; a torn last line is not a row."""
    lines = [json.loads(line) for line in _whole_lines(path)]
    if not lines or not isinstance(lines[0], dict) or lines[0].get("softdlm_analysis") != VERSION:
        raise UsageError(f"{path} is not a file of rows that this softdlm analyze wrote: choose another --out")
    return lines[0], lines[1:]


def resume(path: Path, settings: Mapping[str, Any], environment: Mapping[str, Any], kind: type[Row]) -> list[Row]:
    """Rows that the file already holds under these settings; a new file gets its first line."""
    if not path.exists() or path.stat().st_size == 0:
        if not path.parent.is_dir():
            raise UsageError(f"--out {path}: the folder {path.parent} does not exist")
        head = {"softdlm_analysis": VERSION, "settings": settings, "environment": environment}
        path.write_text(json.dumps(head, ensure_ascii=False) + "\n", encoding="utf-8")
        return []
    head, rows = read(path)
    wanted = json.loads(json.dumps(settings))
    differing = [name for name in {**head["settings"], **wanted} if head["settings"].get(name) != wanted.get(name)]
    if differing:
        raise UsageError(f"{path} was measured with another {', '.join(differing)}: choose another --out")
    path.write_text("".join(_whole_lines(path)), encoding="utf-8")
    return [rebuild(kind, row) for row in rows]


def append(path: Path, row: Any) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(row), ensure_ascii=False) + "\n")


def rebuild(kind: Any, value: Any) -> Any:
    """A dataclass from its JSON, dataclasses inside lists, tuples of one kind and dictionaries included."""
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: rebuild(hints[name], each) for name, each in value.items()})  # type: ignore[operator]
    if get_origin(kind) is dict:
        return {name: rebuild(get_args(kind)[1], each) for name, each in value.items()}
    if get_origin(kind) in (list, tuple):
        return get_origin(kind)(rebuild(get_args(kind)[0], each) for each in value)
    return value


def _whole_lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
