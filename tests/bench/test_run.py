"""A whole bench on tiny networks, as a person meets it; what fails, fails alone."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from softdlm.bench import builtin_tasks, run
from softdlm.bench.builtin_tasks import TaskSetting, measure_setting
from softdlm.bench.context import Bench, SuiteResult
from softdlm.bench.measure import TimeBudget
from softdlm.bench.shapes import SHAPES, build_model
from softdlm.bench.workload import Decode
from softdlm.cache import Dual
from softdlm.cli import main as cli
from tests.cli import test_main

CPU = torch.device("cpu")
SOURCE = str(Path(run.__file__).parents[2])


def bench(names: str, out: Path, **options: Any) -> dict[str, Any]:
    report = run.bench([SHAPES[name] for name in names.split()], CPU, torch.float32, out, **options)
    return {outcome.part: outcome for outcome in report.outcomes}


@pytest.mark.parametrize(
    ("shape", "only"),
    [("tiny-dream", ["identical", "whole", "caches"]), ("tiny-llada2", ["identical", "whole"])],
)
def test_parts_of_the_other_families(shape: str, only: list[str], tmp_path: Path) -> None:
    told: list[str] = []
    outcomes = bench(shape, tmp_path, only=only, say=told.append)
    assert {name: each.status for name, each in outcomes.items()} == dict.fromkeys(only, "measured")
    whole = {row["loop"]: row for row in outcomes["whole"].rows}
    assert len(whole) == 3
    for row in whole.values():
        assert row["tokens/s"] == pytest.approx(1e3 * 4 / row["ms a pass"])
        assert row["x floor"] == pytest.approx(row["ms a pass"] / row["floor, ms"])
    same = [row for row in outcomes["identical"].verdicts if row["measured"] == 100]
    assert len(same) == 1
    assert any(shape in text for text in told)


def test_the_command_on_a_tiny_shape(tmp_path: Path) -> None:
    done = test_main.run(
        "bench",
        "--shape",
        "tiny-llada",
        "--device",
        "cpu",
        "--out",
        str(tmp_path),
        OMP_NUM_THREADS="1",
        PYTHONPATH=SOURCE,
    )
    assert done.returncode == 0, done.stderr
    assert "dual-cache step" in done.stdout
    assert "USDT" not in done.stderr
    (file,) = tmp_path.glob("*.json")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-bench-cpu.json", file.name)
    content = json.loads(file.read_text())
    shape = SHAPES["tiny-llada"]
    assert {part["part"]: part["status"] for part in content["parts"]} == {
        part: "not here" if part in ("memory", "fp8") else "measured" for part in (*shape.suites, *shape.later)
    }
    (rows,) = (part["rows"] for part in content["parts"] if part["part"] == "refresh")
    settings = [(row["cache"], row["block"], row["renew"], row["tokens a step"]) for row in rows]
    dual = [("dual", block, renew, rate) for block, renew in ((16, 1), (32, 1), (16, 2)) for rate in (4, 8)]
    assert settings == [*dual, ("prefix", 16, 2, 4)]
    assert {"date", "device", "dtype", "torch", "threads", "engine", "load before"} <= set(content["conditions"])
    markdown = file.with_suffix(".md").read_text()
    for heading in (*shape.suites, *shape.later):
        assert f"## tiny-llada: {heading}\n" in markdown
    assert "Where the time goes" in markdown
    assert (tmp_path / file.name.replace(".json", "-tiny-llada-growth.svg")).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shape", "gpt-5"], "unknown shape 'gpt-5'; known are llada-8b"),
        (["--shape", "tiny-llada", "--only", "magic"], "unknown suite magic; these shapes have ceilings"),
        (["--shape", "tiny-llada", "--engine", "warp"], "engine must be one of auto, dynamic, static, compiled, not"),
        (["--shape", "tiny-llada", "--device", "cuda"], "sees no GPU"),
    ],
)
def test_usage_errors_are_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    monkeypatch.setattr("sys.argv", ["softdlm", "bench", *words, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in told
    assert len(told.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_part_that_fails_is_told_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(subject: Bench) -> SuiteResult:
        raise RuntimeError("no luck")

    monkeypatch.setitem(run.SUITES, "ceilings", broken)
    outcomes = bench("tiny-llada", tmp_path, only=["identical", "memory", "ceilings"])
    expected = {"ceilings": "failed", "memory": "not here", "identical": "measured"}
    assert {name: each.status for name, each in outcomes.items()} == expected
    assert "no luck" in outcomes["ceilings"].error
    assert "\nfailed: RuntimeError: no luck\n\n```\nTraceback" in next(tmp_path.glob("*.md")).read_text()


def test_the_command_ends_with_1_where_a_part_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    def broken(subject: Bench) -> SuiteResult:
        raise RuntimeError("no luck")

    monkeypatch.setitem(run.SUITES, "identical", broken)
    words = ["bench", "--shape", "tiny-llada", "--device", "cpu", "--only", "identical", "--out", str(tmp_path)]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 1
    assert "tiny-llada, identical: failed: RuntimeError: no luck" in done.stdout


def test_what_may_wait_comes_after_all_shapes() -> None:
    """So a budget that ends early leaves no shape without what is asked of it."""
    names = ["llada-8b", "dream-7b", "llada2-mini"]
    turns = run.schedule([SHAPES[name] for name in names], ())
    assert [shape.name for shape, _ in turns] == 2 * names
    assert all(set(suites) == set(SHAPES[shape.name].suites) for shape, suites in turns[:3])
    alone = run.schedule([SHAPES["llada-8b"]], ["growth", "fp8", "refresh"])
    assert [(shape.name, suites) for shape, suites in alone] == [("llada-8b", ["fp8", "refresh", "growth"])]
    two = run.schedule([SHAPES[name] for name in names[:2]], ["growth"])
    assert [(shape.name, suites) for shape, suites in two] == [(name, ["growth"]) for name in names[:2]]


def test_every_suite_belongs_to_a_shape() -> None:
    named = {suite for shape in SHAPES.values() for suite in (*shape.suites, *shape.later)}
    assert named == set(run.SUITES)


def test_time_that_is_over_is_told_for_every_part_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "build_model", lambda *_: pytest.fail("a network was built"))
    outcomes = bench("tiny-llada", tmp_path, only=["identical", "whole"], seconds=0)
    assert [each.status for each in outcomes.values()] == ["no time", "no time"]


def test_a_network_that_cannot_be_made_is_one_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(run, "build_model", fail)
    assert bench("tiny-llada tiny-dream", tmp_path)["network"].status == "failed"


def test_a_missed_target_is_profiled_over_a_few_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "device_name", lambda device: "NVIDIA H200")
    monkeypatch.setitem(SHAPES, "llada-8b", replace(SHAPES["tiny-llada"], name="llada-8b"))
    whole = bench("llada-8b", tmp_path, only=["whole"])["whole"]
    floor = next(row for row in whole.verdicts if row["unit"] == "x the floor")
    assert floor["verdict"].startswith("missed by")
    (profiled,) = whole.profiles
    assert profiled == "12 + 32 tokens, 4 a step, no cache, vanilla"
    assert run.few_passes(Decode(1024, 512, 4)) == Decode(1504, 32, 4)
    assert run.few_passes(Decode(1024, 512, 4, 32, Dual())) == Decode(1504, 32, 4, 32, Dual())


def test_problems_give_the_plain_loops_text(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Bench(SHAPES["builtin"], build_model(SHAPES["builtin"], CPU, torch.float32), "auto", TimeBudget(60))
    row = measure_setting(subject, TaskSetting("mini-math", 8, 32), 2)
    assert (row["problems"], row["same text"]) == (2, 2)
    assert row["passes"] <= row["plain passes"] == 8
    assert row["gain"] == pytest.approx(row["problems/s"] / row["plain problems/s"])
    monkeypatch.setattr(builtin_tasks, "SETTINGS", [TaskSetting("mini-math", 32, None)] * 2)
    monkeypatch.setattr(builtin_tasks, "BATCH", 1)
    subject.budget.seconds = 0
    found = builtin_tasks.problems(Bench(SHAPES["builtin"], subject.model, "auto", TimeBudget(0)))
    assert len(found.rows) == 1
    assert found.notes[0] == "The time budget ended before mini-math at 32 a step, whole canvas."
