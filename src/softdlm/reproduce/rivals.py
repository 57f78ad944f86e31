"""Rivals, beyond the paper: every training-free soft-token rule we know of, under the same commit rules.

Each rule is measured at its published setting and at the setting that a search chooses, by accuracy, by consistency
and by forward passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from softdlm.evaluate import paper
from softdlm.evaluate.metrics import mcnemar
from softdlm.evaluate.summary import Result
from softdlm.report.document import Drawing
from softdlm.report.table import Cell, Table
from softdlm.reproduce.experiment import Experiment, ShareClaim
from softdlm.reproduce.leads import Lead, lead
from softdlm.reproduce.measurements import (
    Cells,
    Measurements,
    Of,
    consistent,
    effort,
    paired,
    right,
    right_and_consistent,
    share,
)
from softdlm.reproduce.search import Choice, choice_note, choose, paper_grid, search_grids
from softdlm.reproduce.study import Grids, Study, rate_title, task_title
from softdlm.reproduce.table_parts import accuracy, cell_table, method_title, point

BENCHMARKS = ("gsm8k", "humaneval")
STRONG = ("euclidean", "euclidean-mask-norm", "slerp")
"""Rules with k and lambda; their published setting is the paper's."""
SEARCHED: dict[str, tuple[str, ...]] = {
    **{name: paper_grid(name) for name in STRONG},
    "additive": tuple(f"additive(start={stop / 2:g}, stop={stop})" for stop in (0.1, 0.3, 0.6, 1.0)),
    "norm-mix": tuple(f"norm-mix(k={k})" for k in (1, 2, 3, 5)),
    "lrd": tuple(f"lrd(r_f={r_f}, p={p})" for r_f, p in product((0.1, 0.2, 0.4, 0.8), (0.5, 0.9))),
    "remix": tuple(f"remix(mix={mix}, forget={f})" for mix, f in product((0.25, 0.5, 0.75, 1.0), (True, False))),
    "soft-token-5": tuple(f"soft-token(k={k}, extra={extra})" for k, extra in product((1, 5), (0.0, 0.5, 1.0, 2.0))),
}
"""Rule -> the settings that are tried; `vanilla` has none."""
RULES = ("vanilla", *SEARCHED)


def published(study: Study, task: str) -> dict[str, str]:
    """Rule -> its published setting, spelled; tasks that the paper does not have take its usual k = 3, lambda = 0.3."""
    setting = paper.setting(study.family, task)
    strength = f"(k={setting.k or 3}, lam={0.3 if setting.lam is None else setting.lam})"
    return {rule: rule + strength if rule in STRONG else rule for rule in RULES}


def search(study: Study) -> Grids:
    settings = [setting for each in SEARCHED.values() for setting in each]
    return search_grids(study, study.places(*BENCHMARKS), settings, study.scale.rival_rates)


def choices(study: Study, searched: Cells, task: str) -> dict[str, Choice | None]:
    return {rule: choose(searched, task, tried, study.scale.rival_rates) for rule, tried in SEARCHED.items()}


def best(study: Study, searched: Cells, task: str) -> dict[str, str]:
    """Rule -> the setting that its search chose, spelled; rules whose search is not finished are left out."""
    found = choices(study, searched, task)
    return {"vanilla": "vanilla"} | {rule: each.feedback for rule, each in found.items() if each is not None}


def cells(study: Study) -> Grids:
    places = study.places(*BENCHMARKS)
    return [
        grid for task in places for grid in study.grids([task], [*published(study, task).values()], study.scale.rivals)
    ]


def follow(study: Study, searched: Cells) -> Grids:
    places = study.places(*BENCHMARKS)
    chosen = {task: [*best(study, searched, task).values()] for task in places}
    return [grid for task in places for grid in study.grids([task], chosen[task], study.scale.rivals)]


Settings = Mapping[str, str]


def by_rule(measured: Measurements, task: str, settings: Settings, commit: str) -> dict[str, Result]:
    """Rule -> its finished cell."""
    found = {rule: measured.cells["rivals"].spelled(task, text, commit) for rule, text in settings.items()}
    return {rule: each for rule, each in found.items() if each is not None}


def tables(measured: Measurements) -> list[Table]:
    study, places = measured.study, measured.study.places(*BENCHMARKS)
    searched, rates = measured.searched("rivals"), study.scale.rival_rates
    notes = [choice_note(task, choices(study, searched, task), rates) for task in places]
    kinds = {
        "published": ({task: published(study, task) for task in places}, []),
        "best": ({task: best(study, searched, task) for task in places}, notes),
    }
    return [_table(measured, kind, *each) for kind, each in kinds.items()]


