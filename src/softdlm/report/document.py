"""A report as a value: sections with tables and drawings, findings, protocol. It goes to JSON and back whole."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from softdlm.errors import UsageError
from softdlm.records.files import parse_json, read_bytes
from softdlm.records.rebuild import rebuild
from softdlm.report.figures import Point, curves, frontiers, shares
from softdlm.report.table import Table

VERSION = 1
DRAWS = {"curves": curves, "frontiers": frontiers, "shares": shares}
Verdict = Literal["holds", "does not hold", "undecided", "not measured"]


@dataclass(frozen=True)
class Drawing:
    """A figure as the numbers it shows: the name of a function of softdlm.report.figures and its arguments."""

    name: str
    caption: str
    kind: Literal["curves", "frontiers", "shares"]
    arguments: dict[str, Any]

    def draw(self, file: Path, mark: str = "") -> None:
        shown = dict(self.arguments)
        if self.kind in ("curves", "frontiers"):
            shown["panels"] = {title: _series(series) for title, series in shown["panels"].items()}
        if shown.get("held") is not None:
            shown["held"] = _point(shown["held"]) if self.kind == "curves" else [_point(each) for each in shown["held"]]
        DRAWS[self.kind](file=file, mark=mark, **shown)


def _series(series: dict[str, Any]) -> dict[str, list[Point]]:
    return {name: [Point(*point) for point in points] for name, points in series.items()}


def _point(value: Any) -> Point | None:
    return None if value is None else Point(*value)


@dataclass(frozen=True)
class Section:
    """One experiment."""

    name: str
    title: str
    about: str
    """A sentence on what is measured, and where in the paper."""
    tables: tuple[Table, ...]
    drawings: tuple[Drawing, ...]
    measured: str
    """A line on what was measured."""
    not_measured: str
    """And on what was not."""


@dataclass(frozen=True)
class Finding:
    claim: str
    where: str
    """The table or figure it is from."""
    scope: str
    """The task, or what else it was decided on."""
    verdict: Verdict
    evidence: str
    strength: str = ""
    """k and lambda of the soft tokens that it was decided with."""


@dataclass(frozen=True)
class Report:
    title: str
    lead: str
    """A few sentences on what was measured, when, and whose numbers the paper's are."""
    mark: str
    """Said on every output, such as that the run was quick; empty for a full one."""
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]
    protocol: dict[str, Any]
    """Every setting, the versions and the machine."""
    failed: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        return {"softdlm_report": VERSION, **asdict(self)}

    @staticmethod
    def read(file: Path) -> Report:
        """The report in a JSON file, which may be compressed (.gz); figures and page can be made of it again."""
        try:
            data = read_bytes(file)
            record = parse_json(gzip.decompress(data) if file.suffix == ".gz" else data)
            version = record.pop("softdlm_report", None) if isinstance(record, dict) else None
            report = rebuild(Report, record) if version == VERSION else None
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise UsageError(f"{file} cannot be read: {error}") from error
        if report is None:
            raise UsageError(f"{file} is not a report that this softdlm reproduce wrote")
        return report
