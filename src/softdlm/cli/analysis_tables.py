"""The tables that `softdlm analyze` prints: what was measured, in words."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softdlm.report.words import count

if TYPE_CHECKING:
    from softdlm.analysis.plans import Result

BY_RULE = ("angle_share", "norm_ratio", "below_both")
"""What the geometry measures of soft tokens; the rest is of candidates and [MASK]."""
RELIABILITY = ("confidence", "right", "gap", "ece", "sure", "sure_right")
INTERVALS = {"right": "interval", "sure_right": "sure_interval"}
_WORDS = tomllib.loads(Path(__file__).with_name("analysis_words.toml").read_text(encoding="utf-8"))
HEADS: dict[str, str] = _WORDS["heads"]
"""Names of measures in words, where they are not words already."""
NOTES: dict[str, tuple[str, ...]] = {name: tuple(lines) for name, lines in _WORDS["notes"].items()}
"""Below the last table."""


def tables(result: Result) -> dict[str, list[dict[str, Any]]]:
    """Titles and rows as a person reads them."""
    return {
        title: [{HEADS.get(name, name): value for name, value in row.items()} for row in rows]
        for title, rows in _tables(result).items()
    }


def labels(rows: Sequence[Mapping[str, Any]]) -> int:
    """Of the columns, so many at the start say what a row is about: they hold words."""
    named = takewhile(lambda name: all(isinstance(row[name], str) for row in rows), rows[0] if rows else ())
    return max(1, len(list(named)))


def _tables(result: Result) -> dict[str, list[dict[str, Any]]]:
    """A table a prompt for a joint, two for the geometry, one a rule for the reliability, else one for each task."""
    name, rows = result.settings["analysis"], [asdict(each) for each in result.summary]
    if name == "joint":
        return {row["prompt"]: _joint_table(row) for row in rows}
    if name == "geometry":
        return _geometry_tables(rows)
    if name == "reliability":
        return _reliability_tables(rows)
    parts: dict[str, list[dict[str, Any]]] = {} if rows else {f"{name}: nothing to measure": []}
    for row in rows:
        task, items = row.pop("task", None), row.pop("items", None)
        title = [name, task, items and count(items, "item")]
        parts.setdefault(" · ".join(filter(None, title)), []).append(row)
    return parts


def _joint_table(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"method": method} | dict(zip(row["combinations"], values, strict=True)) | {"other": 1 - sum(values)}
        for method, values in row["probability"].items()
    ]


def _geometry_tables(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    ends, soft = [], []
    for row in rows:
        shape, head = row.pop("shape"), dict(row)
        ends.append(head | {key: value for key, value in shape.items() if key not in BY_RULE})
        soft += [
            {"task": row["task"], "rule": rule} | head | {key: shape[key][rule] for key in BY_RULE}
            for rule in shape["norm_ratio"]
        ]
    return {"candidates, aggregate and [MASK]": ends, "soft tokens": soft}


def _reliability_tables(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The inputs of a rule below each other: they were asked at the same positions."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found = row["calibration"]
        asked = f"{count(found['predictions'], 'prediction')} in {row['states']} of {count(row['met'], 'state')}"
        title = " · ".join([row["task"], row["rule"], asked])
        numbers = {name: found[name] for name in ("confidence", "gap", "ece", "sure")}
        shares = {name: _share(found[name], found[interval]) for name, interval in INTERVALS.items()}
        columns = {"input": row["input"]} | numbers | shares
        parts.setdefault(title, []).append({name: columns[name] for name in ("input", *RELIABILITY)})
    return parts


def _share(percent: float | None, interval: list[float] | None) -> str | None:
    return None if percent is None or interval is None else f"{percent:.1f} [{interval[0]:.1f}, {interval[1]:.1f}]"
