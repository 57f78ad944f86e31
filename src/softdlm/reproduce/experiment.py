"""An experiment: one table or figure, with the cells or the analysis it needs, the paper's numbers, and its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from softdlm.report.document import Drawing, Finding, Section
from softdlm.report.table import Table
from softdlm.reproduce.analyses import Analysis
from softdlm.reproduce.evidence import Decide, verdict
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.reading_notes import noted
from softdlm.reproduce.study import Grids, Study, task_title


@dataclass(frozen=True)
class Claim:
    words: str
    decide: Decide
    where: str = ""
    """What the claim is from; the experiment's own table or figure where empty."""


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    """The table or figure, a colon, and what it shows."""
    about: str
    tables: Callable[[Measurements], list[Table]]
    drawings: Callable[[Measurements], list[Drawing]] = lambda _: []
    cells: Callable[[Study], Grids] | None = None
    analysis: Analysis | None = None
    claims: tuple[Claim, ...] = ()
    benchmarks: tuple[str, ...] = ()
    """The benchmarks of the paper's table or figure."""
    paper: Mapping[str, Any] = field(default_factory=dict)
    """The numbers that the paper prints, by model."""
    models: tuple[str, ...] = ()
    """The models of the paper's table or figure, where it prints no numbers."""

    def section(self, measured: Measurements) -> Section:
        shown = noted(self.tables(measured), measured, self), tuple(self.drawings(measured))
        return Section(
            self.name, self.title, self.about, *shown, self._measured(measured), self._not_measured(measured)
        )

    def findings(self, measured: Measurements) -> list[Finding]:
        return [found for claim in self.claims for found in self._decided(claim, measured)]

    def _decided(self, claim: Claim, measured: Measurements) -> list[Finding]:
        """One finding for each scope of a claim; one that says "not measured" where there is none."""
        where = claim.where or self.title.partition(":")[0]
        return [
            Finding(claim.words, where, scope, verdict(signs), "; ".join(each.words for each in signs) or "no data")
            for scope, signs in list(claim.decide(measured)) or [("", [])]
        ]

    def _measured(self, measured: Measurements) -> str:
        parts = []
        if self.cells is not None:
            parts.append(f"{len(measured.cells[self.name].results)} of {measured.planned.get(self.name, 0)} cells")
        for result in measured.analyses.get(self.analysis.name, ()) if self.analysis else ():
            task = next((row.task for row in result.rows if hasattr(row, "task")), None)
            what = f"items of {task_title(task)}" if task else "prompts" if len(result.rows) != 1 else "prompt"
            parts.append(f"{len(result.rows)} {what}")
        return ", ".join(parts) or "nothing"

    def _not_measured(self, measured: Measurements) -> str:
        names = [self.name, *([self.analysis.name] if self.analysis else [])]
        missing = [line for name in names for line in measured.missing.get(name, ())]
        places = measured.study.places(*self.benchmarks)
        pairs = [(task, task_title(name)) for task, name in places.items() if task != name]
        stood_for = [f"{name} itself ({task} takes its place)" for task, name in pairs]
        left = [task_title(name) for name in self.benchmarks if name not in places.values()]
        printed = measured.study.printed
        others = [name for name in self.paper or self.models if not (printed.same and name == printed.model)]
        models = [f"the paper's model{'s' * (len(others) > 1)} {', '.join(others)}"] if others else []
        return "; ".join([*missing, *stood_for, *left, *models]) or "nothing"
