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
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

import torch  # noqa: E402
from rules_tried import (  # noqa: E402
    Agreed,
    BySureness,
    Discount,
    Doubted,
    Drawn,
    GrowingBound,
    Halves,
    NoEnd,
    Reset,
    Shaped,
    TwoStrengths,
    Warm,
)  # fmt: skip

import softdlm  # noqa: E402
from softdlm import Alternate, EntropyBound, TopN  # noqa: E402
from softdlm.registry import spell  # noqa: E402
from softdlm.tasks import load_task  # noqa: E402

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


def second() -> Iterator[tuple[Any, Any]]:
    """Growing schedules on their own, then ideas of the list of things not tried, and our own."""
    grown = [f"steps({n}, schedule='{s}')" for n in (4, 8) for s in ("power", "cosine")]
    grown += [f"steps({n}, schedule='power', power=2)" for n in (4, 8)]
    soft = (
        "slerp(k=1, lam=0.5)",
        "slerp(k=3, lam=0.5)",
        alternating(1, 0.5),
        alternating(1, 0.5, 3, 2),
        alternating(1, 0.6),
    )
    yield from product(soft, grown)
    yield from product(
        ("vanilla",), ("steps(8, schedule='power')", *(f"entropy({g})" for g in (0.05, 0.2, 0.5, 1.0, 2.0)))
    )
    yield from product([alternating(k, lam) for k, lam in ((1, 0.45), (2, 0.45), (2, 0.5), (3, 0.45))], BOUNDS)
    yield from product((alternating(1, 0.5, 4, 1), alternating(3, 0.5, 3, 1), alternating(3, 0.5, 4, 1)), BOUNDS)
    shapes = [Shaped(lam, by) for by in ("confidence", "square", "entropy") for lam in (0.5, 0.6)]
    shapes += [Shaped(0.5, by, bar=0.9) for by in ("unsure", "sure", "middle")] + [
        Shaped(0.6, "fade"),
        Shaped(0.6, "rise"),
    ]
    yield from product([Alternate(each) for each in shapes], BOUNDS)
    yield from product([Shaped(0.5, by) for by in ("confidence", "entropy", "unsure")], ("entropy(0.1)",))
    patterns = [Halves(2), Halves(8), Halves(64), Drawn(0.33), Drawn(0.5), BySureness(0.5), BySureness(0.9)]
    patterns += [TwoStrengths(low=0.2), TwoStrengths(low=0.35), TwoStrengths(lam=0.6, low=0.3)]
    resets = [Reset(0.05), Reset(0.2), Reset(None), Alternate(Reset(None))]
    others = [
        "alternate(euclidean(k=1, lam=0.5))",
        "alternate(soft-token(k=1))",
        "alternate(remix)",
        "alternate(norm-mix(k=1))",
    ]
    others += ["lrd(r_f=0.5)", "alternate(lrd(r_f=0.5))", "alternate(additive)"]
    yield from product((*patterns, *resets, *others), ("entropy(0.1)", "entropy(0.3)"))
    bounds = [EntropyBound(0.1), EntropyBound(0.3)]
    commits = [
        rule for each in bounds for rule in (Agreed(each), Doubted(each), Discount(each, 2.0), Discount(each, 4.0))
    ]
    commits += [GrowingBound(0.1, 4), GrowingBound(0.3, 4), GrowingBound(0.3, 8), EntropyBound(0.1, "confidence")]
    yield from product((alternating(1, 0.5), alternating(3, 0.5)), commits)
    warm = [Warm(TopN(n), w) for n, w in ((10, 1), (11, 2), (22, 1), (32, 2))]
    yield from product(("slerp(k=1, lam=0.5)", alternating(1, 0.5), "lrd(r_f=0.5)"), warm)


def third() -> Iterator[tuple[Any, Any]]:
    """Hard commits with more strengths, and EOS that is not fed back."""
    bounds = ("entropy(0.1)", "entropy(0.3)", "hard_only(entropy(0.1))", "hard_only(entropy(0.3))")
    ends = [Alternate(NoEnd(k)) for k in (1, 2, 3)] + [Alternate(NoEnd(1, 0.4)), Alternate(NoEnd(3, 0.4))]
    yield from product(ends, bounds)
    more = [
        alternating(1, 0.5, 3, 1),
        alternating(1, 0.45),
        alternating(2, 0.45),
        alternating(2, 0.5),
        alternating(3, 0.5),
    ]
    yield from product(more, bounds[2:])


