"""A reading applies to an experiment exactly where it changes a hash: of a cell, or of an analysis' settings."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from softdlm.analysis.plans import Result as AnalysisResult
from softdlm.errors import UsageError
from softdlm.evaluate.cell import ModelSpec, TaskSpec
from softdlm.evaluate.executors import LocalExecutor
from softdlm.evaluate.grid import Finder, plans
from softdlm.evaluate.readings import READINGS, Readings
from softdlm.evaluate.summary import Result
from softdlm.records.canonical import digest
from softdlm.records.journal import Sample
from softdlm.reproduce import table6
from softdlm.reproduce.experiment import Experiment
from softdlm.reproduce.experiments import select
from softdlm.reproduce.measurements import Cells, Measurements
from softdlm.reproduce.reading_notes import applied, check_readings, other_score
from softdlm.reproduce.study import Study
from tests.conftest import BENCHMARKS
from tests.evaluate.harness_runs import folder
from tests.reproduce.made import study as made_study

pytestmark = pytest.mark.filterwarnings("ignore:generated code will run without a sandbox")
FAMILY = {"llada": "llada", "llada2": "llada2_moe", "dream": "Dream", "builtin": "llada"}
ON_BENCHMARKS = ("table1", "table3", "table5", "figure2", "table6")
"""Table 4 needs words of as many tokens as masks, which only the built-in tokenizer has."""
CASES = [
    (model, each.name, value)
    for model, family in FAMILY.items()
    for each in READINGS.values()
    if each.is_for(family) and (model != "builtin" or each.name in ("prompts", "chat-lead"))
    for value in each.values[1:]
]
FINDER, EXECUTOR = Finder(), LocalExecutor()


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 6 takes the first 2 of GSM8K's 3 made-up items."""
    monkeypatch.setattr(table6, "FIRST", 2)


def study_of(model: str, readings: Readings) -> Study:
    tasks = None if model == "builtin" else ["gsm8k", "math500", "humaneval"]
    return Study.of(
        folder(model), quick=True, device="cpu", tasks=tasks, max_new_tokens=8,
        data_dir=str(BENCHMARKS), allow_unsandboxed=True, readings=readings,
    )  # fmt: skip


def experiments_of(model: str) -> tuple[Experiment, ...]:
    return select(["table4"] if model == "builtin" else ON_BENCHMARKS)


@cache
def hashes(model: str, readings: Readings) -> dict[str, frozenset[str]]:
    """Of every experiment, whatever is measured: cells by their keys, analyses by their settings."""
    study = study_of(model, readings)
    return {each.name: frozenset(_hashes(study, each)) for each in experiments_of(model)}


def _hashes(study: Study, experiment: Experiment) -> Iterator[str]:
    for plan in plans(experiment.cells(study), FINDER) if experiment.cells else ():
        assert not plan.failures
        yield from (each.key for each in plan.cells)
    for _, plan in experiment.analysis.plans(study, EXECUTOR) if experiment.analysis else ():
        yield digest(json.loads(json.dumps(plan.settings)))


def before(name: str) -> dict[str, str]:
    """What a reading needs beside it to mean anything."""
    return {"prompts": "chat"} if name == "chat-lead" else {}


@pytest.mark.parametrize(("model", "name", "value"), CASES)
def test_every_reading_changes_a_hash_and_applies_exactly_there(model: str, name: str, value: str) -> None:
    base = Readings.of(before(name))
    changed = base.changed(name, value)
    old, new = hashes(model, base), hashes(model, changed)
    touched = {each for each in old if old[each] != new[each]}
    assert touched, "a reading that changes nothing"
    study = study_of(model, changed)
    with_it = {each.name: applied(study, each) for each in experiments_of(model)}
    if name != "dream":  # of three values, another pair may differ
        assert {each for each, found in with_it.items() if name in found} == touched
    assert touched <= {each for each, found in with_it.items() if found.get(name) == value}
    check_readings([study], experiments_of(model))


def test_a_reading_must_apply_to_one_experiment_of_one_study() -> None:
    llada, dream = (study_of(model, Readings.of(["dream=dream-greedy"])) for model in ("llada", "dream"))
    check_readings([llada, dream], select(["table2"]))
    for studies, what, reading in (
        ([llada], ["table2"], "dream=dream-greedy"),
        ([study_of("llada", Readings.of(["figure2-rate=4"]))], ["table2"], "figure2-rate=4"),
        ([study_of("llada", Readings.of(["chat-lead=space"]))], ["table1"], "chat-lead=space"),
        ([study_of("dream", Readings.of(["adaptive=tempered"]))], ["table2"], "adaptive=tempered"),
        ([study_of("dream", Readings.of(["dream=dream-greedy", "adaptive=tempered"]))], ["table6"], "adaptive=temp"),
        ([made_study(readings=Readings.of(["math500=math-verify"]))], ["table2"], "math500=math-verify"),
    ):
        with pytest.raises(UsageError, match=f"reading {reading}.* changes nothing here"):
            check_readings(studies, select(what))


def notes(study: Study, name: str) -> list[str]:
    (experiment,) = select([name])
    empty = Measurements(study, {name: Cells([])}, {"mixtures": [AnalysisResult({"qualify": 0, "of": 0}, {}, [], [])]})
    return [line for table in experiment.section(empty).tables for line in table.notes]


def test_tables_say_which_readings_apply_to_them() -> None:
    dream = replace(
        Study(ModelSpec("a/b", "cpu", "float32"), "Dream", ("gsm8k", "math500")),
        readings=Readings.of(["adaptive=tempered"]),
    )
    assert "Readings: dream=dream-dllm, math500=exact-match." in notes(dream, "table2")
    assert "Readings: dream=dream-dllm, adaptive=tempered, table6-items=first-500." in notes(dream, "table6")
    assert "Readings: prompts=raw." in notes(dream, "table1")
    assert not [line for line in notes(made_study(), "table2") if "Readings" in line], "nothing is open there"
    assert dream.record()["readings"]["adaptive"] == "tempered"


def math_cell(headline: str, *verdicts: tuple[bool, bool]) -> Result:
    """Exact match and Math-Verify of each item."""
    extra = [{"exact_match": exact, "math_verify": verified} for exact, verified in verdicts]
    samples = {
        str(number): Sample(str(number), "", "", "", 1, 1, 0.0, "eos", each[headline], "", each)
        for number, each in enumerate(extra)
    }
    labels = {"model": "m", "task": TaskSpec("math500").name, "method": "vanilla", "rate": "2 a step"}
    return Result(Path("x"), labels, {"task": {"headline": headline}}, samples, True)


def test_math500_shows_both_scores_with_the_headline_first() -> None:
    verdicts = [(True, True), (False, True), (False, True), (False, False)]
    (line,) = other_score([math_cell("exact_match", *verdicts)])
    assert line == "MATH-500 by exact match / Math-Verify, %: vanilla, 2 a step: 25.0 / 75.0."
    (line,) = other_score([math_cell("math_verify", *verdicts)])
    assert line == "MATH-500 by Math-Verify / exact match, %: vanilla, 2 a step: 75.0 / 25.0."
    assert other_score([]) == ()
