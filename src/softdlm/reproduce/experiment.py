"""An experiment: one table or figure, with the cells or the analysis it needs, the paper's numbers, and its claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from softdlm.report.document import Drawing, Finding, Section
from softdlm.report.table import Table, join_models
from softdlm.reproduce.analyses import Analysis
from softdlm.reproduce.evidence import Decide, verdict
from softdlm.reproduce.leads import Lead, Wanted, judge, share_words
from softdlm.reproduce.measurements import Cells, Measurements
from softdlm.reproduce.reading_notes import noted
from softdlm.reproduce.study import Grids, Study, strength_words, task_title, titles

Strengths = Callable[[Measurements, str], str]
"""k and lambda that a claim was decided at, from the measurements and the scope of the finding."""


@dataclass(frozen=True)
class Claim:
    """A claim that is decided scope by scope, such as on each task."""

    words: str
    decide: Decide
    where: str = ""
    """What the claim is from; the experiment's own table or figure where empty."""

    def findings(self, where: str, every: Sequence[Measurements], strengths: Strengths) -> list[Finding]:
        """One finding for each scope; one that says "not measured" where there is none."""
        names, made = titles([each.study for each in every]), []
        for name, measured in zip(names, every, strict=True):
            for scope, signs in list(self.decide(measured)) or [("", [])]:
                place = ": ".join(part for part in (name * (len(every) > 1), scope) if part)
                evidence = "; ".join(each.words for each in signs) or "no data"
                strength = strengths(measured, scope)
                made.append(Finding(self.words, self.where or where, place, verdict(signs), evidence, strength))
        return made


@dataclass(frozen=True)
class ShareClaim:
    """A claim about all settings together: that a method leads in most of them, or in all."""

    words: str
    leads: Callable[[Measurements], Iterable[Lead]]
    wanted: Wanted = "most"
    where: str = ""
    paper: tuple[Lead, ...] = ()
    """The leads in the paper's own numbers, where it makes the claim."""

    def findings(self, where: str, every: Sequence[Measurements], strengths: Strengths) -> list[Finding]:
        found = [lead for measured in every for lead in self.leads(measured)]
        decided, evidence = judge(found, self.wanted)
        if self.paper:
            evidence += f"; in the paper {share_words(self.paper)}"
        models = f" of {len(every)} models" if len(every) > 1 else ""
        scope = f"{len(found)} setting{'s' * (len(found) != 1)}{models}"
        strength = "; ".join(dict.fromkeys(strengths(measured, "") for measured in every))
        return [Finding(self.words, self.where or where, scope, decided, evidence, strength)]


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    """The table or figure, a colon, and what it shows."""
    about: str
    tables: Callable[[Measurements], list[Table]]
    drawings: Callable[[Measurements], list[Drawing]] = lambda _: []
    cells: Callable[[Study], Grids] | None = None
    search: Callable[[Study], Grids] | None = None
    """Cells of a search for settings, measured first."""
    follow: Callable[[Study, Cells], Grids] | None = None
    """Cells with the settings that the search found."""
    analysis: Analysis | None = None
    claims: tuple[Claim | ShareClaim, ...] = ()
    benchmarks: tuple[str, ...] = ()
    """The benchmarks of the paper's table or figure."""
    paper: Mapping[str, Any] = field(default_factory=dict)
    """The numbers that the paper prints, by model."""
    models: tuple[str, ...] = ()
    """The models of the paper's table or figure, where it prints no numbers."""
    strength: str | None = None
    """k and lambda of the soft tokens in words; None where they are each task's own."""

    def section(self, *every: Measurements) -> Section:
        """Tables with a group of rows for each model, drawings of each."""
        names = titles([each.study for each in every])
        tables = join_models(
            {name: noted(self.tables(each), each, self) for name, each in zip(names, every, strict=True)}
        )
        several = len(every) > 1
        drawings = [
            replace(drawing, name=f"{drawing.name}-{number}", caption=f"{name}. {drawing.caption}")
            if several
            else drawing
            for number, (name, each) in enumerate(zip(names, every, strict=True), 1)
            for drawing in self.drawings(each)
        ]
        said = [_by_model(names, [line(each) for each in every]) for line in (self._measured, self._not_measured)]
        return Section(self.name, self.title, self.about, tuple(tables), tuple(drawings), *said)

    def findings(self, *every: Measurements) -> list[Finding]:
        where = self.title.partition(":")[0]
        return [found for claim in self.claims for found in claim.findings(where, every, self._strengths)]

    def _strengths(self, measured: Measurements, scope: str) -> str:
        """Of the task that a finding's scope names, else of all tasks of the experiment."""
        if self.strength is not None:
            return self.strength
        places = list(measured.study.places(*self.benchmarks))
        named = [task for task in places if task_title(task) == scope]
        return strength_words(measured.study, named or places) if places else ""

    def _measured(self, measured: Measurements) -> str:
        parts = []
        if self.name in measured.planned:
            parts.append(f"{len(measured.cells[self.name].results)} of {measured.planned[self.name]} cells")
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


def _by_model(names: Sequence[str], lines: Sequence[str]) -> str:
    """A line for all models, or one for each."""
    if len(set(lines)) == 1:
        return lines[0]
    return ". ".join(f"{name}: {line}" for name, line in zip(names, lines, strict=True))
