"""A search for the settings of a feedback rule, as a grid of cells, and the choice that is made from it.

The built-in tasks have validation items, which are searched, so that the test items stay unseen. The benchmarks have
none: there the paper's search, and this one, look at the test items themselves, and every table says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from softdlm.evaluate.summary import Result
from softdlm.registry import build, spell
from softdlm.reproduce.measurements import Cells, share
from softdlm.reproduce.study import STAND_INS, Grids, Study, rate_title, task_title

LAMS = (0.1, 0.3, 0.5, 0.7)
KS = (2, 3, 4)
"""The paper's search (appendix A)."""


def paper_grid(method: str) -> tuple[str, ...]:
    """The spelled settings of the paper's search, from weak to strong."""
    return tuple(f"{method}(k={k}, lam={lam})" for lam in LAMS for k in KS)


def split_of(task: str) -> str:
    return "validation" if task in STAND_INS else "test"


def search_grids(study: Study, tasks: Iterable[str], settings: Iterable[str], commits: Sequence[str]) -> Grids:
    """The cells of a search: every setting with every commit rule, on the items that settings are chosen on."""
    made = []
    for task in tasks:
        most = study.scale.search if task in STAND_INS else None
        made += study.grids([task], tuple(settings), commits, most=most, split=split_of(task))
    return made


@dataclass(frozen=True)
class Choice:
    """The setting that solved most in a search, and what it was chosen on."""

    feedback: str
    """Spelled, with all its parameters."""
    accuracy: float
    """Per cent, the mean over the commit rules of the search."""
    items: int
    settings: int
    """How many settings were tried."""


def choose(cells: Cells, task: str, settings: Sequence[str], commits: Sequence[str]) -> Choice | None:
    """The setting of highest accuracy, averaged over the commit rules; of equal ones the first.

    Settings that were not measured under every commit rule take no part.
    """
    found: dict[str, list[Result]] = {}
    for setting in settings:
        results = [each for commit in commits if (each := cells.spelled(task, setting, commit)) is not None]
        if len(results) == len(commits):
            found[setting] = results
    if not found:
        return None
    scores = {setting: fmean(share(each).percent for each in results) for setting, results in found.items()}
    best = max(scores, key=lambda setting: scores[setting])
    return Choice(spell(build("feedback", best)), scores[best], len(found[best][0].samples), len(found))


def choice_note(task: str, choices: Mapping[str, Choice | None], commits: Sequence[str]) -> str:
    """A sentence for a table: what was chosen, from how many settings, on which items."""
    made = {name: choice for name, choice in choices.items() if choice is not None}
    if not made:
        return f"{task_title(task)}: no setting was chosen, the search is not finished."
    parts = [f"{each.feedback} ({each.accuracy:.1f} %, of {each.settings})" for each in made.values()]
    where = "validation items" if task in STAND_INS else "test items, the ones reported here"
    sizes = ", ".join(str(items) for items in sorted({each.items for each in made.values()}))
    rates = ", ".join(map(rate_title, commits))
    return f"{task_title(task)}, chosen on {sizes} {where} by the mean accuracy at {rates}: {', '.join(parts)}."