def fourth() -> Iterator[tuple[Any, Any]]:
    """EOS that is not fed back, as a rule of the package."""
    bounds = ("entropy(0.2)", "entropy(0.1)", "entropy(0.3)", "hard_only(entropy(0.1))")
    strengths = ((1, 0.5), (3, 0.5), (2, 0.5), (1, 0.45), (3, 0.4), (1, 0.4))
    yield from product([f"no_eos({alternating(k, lam)})" for k, lam in strengths], bounds)


def final() -> Iterator[tuple[Any, Any]]:
    """For test items, the most important first: vanilla, the paper's rule, and what validation items spoke for."""
    ours, safe = alternating(1, 0.5), alternating(1, 0.3)
    yield from product(("vanilla",), ("entropy(0.1)", "topn(1)", "entropy(0.02)", "entropy(0.3)"))
    yield from product((ours,), ("hard_only(entropy(0.1))", "hard_only(entropy(0.3))", "hard_only(entropy(0.02))"))
    yield from product((ours, safe), ("entropy(0.1)", "entropy(0.3)", "entropy(0.02)", "topn(1)"))
    yield from product(("slerp(k=3, lam=0.5)",), ("entropy(0.1)", "topn(8)", "topn(16)", "topn(4)"))
    yield from product((alternating(1, 0.6),), [f"steps({n}, schedule='cosine')" for n in (8, 4, 16)])


def final_more() -> Iterator[tuple[Any, Any]]:
    """The rest of the frontiers, for the shipped network."""
    ours = alternating(1, 0.5)
    yield from product(("vanilla",), [f"entropy({g})" for g in (0.05, 0.2, 0.5, 1.0)])
    yield from product((alternating(3, 0.4), alternating(3, 0.3), alternating(3, 0.5)), (*BOUNDS, "topn(1)"))
    yield from product((alternating(1, 0.4),), ("topn(1)", *BOUNDS))
    yield from product((alternating(1, 0.5, 3, 1),), ("entropy(0.1)", "entropy(0.3)", "hard_only(entropy(0.1))"))
    yield from product((ours,), ("topn(2)", "topn(4)", "topn(8)", "topn(16)", "threshold(0.9)", "threshold(0.95)"))
    yield from product((ours, "slerp(k=1, lam=0.5)"), [f"steps({n}, schedule='cosine')" for n in (8, 4)])
    yield from product(
        (alternating(1, 0.5, 3, 2),), ("hard_only(topn(4))", "hard_only(topn(8))", "steps(8, schedule='power')")
    )
    yield from product(("slerp(k=1, lam=0.5)",), ("topn(4)", "topn(8)", "topn(16)", "entropy(0.1)"))
    yield from product(
        (Alternate(NoEnd(1)), Alternate(NoEnd(3))), ("entropy(0.1)", "hard_only(entropy(0.1))", "entropy(0.3)")
    )


def text(rule: Any) -> str:
    return rule if isinstance(rule, str) else spell(rule)


LISTS = {"first": first, "second": second, "third": third, "fourth": fourth, "final": final, "final-more": final_more}


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

    def measure(self, feedback: Any, commit: Any) -> dict[str, Any]:
        began = time.perf_counter()
        prompts = [item.prompt for item in self.task]
        how = {"feedback": feedback, "commit": commit, "max_new_tokens": 64, "candidates": 1}
        made = softdlm.generate(self.model, prompts, batch_size=512, engine="dynamic", **how)
        texts = [each.text for each in made]
        right = self.verdicts(texts)
        agrees = self.task.consistent
        assert agrees is not None
        consistent = [agrees(item, text) for item, text in zip(self.task, texts, strict=True)]
        return {
            "feedback": text(feedback),
            "commit": text(commit),
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
    parser.add_argument("--tf32", action="store_true", help="faster products, for a search")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = asked.tf32
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
            if (text(feedback), text(commit)) in done:
                continue
            if time.monotonic() > until:
                break
            try:
                row = {**about, **bench.measure(feedback, commit)}
            except Exception as error:
                row = {
                    **about,
                    "feedback": text(feedback),
                    "commit": text(commit),
                    "error": f"{type(error).__name__}: {error}",
                }
            out.write(json.dumps(row) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
