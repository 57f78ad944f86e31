"""The rows of one analysis on disk: the first line says what was measured and where, every further line is one row.

A row is written as soon as it is known, so stopping loses nothing; the same settings continue the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from softdlm.errors import UsageError
from softdlm.records.lines import Lines
from softdlm.records.rebuild import rebuild

VERSION = 1
R = TypeVar("R")


class RowFile(Lines[dict[str, Any]], Generic[R]):
    """A file of rows, held open for writing; `rows` are those that it holds."""

    def __init__(self, path: Path, settings: Mapping[str, Any], environment: Mapping[str, Any], kind: type[R]) -> None:
        if not path.parent.is_dir():
            raise UsageError(f"--out {path}: the folder {path.parent} does not exist")
        self.settings, self.kind = json.loads(json.dumps(settings)), kind
        self.rows: list[R] = []
        super().__init__(path, partial(rebuild, dict[str, Any]))
        if not self.entries:
            self.write({"softdlm_analysis": VERSION, "settings": self.settings, "environment": dict(environment)})

    def append(self, row: R) -> None:
        self.write(asdict(row))  # type: ignore[call-overload]
        self.rows.append(row)

    def check(self) -> None:
        """Take the rows that were measured with these settings; a file of anything else is not touched."""
        if not self.path.stat().st_size:
            return
        head, *rows = self.entries or [{}]
        theirs = head.get("settings")
        if head.get("softdlm_analysis") != VERSION or not isinstance(theirs, dict):
            raise UsageError(f"{self.path} is not a file of rows that softdlm analyze wrote: choose another --out")
        differing = [name for name in {**theirs, **self.settings} if theirs.get(name) != self.settings.get(name)]
        if differing:
            raise UsageError(f"{self.path} was measured with another {', '.join(differing)}: choose another --out")
        try:
            self.rows = [rebuild(self.kind, row) for row in rows]
        except ValueError as error:
            raise UsageError(f"{self.path} holds a row that cannot be read ({error}): choose another --out") from error
