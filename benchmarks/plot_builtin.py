"""Draw what benchmarks/builtin.py measured, from its JSON files.

python benchmarks/plot_builtin.py benchmarks/results docs/figures
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

from softdlm.report.figures import Point, Series, accuracy_against_passes, curves  # noqa: E402

Row = dict[str, Any]


class Found(NamedTuple):
    conditions: dict[str, Any]
    rows: list[Row]


def latest(folder: Path, name: str) -> Found:
    file = max(folder.glob(f"*-{name}.json"), default=None)
    if file is None:
        raise SystemExit(f"{folder} holds no *-{name}.json: run benchmarks/builtin.py first")
    return Found(**json.loads(file.read_text()))


def point(row: Row, x: float) -> Point:
    return Point(x, row["accuracy"], *row["interval"])


def by_method(rows: list[Row], keep: Callable[[Row], bool]) -> Series:
    chosen = [row for row in rows if keep(row)]
    methods = dict.fromkeys(row["method"] for row in chosen)
    return {name: [point(row, row["passes"]) for row in chosen if row["method"] == name] for name in methods}


def frontier(found: Found, file: Path) -> None:
    """Fixed rates, from the test items."""
    rows = found.rows
    single = next(row for row in rows if row["rule"] == "1 a step" and row["method"] == "vanilla")
    series = by_method(rows, lambda row: row["rule"].endswith("a step"))
    title = f"{single['task']}, {single['items']} test items, 1 to 16 tokens a step"
    accuracy_against_passes(series, file, title=title, held=point(single, single["passes"]))


def adaptive(found: Found, file: Path) -> None:
    """Entropy bounds and thresholds, from the validation items."""
    rows = found.rows
    single = next(row for row in rows if row["rule"] == "1 a step" and row["method"] == "vanilla")
    series = {
        f"{name}, {kind}": points
        for kind in ("entropy bound", "threshold")
        for name, points in by_method(rows, lambda row, kind=kind: row["rule"].startswith(kind)).items()
    }
    title = f"{single['task']}, {single['items']} validation items"
    accuracy_against_passes(series, file, title=title, held=point(single, single["passes"]))


def sensitivity(found: Found, file: Path) -> None:
    """lambda at k = 3, k at the strength of the run; 4 and 8 tokens a step."""
    rows, lam = found.rows, found.conditions["lam"]
    panels: dict[str, Series] = {}
    for what, rate in (("lam", "4 a step"), ("lam", "8 a step"), ("k", "4 a step"), ("k", "8 a step")):
        mine = [row for row in rows if row["rule"] == rate]
        bare = next(row for row in mine if row["method"] == "vanilla")
        series: dict[str, list[Point]] = {}
        for row in mine:
            name, *settings = row["method"].split()
            given = {key: float(value) for key, value in (each.split("=") for each in settings)}
            if given and given[{"lam": "k", "k": "lam"}[what]] == {"lam": 3, "k": lam}[what]:
                series.setdefault(name, []).append(point(row, given[what]))
        span = [each.x for each in series["slerp"]]
        flat = {"vanilla": [point(bare, min(span)), point(bare, max(span))]}
        panels[f"{rate}, {'k = 3' if what == 'lam' else f'lambda = {lam:g}'}"] = flat | dict(sorted(series.items()))
    curves(panels, file, xlabels=["lambda", "lambda", "k", "k"], ylabel="mini-math accuracy, %")


def main() -> None:
    results, out = map(Path, sys.argv[1:3])
    frontier(latest(results, "builtin-mini-math-table-test"), out / "mini-math-rates.svg")
    frontier(latest(results, "builtin-mini-code-table-test"), out / "mini-code-rates.svg")
    adaptive(latest(results, "builtin-mini-math-bounds-validation"), out / "mini-math-adaptive.svg")
    sensitivity(latest(results, "builtin-mini-math-sensitivity-validation"), out / "mini-math-sensitivity.svg")


if __name__ == "__main__":
    main()
