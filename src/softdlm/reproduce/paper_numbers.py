"""The numbers that the paper prints, from the file beside this one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_TABLES = tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))


def paper_numbers(table: str) -> dict[str, Any]:
    """Model -> the numbers of a table or appendix, as paper.toml lays them out; a row is a tuple."""
    return _plain(_TABLES[table])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {int(name) if name.isdigit() else name: _plain(each) for name, each in value.items()}
    return tuple(value) if isinstance(value, list) else value
