"""Tables and the figure of the decodings beyond the paper, from kept results; nothing is measured.

python benchmarks/beyond_tables.py            # writes benchmarks/results/*-beyond-test.md and docs/figures/beyond.svg
python benchmarks/beyond_tables.py pack DATE SEARCH... -- TEST...   # keep new results of beyond.py
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

from softdlm.evaluate.metrics import Share, holm, mcnemar  # noqa: E402
from softdlm.report.figures import Point, frontiers  # noqa: E402

RESULTS, FIGURE = ROOT / "benchmarks" / "results", ROOT / "docs" / "figures" / "beyond.svg"
CELLS = ROOT / "benchmarks" / "reproduction" / "data" / "cells.json.gz"
OURS = "no_eos(alternate(slerp(k=1, lam=0.5)))"
RECOMMENDED = (OURS, "entropy(0.15)")
NETWORKS = {"builtin": "shipped", "8-layers-seed1": "seed 1", "8-layers-seed2": "seed 2", "6-layers-seed0": "6 layers"}
RIVALS = {"additive": "additive", "lrd": "lrd", "remix": "remix", "soft-token": "soft-token-5"}
Row = dict[str, Any]
Key = tuple[str, str]


def short(rule: str) -> str:
    """Alternation with its defaults is spelled without them."""
    return rule.replace(", period=2, soft=1)", ")")


def read(files: Iterable[Path]) -> list[Row]:
    found = []
    for file in files:
        text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
        found += [json.loads(line) for line in text.splitlines()]
    return [{**row, "feedback": short(row["feedback"])} for row in found if "error" not in row]


def pack(date: str, search: list[str], test: list[str]) -> None:
    """Search rows without their verdicts, test rows with them, each setting once."""
    kept = read(map(Path, search))
    for row in kept:
        row.pop("right"), row.pop("agrees"), row.pop("seconds")
    for name, rows in (("search", kept), ("test", read(map(Path, test)))):
        single = {(r["network"], r["task"], r["items"], r["feedback"], r["commit"]): r for r in rows}
        text = "".join(json.dumps(row) + "\n" for row in single.values())
        (RESULTS / f"{date}-beyond-{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def bits(text: str) -> list[bool]:
    return [each == "1" for each in text]


def table(rows: dict[Key, Row], network: str, task: str) -> str:
    """Every setting with intervals, and paired tests of accuracy against vanilla's bound of 0.1 (Holm)."""
    base = rows["vanilla", "entropy(0.1)"]
    others = [row for key, row in rows.items() if key != ("vanilla", "entropy(0.1)")]
    raw = [mcnemar(bits(base["right"]), bits(row["right"])) for row in others]
    corrected = dict(zip((id(row) for row in others), holm(raw), strict=True))
    lines = [f"**{NETWORKS[network]}, {task}, {base['items']} test items**", ""]
    lines += ["| feedback | commit | accuracy, % | p (Holm) | consistent, % | passes |", "|---|---|---|---|---|---|"]
    for row in sorted(rows.values(), key=lambda each: (each["feedback"], each["passes"])):
        mark = "**" if (row["feedback"], row["commit"]) == RECOMMENDED else ""
        p = f"{corrected[id(row)]:.2g}" if id(row) in corrected else "—"
        shares = [str(Share.of(bits(row[name]))) for name in ("right", "agrees")]
        cells = [
            f"{mark}`{row['feedback']}`{mark}",
            f"`{row['commit']}`",
            shares[0],
            p,
            shares[1],
            f"{row['passes']:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def point(passes: float, verdicts: list[bool]) -> Point:
    share = Share.of(verdicts)
    return Point(passes, share.percent, share.low, share.high)


def panel(rows: dict[Key, Row], task: str, kind: str) -> dict[str, list[Point]]:
    """Frontiers of the paper's rules and its rivals from the reproduction, ours from the test rows."""
    cells = json.loads(gzip.decompress(CELLS.read_bytes()))["cells"]
    series: dict[str, list[Point]] = {"vanilla": [], "slerp": []}
    for cell in cells:
        name, adaptive = cell["method"].partition(" ")[0], cell["rate"].startswith("entropy bound")
        strong = cell["method"] in ("vanilla", "slerp k=3 lam=0.5") or name in RIVALS
        if (
            cell["task"] == task
            and cell["model"] == "builtin"
            and adaptive
            and strong
            and "split=test" in cell["settings"]
        ):
            accuracy = (cell["accuracy"], *cell["interval"])
            consistent = (cell["consistency"], *cell["consistency_interval"])
            chosen = Point(cell["passes"], *(accuracy if kind == "right" else consistent))
            series.setdefault(RIVALS.get(name, name), []).append(chosen)
    keys = {f"alternate-slerp, lambda {lam}": f"alternate(slerp(k=1, lam={lam}))" for lam in (0.5, 0.3)}
    keys["the built-in model's own"] = OURS
    for name, feedback in keys.items():
        made = [row for (rule, commit), row in rows.items() if rule == feedback and commit.startswith("entropy")]
        series[name] = [point(row["passes"], bits(row["right" if kind == "right" else "agrees"])) for row in made]
    return series


def main() -> None:
    if sys.argv[1:2] == ["pack"]:
        split = sys.argv.index("--")
        pack(sys.argv[2], sys.argv[3:split], sys.argv[split + 1 :])
    file = max(RESULTS.glob("*-beyond-test.jsonl.gz"))
    found = read([file])
    parts = []
    for network in NETWORKS:
        for task in ("mini-math", "mini-code"):
            rows = {(r["feedback"], r["commit"]): r for r in found if (r["network"], r["task"]) == (network, task)}
            parts.append(table(rows, network, task))
    head = f"Made by `python benchmarks/beyond_tables.py` from {file.name}: float32, one block, canvas of 64.\n"
    file.with_name(file.name.replace(".jsonl.gz", ".md")).write_text("\n".join([head, *parts]), encoding="utf-8")
    own = {
        t: {(r["feedback"], r["commit"]): r for r in found if (r["network"], r["task"]) == ("builtin", t)}
        for t in ("mini-math", "mini-code")
    }
    panels = {
        f"{task}: {words}": panel(own[task], task, kind)
        for task in own
        for kind, words in (("right", "right answers"), ("agrees", "consistent answers"))
    }
    single = [own[task]["vanilla", "topn(1)"] for task in own for _ in range(2)]
    held = [point(64.0, bits(row["right" if number % 2 == 0 else "agrees"])) for number, row in enumerate(single)]
    frontiers(panels, FIGURE, ylabel="% of answers (95 % interval)", held=held)


if __name__ == "__main__":
    main()
