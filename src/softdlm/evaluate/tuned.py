"""What a race of settings found: its rows, its words, its figure, and the settings file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from softdlm.decoding import Decoding
from softdlm.errors import SoftDLMError
from softdlm.evaluate.cell import method_label
from softdlm.evaluate.metrics import Share, mcnemar
from softdlm.evaluate.race import frontier
from softdlm.evaluate.racing import NO_ROOM, Race, Runner
from softdlm.evaluate.run import versions
from softdlm.models.own_settings import VERSION, OwnSettings
from softdlm.records.journal import Sample
from softdlm.registry import spell
from softdlm.report.figures import Point
from softdlm.report.row_tables import markdown, table
from softdlm.report.words import count, rounded
from softdlm.tasks.consistency import CONSISTENT
from softdlm.version import __version__

Row = dict[str, Any]
FLATTERED = "The accuracy of the chosen setting is flattered, because it was chosen on these items."


@dataclass(frozen=True)
class Tuned:
    """The result of `softdlm.tune`; printing it shows the table of `softdlm tune`."""

    rows: tuple[Row, ...]
    """One dictionary per setting: the reference, those that stayed, then those that did not, with the reason."""
    chosen: Decoding | None
    """None where no setting meets the goal."""
    settings: Path | None
    """The settings file; None where there is nothing to write."""
    about: Mapping[str, Any]
    """Model, task, split, items, goal, budget and passes used."""
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        about = self.about
        return (
            f"{about['model']} · {about['task']}, {about['split']} · {count(about['items'], 'item')} · {about['goal']}"
        )

    @property
    def finalists(self) -> list[Row]:
        return [row for row in self.rows if not row["out"]]

    @property
    def failed(self) -> list[str]:
        return [row["out"] for row in self.rows if row["out"].startswith("failed")]

    @property
    def shown(self) -> list[dict[str, str]]:
        """The settings that stayed, as a terminal shows them: both rules in one column, one below the other."""
        return [{"setting": f"{row['feedback']}\n{row['commit']}", **words(row, 2)} for row in self.finalists]

    def __str__(self) -> str:
        return "\n".join([table(self.shown, 100, self.title).plain, *self.notes])

    def markdown(self) -> str:
        """Every setting, and why it is no longer in the race."""
        lines = [{**words(row), "items": str(row["items"]), "why not": row["out"] or "—"} for row in self.rows]
        return "\n".join([f"**{self.title}**", "", markdown(lines), *(f"- {note}" for note in self.notes), ""])

    def record(self) -> dict[str, Any]:
        return {
            **self.about,
            "chosen": None if self.chosen is None else self.chosen.to_json(),
            "settings": None if self.settings is None else str(self.settings),
            "rows": list(self.rows),
            "notes": list(self.notes),
        }

    def panels(self) -> tuple[dict[str, dict[str, list[Point]]], list[Point]]:
        """What `frontiers` draws: points by feedback rule, and the level of the reference, for each kind of share."""
        rows, about = self.finalists, self.about
        kinds = {"accuracy": f"{about['task']}: right answers\n({about['model']}, {count(about['items'], 'item')})"}
        if all(row["consistency"] is not None for row in rows):
            kinds["consistency"] = "consistent answers\n(equations true, names defined)"
        panels = {title: _series(rows, kind) for kind, title in kinds.items()}
        (reference,) = (row for row in rows if row["is_reference"])
        return panels, [_point(reference, kind) for kind in kinds]


def words(row: Row, start: int = 0) -> dict[str, str]:
    """A row as a person reads it, from a column on."""
    passes, share, p = row["passes"], row["consistency"], row["p"]
    accuracy = "—" if passes is None else "{:.1f} [{:.0f}, {:.0f}]".format(row["accuracy"], *row["interval"])
    found = {
        "feedback": row["feedback"],
        "commit": row["commit"],
        "passes": "—" if passes is None else f"{passes:.1f}",
        "accuracy %": accuracy,
        "consistent %": "—" if share is None else f"{share:.1f}",
        "p": "—" if p is None else f"{p:.2g}",
        "note": row["note"],
    }
    return dict(list(found.items())[start:])


def conclude(race: Race, about: Mapping[str, Any], notes: Sequence[str], file: Path) -> Tuned:
    """The rows of a race that has ended, and what its settings file is to hold."""
    choice, size = race.choice(), race.size
    front = set(frontier([*race.finalists(), race.reference.track(size)]))
    runners = [race.reference, *race.others]
    rows = [_row(each, race, front, None if choice is None else choice.name) for each in runners]
    rows.sort(key=_order)
    chosen = next((each.planned.cell.decoding for each in runners if choice and each.name == choice.name), None)
    cost = {
        "items": size,
        "goal": str(race.goal),
        "budget": race.budget,
        "used": race.used,
        "settings_tried": len(rows),
    }
    said = [*notes, race.ended] if race.ended else [*notes]
    said += _out_notes([row["out"] for row in rows], file.parent / "table.md")
    said.append("No setting keeps to the number of passes." if chosen is None else FLATTERED)
    if chosen is not None and not can_be_stated(chosen):
        said.append("A settings file cannot name the chosen rules, which are programs of your own: give them yourself.")
    written = file if chosen is not None and can_be_stated(chosen) else None
    return Tuned(tuple(rows), chosen, written, {**about, **cost}, tuple(said))


def _order(row: Row) -> tuple[Any, ...]:
    """The reference, those still in the race by passes, then the others by how far they came."""
    return bool(row["out"]), not row["is_reference"], -row["items"], row["passes"] or 0, row["feedback"], row["commit"]


def _out_notes(reasons: Sequence[str], table: Path) -> list[str]:
    """How many settings are out, and how many of them for want of budget."""
    gone, unbegun = sum(map(bool, reasons)), sum(each.startswith(NO_ROOM) for each in reasons)
    cost = f", {unbegun} of them because the budget had no room" if unbegun else ""
    return [f"{gone} of {len(reasons)} settings left the race{cost}; {table} says why."] if gone else []


def _row(runner: Runner, race: Race, front: set[str], chosen: str | None) -> Row:
    """A setting on the items that all finalists have; one that is out, on those it was decoded on."""
    samples = runner.samples if runner.out else runner.samples[: race.size]
    commit, feedback = runner.planned.cell.decoding.rules
    is_reference = runner is race.reference
    right = [each.correct for each in samples]
    base = [each.correct for each in race.reference.samples[: len(samples)]]
    marks = {"reference": is_reference, "chosen": runner.name == chosen, "frontier": runner.name in front}
    share = Share.of(right) if right else None
    return {
        "feedback": spell(feedback),
        "commit": spell(commit),
        "method": method_label(runner.planned.cell.decoding),
        "items": len(samples),
        "passes": fmean(each.forwards for each in samples) if samples else None,
        "accuracy": None if share is None else share.percent,
        "interval": None if share is None else [share.low, share.high],
        **_consistency(samples),
        "p": None if is_reference or not right else mcnemar(base, right),
        "note": ", ".join(mark for mark, there in marks.items() if there and not runner.out),
        "out": runner.out,
        "is_reference": is_reference,
        "cell": runner.planned.key,
    }


def _consistency(samples: Sequence[Sample]) -> Row:
    found = [each.extra.get(CONSISTENT) for each in samples]
    share = None if None in found or not found else Share.of([bool(each) for each in found])
    interval = None if share is None else [share.low, share.high]
    return {"consistency": None if share is None else share.percent, "consistency_interval": interval}


def _series(rows: Sequence[Row], kind: str) -> dict[str, list[Point]]:
    series: dict[str, list[Point]] = {}
    for row in rows:
        method, _, strength = row["method"].partition(" ")
        series.setdefault(f"{method}, {strength}" if strength else method, []).append(_point(row, kind))
    chosen = [_point(row, kind) for row in rows if "chosen" in row["note"]]
    return series | ({"chosen": chosen} if chosen else {})


def _point(row: Row, kind: str) -> Point:
    return Point(row["passes"], row[kind], *row["interval" if kind == "accuracy" else f"{kind}_interval"])


def stated(chosen: Decoding) -> dict[str, Any]:
    """What a settings file says of a Decoding: nothing in it is left to fill."""
    commit, feedback = (spell(rule, full=True) for rule in chosen.rules)
    return {"feedback": feedback, "commit": commit, "max_new_tokens": chosen.max_new_tokens}


def can_be_stated(chosen: Decoding) -> bool:
    """Whether a settings file gives these rules back: those in a user's file, or given as values, it may not."""
    try:
        return Decoding().settled(OwnSettings.read(stated(chosen))).rules == chosen.rules
    except SoftDLMError:
        return False


def settings_file(tuned: Tuned, race: Race, given: Decoding) -> dict[str, Any]:
    """The whole settings file: the chosen rules, and how they were found."""
    assert tuned.chosen is not None
    measured = ("accuracy", "interval", "passes", "consistency", "items")
    named = {"chosen": "chosen", "reference": "reference"}
    rows = {name: next(row for row in tuned.rows if mark in row["note"]) for name, mark in named.items()}
    made = {
        **tuned.about,
        "alpha": race.alpha,
        "weights": dict(race.reference.planned.protocol["model"]),
        "options": given.to_json(),
        **{name: {key: row[key] for key in measured} for name, row in rows.items()},
        "notes": list(tuned.notes),
        "versions": {"softdlm": __version__, **versions()},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return {"softdlm_settings": VERSION, "decoding": stated(tuned.chosen), "made": rounded(made)}
