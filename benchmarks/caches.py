"""What a cache costs and saves on the built-in model, with and without soft tokens. Writes dated JSON and Markdown.

Every cell is paired with the same decode without a cache: p is McNemar's against it, `work` the share of its positions
that went through the network. Run again with the same --out, it goes on where it was stopped.

    python benchmarks/caches.py --device cuda --items 1000 --batch 256 --split test --out benchmarks/results
    python benchmarks/caches.py --items 20 --batch 4 --rates 4,8 --out results/caches  # a look, on a CPU
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

import softdlm  # noqa: E402
from softdlm.cache import CacheKind  # noqa: E402
from softdlm.evaluate.metrics import Share, mcnemar  # noqa: E402
from softdlm.methods import feedback_rule  # noqa: E402
from softdlm.tasks import Task, load_task  # noqa: E402

METHODS = ("vanilla", "slerp")


class Cached(NamedTuple):
    kind: CacheKind | None
    refresh: int | None = None
    renew: int = 1

    def __str__(self) -> str:
        words = [self.kind or "no cache", *([] if self.refresh is None else [f"refresh {self.refresh}"])]
        words += [] if self.renew == 1 else [f"renew {self.renew}"]
        return ", ".join(words)


@dataclass(frozen=True)
class Setting:
    task: str
    method: str
    rate: int
    block: int | None
    cached: Cached

    @property
    def place(self) -> tuple[str, str, int, int | None]:
        """What a cell shares with the decode without a cache."""
        return self.task, self.method, self.rate, self.block


class Cell(NamedTuple):
    setting: Setting
    verdicts: list[bool]
    passes: float
    positions: int
    seconds: float

    def record(self) -> dict[str, Any]:
        share = Share.of(self.verdicts)
        return {
            "task": self.setting.task,
            "method": self.setting.method,
            "tokens a step": self.setting.rate,
            "block": self.setting.block,
            "cache": self.setting.cached.kind,
            "refresh": self.setting.cached.refresh,
            "renew": self.setting.cached.renew,
            "accuracy": round(share.percent, 2),
            "interval": [round(share.low, 2), round(share.high, 2)],
            "items": share.items,
            "passes": round(self.passes, 2),
            "positions": self.positions,
            "seconds": round(self.seconds, 2),
            "verdicts": "".join("01"[verdict] for verdict in self.verdicts),
        }

    @staticmethod
    def read(record: dict[str, Any]) -> Cell:
        names = ("task", "method", "tokens a step", "block")
        setting = Setting(
            *(record[name] for name in names), Cached(record["cache"], record["refresh"], record.get("renew", 1))
        )
        verdicts = [verdict == "1" for verdict in record["verdicts"]]
        return Cell(setting, verdicts, record["passes"], record["positions"], record["seconds"])


class Meter:
    """Counts the positions that go through the network, padding included."""

    def __init__(self, model: Any) -> None:
        self.positions = 0
        whole, window = model.hidden, model.hidden_in

        def hidden(embeds: torch.Tensor, **sight: Any) -> torch.Tensor:
            self.positions += embeds.shape[:2].numel()
            return whole(embeds, **sight)

        def hidden_in(where: Any, memory: Any, embeds: torch.Tensor, **sight: Any) -> torch.Tensor:
            self.positions += embeds.shape[:2].numel()
            return window(where, memory, embeds, **sight)

        model.hidden, model.hidden_in = hidden, hidden_in


def run(model: Any, meter: Meter, task: Task, setting: Setting, batch: int, lam: float) -> Cell:
    meter.positions, start = 0, time.perf_counter()
    answers = softdlm.generate(
        model,
        [item.prompt for item in task],
        max_new_tokens=task.max_new_tokens,
        feedback=feedback_rule(setting.method, lam=lam),
        commit=softdlm.TopN(setting.rate),
        block_length=setting.block,
        cache=setting.cached.kind,
        refresh=setting.cached.refresh,
        renew=setting.cached.renew,
        batch_size=batch,
        engine="dynamic",  # the meter sits in Python, where a captured pass does not come by
    )
    seconds = time.perf_counter() - start
    verdicts = task.score_all(list(task), [answer.text for answer in answers])
    passes = sum(answer.forwards for answer in answers) / len(answers)
    cell = Cell(setting, verdicts, passes, meter.positions, seconds)
    block = setting.block or "whole"
    print(
        f"{task.name} {setting.method:8} {setting.rate} a step, block {block}, {setting.cached!s:20} "
        f"{Share.of(verdicts)} {seconds:.1f} s",
        file=sys.stderr,
        flush=True,
    )
    return cell


def settings(
    task: Task, rates: Sequence[int], blocks: Sequence[int], refreshes: Sequence[int], renewals: Sequence[int]
) -> Iterator[Setting]:
    """No cell twice: a refresh that a block never reaches is none, and in one whole block the two caches coincide.

    Renewals beyond the number of blocks are all once a decode, so the first of them stands for them.
    """
    for block in blocks:
        whole = block >= task.max_new_tokens
        for rate in rates:
            passes = -(-block // rate)
            every = [None, *(refresh for refresh in refreshes if refresh < passes)]
            kinds: list[CacheKind] = ["prefix"] if whole else ["prefix", "dual"]
            count = -(-task.max_new_tokens // block)
            rarer = sorted({min(renew, count) for renew in renewals} - {1})
            caches = [Cached(None), *(Cached(kind, refresh) for kind in kinds for refresh in every if passes > 1)]
            caches += [Cached(kind, None, renew) for kind in kinds for renew in rarer]
            for method in METHODS:
                for cached in caches:
                    yield Setting(task.name, method, rate, None if whole else block, cached)


def markdown(cells: Sequence[Cell]) -> str:
    """One table per task and method: rows are rates and blocks, columns are caches."""
    plain = {cell.setting.place: cell for cell in cells if cell.setting.cached.kind is None}
    columns = list(dict.fromkeys(cell.setting.cached for cell in cells))
    columns.sort(key=lambda cached: (cached.kind or "", cached.refresh or 1000, -cached.renew), reverse=True)
    columns.sort(key=lambda cached: cached.kind is not None)
    found = {(cell.setting.place, cell.setting.cached): cell for cell in cells}
    lines = []
    for task, method in dict.fromkeys((cell.setting.task, cell.setting.method) for cell in cells):
        places = [place for place in plain if place[:2] == (task, method)]
        items = len(plain[places[0]].verdicts)
        lines += [f"\n**{task}, {method}**, {items} items: accuracy % [95 % interval] (passes; p; work %; seconds)\n"]
        lines += ["| tokens a step, block | " + " | ".join(map(str, columns)) + " |", "|---" * (len(columns) + 1) + "|"]
        for place in places:
            row = [_words(found.get((place, cached)), plain[place]) for cached in columns]
            lines.append(f"| {place[2]}, {place[3] or 'whole'} | " + " | ".join(row) + " |")
    return "\n".join([*lines, "", *_legend()]) + "\n"


def _words(cell: Cell | None, plain: Cell) -> str:
    if cell is None:
        return ""
    notes = [f"{cell.passes:.1f}"]
    if cell is not plain:
        notes += [f"p {mcnemar(plain.verdicts, cell.verdicts):.2g}", f"{100 * cell.positions / plain.positions:.0f}"]
    return f"{Share.of(cell.verdicts)} ({'; '.join([*notes, f'{cell.seconds:.1f}'])})"


def _legend() -> list[str]:
    return [
        "Empty: the cell would repeat its neighbour (one pass a block computes everything; in one whole block the dual",
        "cache is the prefix cache; a refresh beyond a block's passes never comes, a renewal beyond the blocks",
        "neither).",
    ]


def earlier(file: Path, conditions: dict[str, Any], items: int) -> list[Cell]:
    """What a run under the same conditions left."""
    if not file.exists():
        return []
    found = json.loads(file.read_text())
    if found["conditions"] != conditions or any(row["items"] != items for row in found["rows"]):
        sys.exit(f"{file} is of other conditions: give another --name")
    return [Cell.read(row) for row in found["rows"]]


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--tasks", default="mini-math")
    parser.add_argument("--split", default="validation", help="validation while choosing; test once")
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rates", type=numbers, default=[1, 2, 4, 8], help="tokens a step")
    parser.add_argument("--blocks", type=numbers, default=[16, 32, 64], help="the task's length is one whole block")
    parser.add_argument("--refreshes", type=numbers, default=[2, 4], help="passes between refreshes, beside none")
    parser.add_argument("--renewals", type=numbers, default=[1], help="blocks between passes over everything")
    parser.add_argument("--lam", type=float, help="strength of SLERP; the model's own by default")
    parser.add_argument("--device")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--name", default="caches", help="prefix of the result files")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = softdlm.load(args.model, dtype=args.dtype, device=args.device)
    lam = model.strength.lam if args.lam is None else args.lam
    conditions = {
        "date": date.today().isoformat(),
        "model": args.model,
        "split": args.split,
        "device": torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "softdlm": softdlm.__version__,
        "dtype": args.dtype,
        "batch": args.batch,
        "lam": lam,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    stem = args.out / f"{conditions['date']}-{args.name}-{args.split}"
    meter, cells = Meter(model), earlier(stem.with_suffix(".json"), conditions, args.items)
    for name in args.tasks.split(","):
        task = load_task(name, split=args.split, size=args.items)
        softdlm.generate(model, [item.prompt for item in task][: args.batch], max_new_tokens=8, batch_size=args.batch)
        for setting in settings(task, args.rates, args.blocks, args.refreshes, args.renewals):
            if any(cell.setting == setting for cell in cells):
                continue
            cells.append(run(model, meter, task, setting, args.batch, lam))
            rows = [cell.record() for cell in cells]
            stem.with_suffix(".json").write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=0) + "\n")
            stem.with_suffix(".md").write_text(f"{json.dumps(conditions)}\n{markdown(cells)}")
    print(markdown(cells))


if __name__ == "__main__":
    main()
