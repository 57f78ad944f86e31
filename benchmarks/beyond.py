"""Decodings beyond the paper, measured on one network: the search of docs/when-soft-tokens-help.md.

    python benchmarks/beyond.py --model builtin --task mini-math --list first --out found.jsonl [--part 0 --parts 4]

Each line of the result is a setting with its accuracy, consistency, mean passes and verdicts, item by item. Settings
that the file holds already are skipped. Validation items by default: what is chosen here is tested elsewhere.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

import torch  # noqa: E402

import softdlm  # noqa: E402
from softdlm.tasks import load_task  # noqa: E402

TRIED = str(Path(__file__).parent / "rules_tried.py")
ITEMS = {"mini-math": 400, "mini-code": 150}
BOUNDS = ("entropy(0.02)", "entropy(0.1)", "entropy(0.3)")
FIXED = ("topn(4)", "topn(8)", "topn(16)")


def alternating(k: int, lam: float, period: int = 2, soft: int = 1) -> str:
    return f"alternate(slerp(k={k}, lam={lam}), period={period}, soft={soft})"


def first() -> Iterator[tuple[str, str]]:
    """Vanilla, the paper's rule, one candidate, alternation, hard commits, growing schedules."""
    commits = ("topn(1)", *BOUNDS, *FIXED)
    yield from product(("vanilla", "slerp(k=3, lam=0.5)", "slerp(k=1, lam=0.5)"), commits)
    turns = [alternating(k, lam) for k in (1, 3) for lam in (0.3, 0.4, 0.5)] + [alternating(1, 0.6)]
    thirds = [alternating(1, lam, 3, soft) for lam in (0.3, 0.5) for soft in (1, 2)]
    yield from product((*turns, *thirds), (*BOUNDS, *FIXED))
    yield from product(
        (*turns, *thirds), (f"hard_only({each})" for each in (*BOUNDS, "topn(4)", "topn(8)", "topn(16)"))
    )
    yield from product(
        (alternating(1, 0.4), alternating(1, 0.5), alternating(1, 0.3, 3)), ("topn(1)", "hard_only(topn(1))")
    )
    grown = [f"steps({n}, schedule='{s}')" for n in (4, 8, 16) for s in ("power", "cosine")]
    grown += [f"steps({n}, schedule='power', power=2)" for n in (4, 8)]
    soft = ("slerp(k=3, lam=0.5)", "slerp(k=1, lam=0.5)", alternating(1, 0.5), alternating(1, 0.5, 3, 2))
    yield from product((*soft, "vanilla"), grown)


def second() -> Iterator[tuple[str, str]]:
    """Ideas of the list of things not tried, and our own."""
    ours = f"{TRIED}:"
    patterns = [f"{ours}Halves(width={w})" for w in (2, 4, 16)] + [f"{ours}Drawn(share={s})" for s in (0.33, 0.5, 0.67)]
    patterns += [f"{ours}BySureness(bar={b})" for b in (0.5, 0.9)] + [
        f"{ours}TwoStrengths(low={b})" for b in (0.1, 0.2, 0.3)
    ]
    weights = [f"{ours}BySurenessStrength(lam={a}, scale={s})" for a in (0.5, 0.7) for s in (0.3, 1.0)]
    weights += [f"{ours}BySurenessStrength(lam=0.6, scale=0.3, p=0.9)", "lrd(r_f=0.5)", "alternate(lrd(r_f=0.5))"]
    resets = [f"{ours}Reset(reject={r})" for r in (0.05, 0.2)] + [f"{ours}Reset(reject=null)"]
    others = [
        "alternate(euclidean(k=1, lam=0.5))",
        "alternate(soft-token(k=1))",
        "alternate(remix)",
        "alternate(norm-mix(k=1))",
    ]
    yield from product((*patterns, *weights, *resets, *others), (*BOUNDS, "topn(8)"))
    turn = [alternating(1, 0.5), alternating(1, 0.4)]
    commits = [f"{ours}{name}(then={each})" for each in BOUNDS for name in ("Agreed", "Doubted")]
    commits += [f"{ours}Discount(then={each}, factor={f})" for each in BOUNDS for f in (2.0, 4.0)]
    commits += [f"{ours}GrowingBound(gamma={g}, over={o})" for g in (0.1, 0.3) for o in (3, 6)]
    yield from product(turn, commits)
    warm = [f"{ours}Warm(then=topn({n}), passes={w})" for n, w in ((10, 1), (11, 2), (22, 1), (32, 2))]
    yield from product(("slerp(k=1, lam=0.5)", alternating(1, 0.5), "lrd(r_f=0.5)"), warm)


