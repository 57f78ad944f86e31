"""What soft tokens do on the built-in model: accuracy, passes, recovery, sensitivity. Writes dated JSON and Markdown.

python benchmarks/builtin.py table --split test --out benchmarks/results
python benchmarks/builtin.py bounds --split validation ...      # accuracy against passes over bounds
python benchmarks/builtin.py sensitivity --split validation ... # lambda and k at 4 and 8 tokens a step
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

import softdlm  # noqa: E402
from softdlm.commit import CommitRule  # noqa: E402
from softdlm.evaluate.metrics import Share, mcnemar, recovery  # noqa: E402
from softdlm.feedback import FeedbackRule  # noqa: E402
from softdlm.tasks import Task, load_task  # noqa: E402

RATES = (1, 2, 4, 8, 16)
THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)
BOUNDS = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


def feedbacks(k: int = 3, lam: float = 0.3) -> dict[str, FeedbackRule]:
    return {"vanilla": softdlm.Mask(), "euclidean": softdlm.Euclidean(k, lam), "slerp": softdlm.Slerp(k, lam)}


class Cell(NamedTuple):
    task: str
    rule: str
    method: str
    verdicts: list[bool]
    passes: list[int]
    seconds: float

    @property
    def mean_passes(self) -> float:
        return sum(self.passes) / len(self.passes)

    def record(self) -> dict[str, Any]:
        share = Share.of(self.verdicts)
        return {
            "task": self.task,
            "rule": self.rule,
            "method": self.method,
            "accuracy": round(share.percent, 2),
            "interval": [round(share.low, 2), round(share.high, 2)],
            "items": share.items,
            "passes": round(self.mean_passes, 2),
            "seconds": round(self.seconds, 1),
            "verdicts": "".join("01"[verdict] for verdict in self.verdicts),
        }


def run(model: Any, task: Task, method: str, feedback: FeedbackRule, rule: str, commit: CommitRule, batch: int) -> Cell:
    start = time.perf_counter()
    answers = softdlm.generate(
        model,
        [item.prompt for item in task],
        max_new_tokens=task.max_new_tokens,
        feedback=feedback,
        commit=commit,
        batch_size=batch,
    )
    seconds = time.perf_counter() - start
    verdicts = task.score_all(list(task), [answer.text for answer in answers])
    cell = Cell(task.name, rule, method, verdicts, [answer.forwards for answer in answers], seconds)
    print(f"{task.name:10} {rule:22} {method:22} {Share.of(verdicts)} {cell.mean_passes:6.2f} passes", file=sys.stderr)
    return cell


def table(model: Any, tasks: list[Task], batch: int, lam: float, chosen: Sequence[float] = (0.02, 0.1)) -> list[Cell]:
    """Every method at every rate, and the paper's two adaptive rules, with bounds chosen on validation items."""
    rules: dict[str, CommitRule] = {f"{n} a step": softdlm.TopN(n) for n in RATES}
    rules |= {"threshold 0.9": softdlm.Threshold(0.9)}
    rules |= {f"entropy bound {bound}": softdlm.EntropyBound(bound) for bound in chosen}
    return [
        run(model, task, method, feedback, rule, commit, batch)
        for task in tasks
        for rule, commit in rules.items()
        for method, feedback in feedbacks(lam=lam).items()
    ]


def bounds(model: Any, tasks: list[Task], batch: int, lam: float) -> list[Cell]:
    """The frontier of accuracy against passes."""
    rules: dict[str, CommitRule] = {"1 a step": softdlm.TopN(1)}
    rules |= {f"threshold {tau}": softdlm.Threshold(tau) for tau in THRESHOLDS}
    rules |= {f"entropy bound {bound}": softdlm.EntropyBound(bound) for bound in BOUNDS}
    return [
        run(model, task, method, feedbacks(lam=lam)[method], rule, commit, batch)
        for task in tasks
        for rule, commit in rules.items()
        for method in ("vanilla", "slerp")
    ]


