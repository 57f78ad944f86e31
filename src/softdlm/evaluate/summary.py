"""From cell folders to tables: pure functions of what is on disk."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from softdlm.errors import ResultsError, UsageError
from softdlm.evaluate.cell import PROTOCOL
from softdlm.evaluate.metrics import Effort, Share, mcnemar, recovery
from softdlm.records.canonical import digest
from softdlm.records.journal import MANIFEST, SAMPLES, SUMMARY, Sample, read_manifest, read_samples
from softdlm.report.words import count
from softdlm.tasks.consistency import CONSISTENT

Row = dict[str, Any]
RULES = ("commit", "feedback", "commit_source", "feedback_source")
RATES = ("topn", "topn-eps", "steps", "threshold", "entropy", "factor")
"""The order of commit rules in a table."""
_STRENGTH = re.compile(r" k=\S+ lam=\S+$")


@dataclass(frozen=True)
class Result:
    """A cell as it lies on disk, finished or not."""

    folder: Path
    labels: Mapping[str, str]
    protocol: Mapping[str, Any]
    samples: Mapping[str, Sample]
    finished: bool

    @staticmethod
    def read(folder: Path) -> Result:
        manifest = read_manifest(folder)
        if (version := manifest["protocol"].get("softdlm_protocol")) != PROTOCOL:
            raise ResultsError(
                f"{folder} was made by another version of softdlm (protocol {version}; this one reads {PROTOCOL}): "
                "evaluate again into another folder"
            )
        samples, _ = read_samples(folder / SAMPLES)
        if len(samples) > (count := manifest["protocol"]["task"]["count"]):
            raise ResultsError(f"{folder / SAMPLES} answers {len(samples)} items, its task has {count}: evaluate again")
        finished = (folder / SUMMARY).exists()
        return Result(folder, manifest["labels"], manifest["protocol"], samples, finished)

    @property
    def is_vanilla(self) -> bool:
        return self.protocol["decoding"]["feedback"] == "vanilla"

    @property
    def is_single(self) -> bool:
        """Vanilla at one token a step, ranked by anything."""
        return self.is_vanilla and self.labels["rate"] == "1 a step"

    @cached_property
    def comparison(self) -> str:
        """The same for all methods and rates of one comparison: model, task, items and settings.

        What a commit rule reads (`confidence`) belongs to the rate.
        """
        shared = {name: value for name, value in self.settings.items() if name != "confidence"}
        return digest({"model": self.protocol["model"], "task": self.protocol["task"], "decoding": shared})

    @property
    def settings(self) -> dict[str, Any]:
        """The Decoding without its rules."""
        return {name: value for name, value in self.protocol["decoding"].items() if name not in RULES}

    @property
    def rate(self) -> str:
        return self.protocol["decoding"]["commit"]

    @property
    def pair(self) -> tuple[str, ...]:
        """The same for all methods at one rate; a user's commit rule counts by its file's text."""
        decoding = self.protocol["decoding"]
        return self.comparison, self.rate, decoding.get("commit_source", ""), decoding.get("confidence", "")

    def verdicts(self, ids: Sequence[str]) -> list[bool]:
        return [self.samples[item].correct for item in ids]

    def consistent(self, ids: Sequence[str]) -> list[bool] | None:
        """Whether each answer agrees with itself; None where that was not asked."""
        found = [self.samples[item].extra.get(CONSISTENT) for item in ids]
        return None if None in found else [bool(each) for each in found]


def find_cells(root: Path) -> list[Path]:
    """Every cell's folder in a folder of results; a single cell's will do."""
    folders = [root] if (root / MANIFEST).exists() else [file.parent for file in sorted(root.glob(f"*/{MANIFEST}"))]
    if not folders:
        raise UsageError(f"{root} holds no results: it should hold folders with a {MANIFEST}")
    return folders


def summarise(samples: Sequence[Sample]) -> dict[str, Any]:
    """One cell in numbers: `summary.json`. Extra metrics that are numbers or verdicts become means."""
    share, effort = Share.of([sample.correct for sample in samples]), effort_of(samples)
    names = dict.fromkeys(name for sample in samples for name in sample.extra)
    columns: dict[str, list[Any]] = {name: [sample.extra.get(name) for sample in samples] for name in names}
    numeric = {
        name: values for name, values in columns.items() if all(isinstance(each, int | float) for each in values)
    }
    return {
        "items": share.items,
        "correct": sum(sample.correct for sample in samples),
        "accuracy": share.percent,
        "interval": [share.low, share.high],
        "forwards": effort.forwards,
        "tokens": effort.tokens,
        "tokens_per_forward": effort.tokens_per_forward,
        "seconds": effort.seconds,
        "tokens_per_second": effort.tokens_per_second,
        "reasons": dict(Counter(sample.reason for sample in samples).most_common()),
        "finish": dict(Counter(sample.finish for sample in samples).most_common()),
        "extra": {name: sum(values) / len(values) for name, values in numeric.items()},
    }


def effort_of(samples: Sequence[Sample]) -> Effort:
    return Effort(
        len(samples),
        sum(sample.forwards for sample in samples),
        sum(sample.tokens for sample in samples),
        sum(sample.seconds for sample in samples),
    )


def rows(results: Sequence[Result]) -> list[Row]:
    """One row a cell, compared with vanilla at its rate and at one token a step where those are there and finished."""
    answered = sorted((result for result in results if result.samples), key=_order)
    vanilla = {each.pair: each for each in answered if each.is_vanilla and each.finished}
    single = {each.comparison: each for each in answered if each.is_single and each.finished}
    settings = _distinctions(answered)
    return [
        _row(each, vanilla.get(each.pair), single.get(each.comparison)) | {"settings": note}
        for each, note in zip(answered, settings, strict=True)
    ]


def _row(result: Result, vanilla: Result | None, single: Result | None) -> Row:
    samples = list(result.samples.values())
    share, effort, ids = Share.of([sample.correct for sample in samples]), effort_of(samples), list(result.samples)
    paired = result.finished and vanilla is not None and vanilla.folder != result.folder
    kept = recovery(single.verdicts(ids), result.verdicts(ids)) if single and result.finished else None
    base = vanilla if paired else None
    return {
        **result.labels,
        "items": share.items,
        "of": result.protocol["task"]["count"],
        "accuracy": share.percent,
        "interval": [share.low, share.high],
        "p": None if base is None else mcnemar(base.verdicts(ids), result.verdicts(ids)),
        **_consistency(result, base, ids),
        "recovery": kept,
        "single_solved": sum(sample.correct for sample in single.samples.values()) if single else None,
        "passes": effort.passes,
        "tokens_per_forward": effort.tokens_per_forward,
        "tokens_per_second": effort.tokens_per_second,
        "seconds": effort.seconds,
        "is_single": result.is_single,
        "cell": result.folder.name,
    }


def _consistency(result: Result, vanilla: Result | None, ids: Sequence[str]) -> Row:
    """The share of answers that agree with themselves, beside vanilla's, and of those that are right as well."""
    ours, theirs = result.consistent(ids), None if vanilla is None else vanilla.consistent(ids)
    if ours is None:
        return dict.fromkeys(["consistency", "consistency_interval", "consistency_p", "right_and_consistent"])
    share, right = Share.of(ours), result.verdicts(ids)
    return {
        "consistency": share.percent,
        "consistency_interval": [share.low, share.high],
        "consistency_p": None if theirs is None else mcnemar(theirs, ours),
        "right_and_consistent": Share.of([a and b for a, b in zip(ours, right, strict=True)]).percent,
    }