LISTS = {"first": first, "second": second}


class Bench:
    """A network on the items of a task; programs that were scored once are remembered."""

    def __init__(self, model: str, task: str, split: str, items: int, device: str, dtype: str) -> None:
        self.model = softdlm.load(model, device=device, dtype=dtype)
        self.task = load_task(task, split=split, size=items)
        self.known: dict[tuple[str, str], bool] = {}

    def verdicts(self, texts: list[str]) -> list[bool]:
        pairs = [(item.id, text) for item, text in zip(self.task, texts, strict=True)]
        new = [(item, text) for item, text in zip(self.task, texts, strict=True) if (item.id, text) not in self.known]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda pair: self.task.score(*pair), new))
        self.known |= {(item.id, text): right for (item, text), right in zip(new, found, strict=True)}
        return [self.known[pair] for pair in pairs]

    def measure(self, feedback: str, commit: str) -> dict[str, Any]:
        began = time.perf_counter()
        prompts = [item.prompt for item in self.task]
        made = softdlm.generate(
            self.model, prompts, batch_size=512, feedback=feedback, commit=commit, max_new_tokens=64, candidates=1
        )
        texts = [each.text for each in made]
        right = self.verdicts(texts)
        agrees = self.task.consistent
        assert agrees is not None
        consistent = [agrees(item, text) for item, text in zip(self.task, texts, strict=True)]
        return {
            "feedback": feedback.rpartition("/")[2],
            "commit": commit.rpartition("/")[2],
            "items": len(right),
            "accuracy": 100 * sum(right) / len(right),
            "consistent": 100 * sum(consistent) / len(right),
            "passes": sum(each.forwards for each in made) / len(made),
            "right": "".join("01"[each] for each in right),
            "agrees": "".join("01"[each] for each in consistent),
            "seconds": round(time.perf_counter() - began, 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--name", help="of the network in the file; its folder's by default")
    parser.add_argument("--task", default="mini-math")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--items", type=int)
    parser.add_argument("--list", default="first", help="first, second, or a JSON file of [feedback, commit] pairs")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    pairs = list(
        dict.fromkeys(
            LISTS[asked.list]() if asked.list in LISTS else map(tuple, json.loads(Path(asked.list).read_text()))
        )
    )
    done = (
        {(each["feedback"], each["commit"]) for each in map(json.loads, asked.out.read_text().splitlines())}
        if asked.out.exists()
        else set()
    )
    bench = Bench(asked.model, asked.task, asked.split, asked.items or ITEMS[asked.task], asked.device, asked.dtype)
    until = time.monotonic() + asked.seconds
    about = {"network": asked.name or Path(asked.model).name, "task": asked.task, "split": asked.split}
    with asked.out.open("a") as out:
        for feedback, commit in pairs[asked.part :: asked.parts]:
            if (feedback.rpartition("/")[2], commit.rpartition("/")[2]) in done:
                continue
            if time.monotonic() > until:
                break
            try:
                row = {**about, **bench.measure(feedback, commit)}
            except Exception as error:
                row = {**about, "feedback": feedback, "commit": commit, "error": f"{type(error).__name__}: {error}"}
            out.write(json.dumps(row) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
