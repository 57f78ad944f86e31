"""Draw docs/figures from the kept results of `softdlm eval`; nothing is measured.

python benchmarks/figures.py
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

from softdlm.report.figures import Point, Series, curves, frontiers  # noqa: E402

RESULTS, OUT = ROOT / "benchmarks" / "results", ROOT / "docs" / "figures"
RATES = ("4 a step", "8 a step")
ADAPTIVE = ("entropy bound", "threshold")
LABEL = "accuracy, % (95 % interval)"
Row = dict[str, Any]


def rows(name: str) -> list[Row]:
    """The rows of the newest file of that name."""
    return json.loads(gzip.decompress(max(RESULTS.glob(f"*-{name}.json.gz")).read_bytes()))["rows"]


def point(row: Row, x: float | None = None) -> Point:
    return Point(row["passes"] if x is None else x, row["accuracy"], *row["interval"])


def by_method(found: list[Row], keep: Callable[[Row], bool]) -> dict[str, list[Point]]:
    """Vanilla and the rules at k = 3, lambda = 0.5."""
    series: dict[str, list[Point]] = {}
    for row in found:
        name, _, strength = row["method"].partition(" ")
        if strength in ("", "k=3 lam=0.5") and keep(row):
            series.setdefault(name, []).append(point(row))
    return series


def rates(name: str, title: str, file: str) -> None:
    series = by_method(rows(name), lambda row: row["rate"].endswith("a step"))
    frontiers({title: series}, OUT / file, ylabel=LABEL)


def adaptive(name: str, title: str, file: str) -> None:
    found = rows(name)
    single = next(point(row) for row in found if row["is_single"])
    kinds = {kind: by_method(found, lambda row, kind=kind: row["rate"].startswith(kind)) for kind in ADAPTIVE}
    series = {f"{method}, {kind}": kinds[kind][method] for kind in ADAPTIVE for method in ("vanilla", "slerp")}
    frontiers({title: series}, OUT / file, ylabel=LABEL, held=[single])


def sensitivity(name: str, file: str) -> None:
    """Lambda at k = 3 and k at lambda = 0.5, at 4 and 8 tokens a step."""
    found = rows(name)
    panels: dict[str, Series] = {}
    for what, fixed in (("lam", "k=3"), ("k", "lam=0.5")):
        for rate in RATES:
            panels[f"{rate}, {fixed.replace('lam', 'lambda')}"] = _swept(found, rate, what, fixed)
    curves(panels, OUT / file, xlabels=["lambda", "lambda", "k", "k"], ylabel="mini-math accuracy, %")


def _swept(found: list[Row], rate: str, what: str, fixed: str) -> Series:
    series: dict[str, list[Point]] = {"vanilla": []}
    for row in found:
        name, *given = row["method"].split()
        if row["rate"] == rate and fixed in given:
            x = next(float(each.partition("=")[2]) for each in given if each.startswith(f"{what}="))
            series.setdefault(name, []).append(point(row, x))
    bare = next(row for row in found if row["rate"] == rate and row["method"] == "vanilla")
    span = [each.x for each in series["slerp"]]
    return series | {"vanilla": [point(bare, min(span)), point(bare, max(span))]}


def main() -> None:
    rates("eval-mini-math-test", "Accuracy on 1,000 word problems", "mini-math-rates.svg")
    rates("eval-mini-code-test", "Accuracy on 300 small Python functions", "mini-code-rates.svg")
    adaptive("eval-mini-math-validation", "Accuracy on 500 validation word problems", "mini-math-adaptive.svg")
    sensitivity("eval-mini-math-validation", "mini-math-sensitivity.svg")


if __name__ == "__main__":
    main()