def _order(result: Result) -> tuple[Any, ...]:
    """Models and tasks together, then rates from slow to fast, then vanilla first."""
    name, _, inside = result.rate.partition("(")
    found = re.search(r"[0-9.]+(e-?[0-9]+)?", inside)
    kind = RATES.index(name) if name in RATES else len(RATES)
    return (
        result.labels["model"],
        result.labels["task"],
        (kind, name, float(found.group()) if found else 1.0, inside),
        not result.is_vanilla,
        result.labels["method"],
    )


def _distinctions(results: Sequence[Result]) -> list[str]:
    """The settings that tell rows of one model and task apart, where the labels do not."""
    flat = [{**each.protocol["model"], **each.protocol["task"], **each.settings} for each in results]
    places = [(each.labels["model"], each.labels["task"]) for each in results]
    varying = {
        name
        for place in set(places)
        for name in {name for each in flat for name in each} - {"items"}
        if len({digest(each.get(name)) for each, where in zip(flat, places, strict=True) if where == place}) > 1
    }
    return [" ".join(f"{name}={each[name]}" for name in sorted(varying) if name in each) for each in flat]


def words(row: Row) -> dict[str, str]:
    """A row as a person reads it. A dash: nothing to compare with; n/a: single-token decoding solved nothing."""
    unrecovered = "n/a" if row["single_solved"] == 0 else "—"
    return {
        "model": row["model"],
        "task": row["task"],
        "method": row["method"],
        "rate": row["rate"],
        "items": f"{row['items']}" if row["items"] == row["of"] else f"{row['items']} of {row['of']}",
        "accuracy %": _percent(row["accuracy"], row["interval"]),
        "p": _p(row["p"]),
        "recovery": unrecovered if row["recovery"] is None else f"{row['recovery']:.1f}",
        "passes": f"{row['passes']:.1f}",
        "tok/pass": f"{row['tokens_per_forward']:.2f}",
        "tok/s": "—" if row["tokens_per_second"] is None else f"{row['tokens_per_second']:.1f}",
        "consistent %": _percent(row["consistency"], row["consistency_interval"]),
        "its p": _p(row["consistency_p"]),
        "and right %": _percent(row["right_and_consistent"]),
        "settings": row["settings"],
        "cell": row["cell"][:8],
    }


