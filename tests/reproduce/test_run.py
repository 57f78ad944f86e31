"""Measuring: what fails costs itself only, and what is not finished is not shown."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from softdlm.evaluate.executors import LocalExecutor
from softdlm.evaluate.grid import Plan, plans
from softdlm.evaluate.readings import Readings
from softdlm.evaluate.run import run as run_plan
from softdlm.records.journal import Journal
from softdlm.report.progress import Screen
from softdlm.reproduce import run, table1
from softdlm.reproduce.analyses import SOFT, Analysis, on_tasks
from softdlm.reproduce.experiments import select
from softdlm.reproduce.study import QUICK, Study
from tests.evaluate.cells import Scripted, sample
from tests.tokenizers import checkpoint

RunCells = Callable[[Plan, Path, LocalExecutor], list[str]]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = checkpoint(tmp_path_factory.mktemp("run") / "llada", "llada")
    made = Study.of(str(folder), quick=True, limit=3, tasks=["mini-math"], device="cpu", max_new_tokens=8)
    assert made.scale.mark.startswith(QUICK.mark)
    return made


def scripted(**script: Any) -> RunCells:
    """Cells answered without a model."""

    def answer(plan: Plan, out: Path, _: LocalExecutor) -> list[str]:
        failures = run_plan(plan, out, Scripted(**script))
        return [failure.reason for failure in failures.values()]

    return answer


def test_a_method_that_breaks_costs_its_own_cells(study: Study, tmp_path: Path) -> None:
    experiments = select(["table2"])
    measured, failed = run.collect(study, experiments, tmp_path, scripted(broken=("slerp",)), Screen())
    report = run.conclude([measured], experiments, failed)
    assert failed == ["it broke"] * 3
    (section,) = report.sections
    assert section.measured == "6 of 9 cells"
    assert "3 unfinished cells" in section.not_measured
    for row in section.tables[0].rows:
        assert [cell.value for cell in row.cells] == [100.0, 100.0, None]
    assert {found.verdict for found in report.findings} == {"not measured"}


def test_an_analysis_that_runs_out_of_memory_costs_itself_only(study: Study, tmp_path: Path) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("full")

    first, second = select(["table1", "table4"])
    experiments = (replace(first, analysis=Analysis("mixtures", full)), second)
    measured, failed = run.collect(study, experiments, tmp_path, scripted(), Screen())
    assert failed == ["mixtures: out of memory on the device: take a smaller --batch-size"]
    mixed, compared = run.conclude([measured], experiments, failed).sections
    assert mixed.measured == "nothing"
    assert "smaller --batch-size" in mixed.not_measured
    assert compared.measured == "0 prompts"


def test_other_settings_never_meet_old_rows(study: Study, tmp_path: Path) -> None:
    one = replace(study, scale=study.scale.capped(1))
    executor, mixtures = LocalExecutor(), table1.EXPERIMENT.analysis
    assert mixtures is not None
    for chat in (False, True, False):
        (result,) = run.analyse(
            mixtures,
            replace(one, readings=Readings.of({"prompts": "chat" if chat else "raw"})),
            executor,
            tmp_path,
            Screen(),
        )
        assert (result.settings["chat"], len(result.rows)) == (chat, 1)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_an_analysis_decodes_as_the_accuracy_tables_do(family: str, tmp_path: Path) -> None:
    study = Study.of(str(checkpoint(tmp_path / family, family)), limit=2, tasks=["mini-math"], device="cpu")
    make = Mock()
    analysis = on_tasks("geometry", make, ("gsm8k",), SOFT, None, ("slerp", "topn(2)"))
    assert [task for task, _ in analysis.plans(study, LocalExecutor())] == ["mini-math"]
    _, questions, _, decoding = make.call_args.args
    (plan,) = plans(study.grids(["mini-math"], ["slerp"], ["topn(2)"]))
    assert [decoding] == [each.cell.decoding for each in plan.cells]
    assert (decoding.temperature, decoding.top_p) == {"llada": (0.0, None), "dream": (0.1, 0.9)}[family]
    assert [(each.item, each.max_new_tokens) for each in questions] == [
        (item, decoding.max_new_tokens) for item in plan.cells[0].items
    ]


def test_an_unfinished_cell_is_not_shown(study: Study, tmp_path: Path) -> None:
    def half(plan: Plan, out: Path, _: LocalExecutor) -> list[str]:
        for planned in plan.cells:
            with Journal(out / planned.key, planned.protocol, planned.cell.labels) as journal:
                journal.begin({"pid": 1, "host": "here", "started": "now"})
                journal.append(sample(planned.items[0]))
        return []

    measured, _ = run.collect(study, select(["table2"]), tmp_path, half, Screen())
    assert measured.cells["table2"].results == []


def test_the_protocol_and_the_work_are_in_the_report(study: Study, tmp_path: Path) -> None:
    experiments = select(["table7", "table2"])
    measured, failed = run.collect(study, experiments, tmp_path, scripted(wrong=()), Screen())
    report = run.conclude([measured], experiments, failed)
    assert report.protocol["cells"] == 10  # each once, though both tables show nine of them
    assert report.protocol["sample_passes"] == 10 * 3 * 4
    assert report.protocol["study"]["strength"] == {"mini-math": {"k": 3, "lam": 0.3}}
    assert report.protocol["decoding"]["mini-math, 3 items"]["max_new_tokens"] == 8
    assert "torch" in report.protocol["versions"]
    assert "its numbers beside ours are of LLaDA" in report.lead
    run.write_data(report, [measured], tmp_path, "report")
    assert sorted(file.name for file in (tmp_path / "data").iterdir()) == ["cells.json", "report.json"]
