"""Pages that play traces of the built-in model: `python examples/gallery.py` writes docs/gallery.

Nothing is written by hand: each page shows the first test item for which its condition holds, and says so, with what
the methods reach on all items that were looked at. After a change of the page itself, `--redraw` keeps the traces.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import softdlm
from softdlm.decoding import Decoding
from softdlm.records.files import ready_folder, write_text
from softdlm.report.player.marks import marked
from softdlm.report.player.page import Method, data_of, held_in, saved_page
from softdlm.tasks.task import Item, Task
from softdlm.trace import Trace

LOOKED_AT = 60
"""Test items of each task."""
RATE = {"mini-math": 4, "mini-code": 4, "either-or": 2}
"""Tokens a pass of vanilla and SLERP."""
OWN = "The model's own"


@dataclass(frozen=True)
class Tried:
    """One item, answered by every method."""

    item: Item
    traces: dict[str, Trace]

    def right(self, name: str) -> bool:
        return self.traces[name].right is True

    def true(self, name: str) -> bool:
        """Whether no equation of the answer is false."""
        return all(mark.true for mark in self.traces[name].marks)

    @property
    def passes(self) -> dict[str, int]:
        return {name: len(trace.passes) for name, trace in self.traces.items()}


@dataclass(frozen=True)
class Page:
    name: str
    title: str
    task: str
    condition: str
    """In words, as the page tells it."""
    holds: Callable[[Tried], bool]


PAGES = (
    Page(
        "word-problem", "A word problem", "mini-math", "all three methods are right, with true equations only",
        lambda each: each.item.level >= 3 and all(each.right(name) and each.true(name) for name in each.traces),
    ),
    Page(
        "code", "A small program", "mini-code", "all three programs pass their tests, and their texts differ",
        lambda each: all(map(each.right, each.traces)) and len({tuple(t.answer) for t in each.traces.values()}) > 1,
    ),
    Page(
        "either-or", "Either one or the other", "either-or",
        "vanilla mixes the two names and the model's own settings do not",
        lambda each: not each.right("Vanilla") and each.right(OWN),
    ),
    Page(
        "vanilla-fails", "Where vanilla fails", "mini-math",
        "vanilla is wrong with a false equation, and the other two are right with true ones",
        lambda each: not each.right("Vanilla") and not each.true("Vanilla")
        and all(each.right(name) and each.true(name) for name in ("SLERP", OWN)),
    ),
    Page(
        "ours-fails", "Where soft tokens fail", "mini-math",
        "vanilla is right and SLERP, at the same rate, is wrong",
        lambda each: each.right("Vanilla") and not each.right("SLERP"),
    ),
)  # fmt: skip


def methods_of(task: str) -> dict[str, Decoding]:
    commit = f"topn({RATE[task]})"
    vanilla, slerp = (Decoding.of(feedback=rule, commit=commit, candidates=5) for rule in ("vanilla", "slerp"))
    return {"Vanilla": vanilla, "SLERP": slerp, OWN: Decoding.of(candidates=5)}


def answered(model: softdlm.Denoiser, task: Task, name: str) -> list[Tried]:
    """Every item with every method, scored. Seconds are left out: the answers were decoded in batches."""
    found: dict[str, list[Trace]] = {}
    for label, decoding in methods_of(name).items():
        settled = replace(decoding, max_new_tokens=task.max_new_tokens).settled(model.own)
        prompts = [item.prompt for item in task]
        made = softdlm.generate(model, prompts, decoding=settled, record_candidates=True)
        scores = task.score_all(list(task), [each.text for each in made])
        found[label] = [
            replace(
                marked(each.trace), right=right, target=item.target.strip() if name == "either-or" else "", seconds=[]
            )
            for each, right, item in zip(made, scores, task, strict=True)
        ]
    return [Tried(item, {label: traces[number] for label, traces in found.items()}) for number, item in enumerate(task)]


def sentence(page: Page, tried: Sequence[Tried]) -> str:
    counts = ", ".join(f"{name} is right on {sum(each.right(name) for each in tried)}" for name in tried[0].traces)
    picked = f"Picked: the first of {len(tried)} test items of {page.task} where {page.condition}."
    return f"{picked} Of all {len(tried)}, {counts}."


def write(folder: Path) -> None:
    ready_folder(folder)
    model = softdlm.load("builtin")
    tried: dict[str, list[Tried]] = {}
    lines = []
    for page in PAGES:
        if page.task not in tried:
            print(f"decoding {page.task}", file=sys.stderr)
            tried[page.task] = answered(
                model, softdlm.tasks.load_task(page.task, split="test", size=LOOKED_AT), page.task
            )
        chosen = next((each for each in tried[page.task] if page.holds(each)), None)
        if chosen is None:
            raise SystemExit(f"no item of {page.task} where {page.condition}: look at more of them")
        note = sentence(page, tried[page.task])
        shown = [Method(label, trace) for label, trace in chosen.traces.items()]
        write_text(folder / f"{page.name}.html", saved_page(data_of(shown, page.title, note)))
        counts = ", ".join(f"{name} {passes}" for name, passes in chosen.passes.items())
        prompt = escape(" ".join(chosen.item.prompt.split()), quote=False)
        lines.append(f"- [{page.title}]({page.name}.html): *{prompt}* {note} Passes: {counts}.")
    head = (
        "# Gallery\n\nTraces of the built-in model. Each page is one file: save it and open it in a browser. "
        "`python examples/gallery.py` picked and wrote them.\n\n"
    )
    write_text(folder / "README.md", head + "\n".join(lines) + "\n")
    print(f"Gallery: {folder / 'README.md'}")


def redraw(folder: Path) -> None:
    """The same traces in the page as it is now."""
    for file in sorted(folder.glob("*.html")):
        write_text(file, saved_page(held_in(file.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    (redraw if "--redraw" in sys.argv else write)(Path(__file__).parents[1] / "docs" / "gallery")
