"""Which readings of the paper apply to an experiment, and what its tables say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from softdlm.evaluate.metrics import Share
from softdlm.evaluate.paper import benchmark
from softdlm.evaluate.readings import READINGS, Readings, note
from softdlm.evaluate.summary import Result
from softdlm.report.table import Table
from softdlm.reproduce.study import Study

if TYPE_CHECKING:
    from softdlm.reproduce.experiment import Experiment
    from softdlm.reproduce.measurements import Measurements

SCORES = {"exact-match": "exact match", "math-verify": "Math-Verify"}
"""The scores of MATH-500 in words, by the value of the reading `math500`."""


def applied(study: Study, experiment: Experiment) -> dict[str, str]:
    """The readings of which another value would measure something else."""

    def make(readings: Readings) -> list[Any]:
        read = replace(study, readings=readings)
        grids = experiment.cells(read) if experiment.cells else []
        cells = [each for grid in grids for each in grid.outline(study.family, study.own)]
        return [cells, experiment.analysis.choices(read) if experiment.analysis else None]

    return study.readings.applied(study.family, make, ("answers", "task", "reproduce"))


def check_readings(studies: Sequence[Study], experiments: Sequence[Experiment]) -> None:
    """Refuse a reading that was given and applies to no experiment of any study."""
    for readings in {study.readings for study in studies}:
        same = [study for study in studies if study.readings == readings]
        used = (
            {name for study in same for each in experiments for name in applied(study, each)} if readings.given else ()
        )
        readings.check_used(used)


def noted(made: Sequence[Table], measured: Measurements, experiment: Experiment) -> tuple[Table, ...]:
    """Tables with a note on the readings that apply to them, and MATH-500's other score where it was measured."""
    found = measured.cells.get(experiment.name)
    notes = (*note(applied(measured.study, experiment)), *other_score(found.results if found else ()))
    printed = measured.study.printed
    of = "paper" if printed.same else f"paper's {printed.model}"
    return tuple(replace(each, notes=(*each.notes, *notes), paper_of=of) for each in made)


def other_score(results: Sequence[Result]) -> tuple[str, ...]:
    """The accuracies of MATH-500's cells by both scores, the headline first."""
    cells = [each for each in results if benchmark(each.labels["task"]) == "math500"]
    if not cells:
        return ()
    headline = str(cells[0].protocol["task"].get("headline", "")).replace("_", "-")
    order = sorted(READINGS["math500"].values, key=lambda value: value != headline)
    names = " / ".join(SCORES[value] for value in order)
    lines = [f"{each.labels['method']}, {each.labels['rate']}: {_both(each, order)}" for each in cells]
    return (f"MATH-500 by {names}, %: {'; '.join(lines)}.",)


def _both(result: Result, order: Sequence[str]) -> str:
    samples = list(result.samples.values())
    verdicts = [[bool(each.extra[value.replace("-", "_")]) for each in samples] for value in order]
    return " / ".join(f"{Share.of(each).percent:.1f}" for each in verdicts)
