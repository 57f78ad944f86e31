"""The files of a bench: JSON with every number, Markdown for readers, and a figure of how time grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from softdlm.bench.targets import TARGETS
from softdlm.errors import UsageError
from softdlm.records.files import ready_folder, write_json, write_text
from softdlm.report.figures import Lines, growth_curves
from softdlm.report.row_tables import markdown
from softdlm.report.words import rounded

Status = Literal["measured", "failed", "not here", "no time"]


@dataclass
class SuiteOutcome:
    """What one suite measured on one shape, as it is written to JSON."""

    shape: str
    part: str
    """Name of the suite."""
    status: Status
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    profiles: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: str | None = None


def verdict_row(target: str, value: float, shape: str, device: str) -> dict[str, Any]:
    """A measured value beside its target, and the verdict if the target applies to this shape and device."""
    wanted = TARGETS[target]
    applies = wanted.applies_to(shape, device)
    return {
        "what": wanted.what,
        "measured": value,
        "unit": wanted.unit,
        "asked": str(wanted) if applies else None,
        "verdict": wanted.verdict(value) if applies else None,
    }


@dataclass
class BenchReport:
    """Written again after every suite, so that an interrupted run keeps what it measured."""

    stem: Path
    conditions: dict[str, Any]
    outcomes: list[SuiteOutcome] = field(default_factory=list)

    @property
    def markdown_file(self) -> Path:
        return self.stem.with_suffix(".md")

    def add(self, outcome: SuiteOutcome) -> None:
        self.outcomes.append(outcome)
        self.write()

    def write(self) -> None:
        ready_folder(self.stem.parent)
        notes = self._draw()
        content = {"conditions": self.conditions, "parts": [asdict(outcome) for outcome in self.outcomes]}
        write_json(self.stem.with_suffix(".json"), rounded(content))
        write_text(self.markdown_file, self.markdown() + "".join(f"\n{note}\n" for note in notes))

    def verdicts(self) -> list[dict[str, str]]:
        """Verdicts for readers: the value with its unit, a dash where no target applies to the shape and device."""
        return [
            {"shape": each.shape, "what": row["what"], "measured": f"{_words(row['measured'])} {row['unit']}".rstrip()}
            | legible({"target": row["asked"], "verdict": row["verdict"]})
            for each in self.outcomes
            for row in each.verdicts
        ]

    def _draw(self) -> list[str]:
        """Draw the figures; returns the lines of Markdown that show them."""
        lines = []
        for outcome in self.outcomes:
            if outcome.part == "growth" and outcome.rows:
                file = self.stem.with_name(f"{self.stem.name}-{outcome.shape}-growth.svg")
                try:
                    growth_curves(growth_panels(outcome.rows), file, title=outcome.shape)
                    lines.append(f"![time of a pass against size, {outcome.shape}]({file.name})")
                except UsageError as error:
                    lines.append(f"The growth figure of {outcome.shape} was not drawn: {error}")
        return lines

    def markdown(self) -> str:
        text = [f"# softdlm bench, {self.conditions['date']}, {self.conditions['device']}\n"]
        text.append(markdown([{"condition": name, "value": value} for name, value in self.conditions.items()]))
        if verdicts := self.verdicts():
            text += ["## Targets and measurements\n", markdown(verdicts)]
        text += [section(outcome) for outcome in self.outcomes]
        return "\n".join(text)


def section(outcome: SuiteOutcome) -> str:
    lines = [f"## {outcome.shape}: {outcome.part}\n"]
    if outcome.status != "measured":
        first, *trace = (outcome.error or "").splitlines()
        lines.append(f"{outcome.status}: {first}\n")
        lines += ["```", *trace, "```\n"] if trace else []
    if outcome.rows:
        names = list(dict.fromkeys(name for row in outcome.rows for name in row))
        lines.append(markdown([legible({name: row.get(name) for name in names}) for row in outcome.rows]))
    for name, rows in outcome.profiles.items():
        lines += [f"Where the time goes, {name}:\n", markdown([legible(row) for row in rows])]
    return "\n".join([*lines, *(f"{note}\n" for note in outcome.notes), f"{outcome.seconds:.1f} s.\n"])


def growth_panels(rows: Sequence[Mapping[str, Any]]) -> dict[str, Lines]:
    """Axis -> the curves of measured time and floor against size."""
    panels: dict[str, Lines] = {}
    for axis in dict.fromkeys(row["axis"] for row in rows):
        mine = [row for row in rows if row["axis"] == axis]
        panels[axis] = {
            name: [(row["size"], row[column]) for row in mine]
            for name, column in {"step": "ms a pass", "floor": "floor, ms"}.items()
        }
    return panels


def legible(row: Mapping[str, Any]) -> dict[str, str]:
    """Numbers with three or four digits, a dash for None."""
    return {name: _words(value) for name, value in row.items()}


def _words(value: Any) -> str:
    if value is None:
        return "—"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def free_stem(folder: Path, name: str) -> Path:
    """A file name that is not taken yet: a run never overwrites another."""
    numbers = [name, *(f"{name}-{number}" for number in range(2, 1000))]
    return next(folder / each for each in numbers if not (folder / f"{each}.json").exists())
