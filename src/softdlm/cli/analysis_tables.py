"""The tables that `softdlm analyze` prints: what was measured, in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from softdlm.report.words import count

if TYPE_CHECKING:
    from softdlm.analysis.plans import Result

BY_RULE = ("angle_share", "norm_ratio", "below_both")
"""What the geometry measures of soft tokens; the rest is of candidates and [MASK]."""
HEADS = {
    "rule": "method",
    "reverse_kl": "reverse KL, nats",
    "too_short": "too short",
    "additive": "JS to the additive mixture",
    "multiplicative": "JS to the multiplicative mixture",
    "coherent": "coherent share",
    "mass": "mass on the support",
    "candidate_cosine": "cosine between candidates",
    "aggregate_cosine": "|cosine| aggregate to [MASK]",
    "angle": "angle, degrees",
    "norm": "aggregate norm / [MASK] norm",
    "angle_share": "share of the angle",
    "norm_ratio": "norm / [MASK] norm",
    "below_both": "share below both norms",
    "first_difference": "first difference at pass",
}
"""Names of measures in words, where they are not words already."""
NOTES = {
    "consistency": ("Coherent share: of the two alternatives, within the combinations that are compared.",),
    "completions": ("Too short: answers without room for all spans.",),
    "agreement": (
        "Changed: share of open positions whose likeliest token is another in the next pass.",
        "Settled: share of open positions whose likeliest token is already the final one.",
        "Reordered: share of items whose commits differ from vanilla's, from which pass on.",
        "Earlier, later: share of positions committed in an earlier or later pass than with vanilla.",
    ),
}
"""Below the last table."""


def tables(result: Result) -> dict[str, list[dict[str, Any]]]:
    """Titles and rows as a person reads them."""
    return {
        title: [{HEADS.get(name, name): value for name, value in row.items()} for row in rows]
        for title, rows in _tables(result).items()
    }


def _tables(result: Result) -> dict[str, list[dict[str, Any]]]:
    """A table a prompt for a joint, two for the geometry, else one for each task."""
    name, rows = result.settings["analysis"], [asdict(each) for each in result.summary]
    if name == "joint":
        return {row["prompt"]: _joint_table(row) for row in rows}
    if name == "geometry":
        return _geometry_tables(rows)
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
        soft += [head | {"rule": rule} | {key: shape[key][rule] for key in BY_RULE} for rule in shape["norm_ratio"]]
    return {"candidates, aggregate and [MASK]": ends, "soft tokens": soft}