def sensitivity(model: Any, tasks: list[Task], batch: int, lam: float) -> list[Cell]:
    """Strengths at k = 3, and k at the strength given, at 4 and 8 tokens a step."""
    settings = [(3, each) for each in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)] + [(k, lam) for k in (1, 2, 4, 8)]
    cells = []
    for task in tasks:
        for n in (4, 8):
            cells.append(run(model, task, "vanilla", softdlm.Mask(), f"{n} a step", softdlm.TopN(n), batch))
            for k, each in settings:
                for name, kind in {"slerp": softdlm.Slerp, "euclidean": softdlm.Euclidean}.items():
                    method = f"{name} k={k} lam={each}"
                    cells.append(run(model, task, method, kind(k=k, lam=each), f"{n} a step", softdlm.TopN(n), batch))
    return cells


def markdown(cells: list[Cell]) -> str:
    """One row per task and rule, methods side by side; p is McNemar's against vanilla, r recovery."""
    lines = []
    for task in dict.fromkeys(cell.task for cell in cells):
        mine = {(cell.rule, cell.method): cell for cell in cells if cell.task == task}
        single = mine.get(("1 a step", "vanilla"))
        methods = list(dict.fromkeys(method for _, method in mine))
        count = len(next(iter(mine.values())).verdicts)
        lines += [f"\n**{task}**, {count} items, accuracy % [95 % interval] (passes; p; recovery %)\n"]
        lines += ["| | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
        for rule in dict.fromkeys(rule for rule, _ in mine):
            row = [mine.get((rule, method)) for method in methods]
            lines.append(f"| {rule} | " + " | ".join(_words(cell, row[0], single) for cell in row) + " |")
    return "\n".join(lines) + "\n"


def _words(cell: Cell | None, vanilla: Cell | None, single: Cell | None) -> str:
    if cell is None:
        return "—"
    notes = [f"{cell.mean_passes:.1f}"]
    if vanilla is not None and vanilla is not cell:
        notes.append(f"p {mcnemar(vanilla.verdicts, cell.verdicts):.2g}")
    kept = recovery(single.verdicts, cell.verdicts) if single else None
    notes.append("n/a" if kept is None else f"{kept:.1f}")
    return f"{Share.of(cell.verdicts)} ({'; '.join(notes)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["table", "bounds", "sensitivity"])
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--tasks", default="mini-math,mini-code")
    parser.add_argument("--split", default="validation", help="validation while choosing; test once")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--bounds", default="0.02,0.1", help="entropy bounds of the table")
    parser.add_argument("--lam", type=float, help="strength of the soft methods; the model's own by default")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--device")
    parser.add_argument("--name", default="builtin", help="prefix of the result files")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = softdlm.load(args.model, dtype="float32", device=args.device)
    lam = model.strength.lam if args.lam is None else args.lam
    tasks = [load_task(name, split=args.split, size=args.limit) for name in args.tasks.split(",")]
    chosen = [float(bound) for bound in args.bounds.split(",")]
    measures = {"bounds": bounds, "sensitivity": sensitivity}
    found = ({"table": partial(table, chosen=chosen)} | measures)[args.what](model, tasks, args.batch, lam)
    args.out.mkdir(parents=True, exist_ok=True)
    stem = args.out / f"{date.today().isoformat()}-{args.name}-{args.what}-{args.split}"
    conditions = {
        "date": date.today().isoformat(),
        "model": args.model,
        "split": args.split,
        "device": torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "softdlm": softdlm.__version__,
        "dtype": "float32",
        "batch": args.batch,
        "lam": lam,
    }
    rows = [cell.record() for cell in found]
    stem.with_suffix(".json").write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=0) + "\n")
    text = markdown(found)
    stem.with_suffix(".md").write_text(f"{json.dumps(conditions)}\n{text}")
    print(text)


if __name__ == "__main__":
    main()