def _percent(value: float | None, interval: Sequence[float] | None = None) -> str:
    if value is None:
        return "—"
    return f"{value:.1f}" if interval is None else f"{value:.1f} [{interval[0]:.1f}, {interval[1]:.1f}]"


def _p(value: float | None) -> str:
    return "—" if value is None else f"{value:.2g}"


class Titled(NamedTuple):
    """The table of a model on a task, in words."""

    title: str
    rows: list[dict[str, str]]
    notes: tuple[str, ...]
    """The readings of the paper behind its cells, where there are any."""


def tables(found: Sequence[Row], *, cells: bool = False) -> list[Titled]:
    """One table for each model and task."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        groups.setdefault((row["model"], row["task"]), []).append(row)
    return [
        Titled(*_titled(*names, list(map(words, group)), cells), _reading_notes(group))
        for names, group in groups.items()
    ]


def _reading_notes(group: Sequence[Row]) -> tuple[str, ...]:
    """Every reading of the rows once, in their order; one that differs between rows has several values."""
    said = dict.fromkeys(each for row in group for each in row.get("readings", "").split(", ") if each)
    return (f"Readings: {', '.join(said)}.",) if said else ()


def _titled(model: str, task: str, lines: list[dict[str, str]], cells: bool) -> tuple[str, list[dict[str, str]]]:
    """What all rows share stands in the title: the number of items, the strength of the feedback."""
    counts = {line["items"] for line in lines}
    strengths = {found.group() for line in lines if (found := _STRENGTH.search(line["method"]))}
    hidden = {"model", "task"} | ({"items"} if len(counts) == 1 else set())
    hidden |= set() if any(line["settings"] for line in lines) else {"settings"}
    hidden |= set() if cells else {"cell"}
    if all(line["consistent %"] == "—" for line in lines):
        hidden |= {"consistent %", "its p", "and right %"}
    title = [model, task]
    if len(counts) == 1:
        (items,) = counts
        title.append(count(int(items), "item") if items.isdigit() else f"{items} items")
    if len(strengths) == 1:
        title += [strength.strip() for strength in strengths]
        lines = [{**line, "method": _STRENGTH.sub("", line["method"])} for line in lines]
    return " · ".join(title), [{name: line[name] for name in line if name not in hidden} for line in lines]
