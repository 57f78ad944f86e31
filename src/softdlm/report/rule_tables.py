"""The tables of rules in the documentation, made from the registry.

`python -m softdlm.report.rule_tables docs/decoding.md` writes them anew between their markers.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import cast

from softdlm import decoding  # noqa: F401  (declares the rules)
from softdlm.registry import Kind, described

HEADS: dict[Kind, str] = {
    "feedback": "an open position is fed as",
    "commit": "positions that are committed in a pass",
    "cache": "what a pass computes",
}
_PLACE = re.compile(r"<!-- rules: (feedback|commit|cache) -->\n.*?<!-- end of rules -->", re.DOTALL)


def rule_table(kind: Kind) -> str:
    """A Markdown table of the rules of a kind, by name."""
    lines = [f"| spelling | {HEADS[kind]} |", "|---|---|"]
    lines += [f"| `{each.signature}` | {each.about.replace('|', '&#124;')} |" for each in described(kind)]
    return "\n".join(lines)


def with_rules(page: str) -> str:
    """A page with its rule tables made anew."""
    return _PLACE.sub(_anew, page)


def _anew(found: re.Match[str]) -> str:
    kind = cast(Kind, found[1])
    return f"<!-- rules: {kind} -->\n{rule_table(kind)}\n<!-- end of rules -->"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(with_rules(Path(name).read_text(encoding="utf-8")), encoding="utf-8")