def _table(measured: Measurements, kind: str, settings: Mapping[str, Settings], notes: list[str]) -> Table:
    rows = {}
    for task, spelled in settings.items():
        for commit in measured.study.scale.rivals:
            found = by_rule(measured, task, spelled, commit)
            for rule, cell in found.items():
                rows[task_title(task), rate_title(commit), method_title(rule)] = _line(cell, found)
    columns = ("accuracy, %", "p against SLERP", "consistent, %", "right and consistent, %", "passes", "setting")
    words = {"published": "each at its published setting", "best": "each at its best setting"}
    title, heads = f"Soft-token rules, {words[kind]} (beyond the paper)", ("task", "commit rule", "rule")
    interval = (
        "Brackets: 95 % intervals (Wilson). p: exact McNemar tests on the same items, behind a number against vanilla."
    )
    soft = "Each rule at the setting that is named in its row."
    own = f"rivals-{kind}"
    return cell_table(
        measured, "rivals", title, heads, columns, rows, None, interval=interval, last=notes, soft=soft, own=own
    )


def _line(cell: Result, found: Mapping[str, Result]) -> tuple[Cell, ...]:
    """A rule's numbers beside those of vanilla and of SLERP under the same commit rule."""
    vanilla, slerp = found.get("vanilla"), found.get("slerp")
    other = None if slerp is None or slerp is cell else slerp
    return (
        accuracy(cell, vanilla),
        Cell(None if other is None else f"{mcnemar(*paired(other, cell)):.2g}"),
        accuracy(cell, vanilla, consistent),
        Cell(share(cell, right_and_consistent).percent),
        Cell(effort(cell).passes),
        Cell(cell.protocol["decoding"]["feedback"]),
    )


def drawings(measured: Measurements) -> list[Drawing]:
    """Accuracy and consistency against passes, each rule at its best, a panel for each task and kind of commit rule."""
    study, searched = measured.study, measured.searched("rivals")
    made = []
    for name, words, of in (("accuracy", "accuracy, %", right), ("consistency", "consistent answers, %", consistent)):
        panels = {}
        for task in study.places(*BENCHMARKS):
            settings = best(study, searched, task)
            for kind, commits in _kinds(study).items():
                panels[f"{task_title(task)}, {kind}"] = _series(measured, task, settings, commits, of)
        shown = {title: series for title, series in panels.items() if series}
        caption = f"Soft-token rules, each at its best setting: {words} against forward passes, with 95 % intervals."
        arguments = {"panels": shown, "ylabel": words}
        made += [Drawing(f"rivals-{name}", caption, "frontiers", arguments)] if shown else []
    return made


def _kinds(study: Study) -> dict[str, list[str]]:
    fixed = [commit for commit in study.scale.rivals if commit.startswith("topn")]
    bounds = [commit for commit in study.scale.rivals if commit.startswith("entropy")]
    return {"n a step": fixed, "entropy bound": bounds}


def _series(
    measured: Measurements, task: str, settings: Settings, commits: list[str], of: Of
) -> dict[str, list[tuple[float, ...]]]:
    series: dict[str, list[tuple[float, ...]]] = {}
    for commit in commits:
        for rule, cell in by_rule(measured, task, settings, commit).items():
            series.setdefault(rule, []).append(point(cell, effort(cell).passes, of))
    return series


def ahead(measured: Measurements, of: Of = right) -> Iterator[Lead]:
    """SLERP against the best of the other rules under each commit rule, each at its best setting."""
    study = measured.study
    for task in study.places(*BENCHMARKS):
        settings = best(study, measured.searched("rivals"), task)
        for commit in study.scale.rivals:
            found = by_rule(measured, task, settings, commit)
            others = [cell for rule, cell in found.items() if rule != "slerp"]
            if others and "slerp" in found:
                yield lead(found["slerp"], others, of=of)


EXPERIMENT = Experiment(
    "rivals", "Rivals: every soft-token rule under the same commit rules",
    "Beyond the paper: nine feedback rules at their published settings and at their best.",
    tables, drawings, cells, search, follow, benchmarks=BENCHMARKS, strength="each rule at its own best setting",
    claims=(
        ShareClaim("SLERP outperforms every other rule in most settings, each at its best", ahead,
                   where="ours, rivals"),
        ShareClaim("SLERP is more consistent than every other rule in most settings, each at its best",
                   lambda measured: ahead(measured, consistent), where="ours, rivals"),
    ),
)  # fmt: skip
