"""What a reader finds: verdicts with their size, tables, a figure; nothing is overwritten."""

import json
import re
from pathlib import Path

import pytest

import softdlm.bench
from softdlm.bench.growth import exponent
from softdlm.bench.report import BenchReport, SuiteOutcome, free_stem, growth_panels, verdict_row
from softdlm.bench.targets import TARGETS, Target

GPU = "NVIDIA H200"


@pytest.mark.parametrize(
    ("target", "value", "verdict"),
    [
        (Target("", 400, at_least=True), 400, "met"),
        (Target("", 400, at_least=True), 300, "missed by 25 %"),
        (Target("", 1.35), 1.35, "met"),
        (Target("", 1.35), 2.7, "missed by 100 %"),
        (Target("", 1), -0.2, "met"),
    ],
)
def test_a_verdict_says_by_how_much(target: Target, value: float, verdict: str) -> None:
    assert target.verdict(value) == verdict


def test_targets_speak_of_their_shapes_and_machines_only() -> None:
    assert verdict_row("dual first", 300.0, "llada-8b", GPU)["verdict"] == "missed by 25 %"
    assert verdict_row("dual first", 300.0, "llada-8b", GPU)["asked"] == "at least 400 tokens/s"
    assert verdict_row("dual first", 300.0, "llada-8b", "NVIDIA L4")["verdict"] is None
    assert verdict_row("dual first", 300.0, "dream-7b", GPU)["verdict"] is None
    assert verdict_row("whole floor", 1.2, "dream-7b", "NVIDIA L4")["verdict"] == "met"
    assert verdict_row("whole floor", 1.2, "llada-8b", "cpu")["verdict"] is None
    assert verdict_row("whole step", 15.4, "llada2-mini", GPU)["verdict"] == "missed by 10 %"


def rows(power: float) -> list[dict[str, float]]:
    return [{"size": x, "attention floor, ms": x * x, "ms a pass": x * x + 3 * x**power} for x in (1.0, 2.0, 8.0)]


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_growth_is_a_power_once_attention_is_taken_off(power: float) -> None:
    assert exponent(rows(power)) == pytest.approx(power)


def test_a_report_holds_every_part_and_is_written_after_each(tmp_path: Path) -> None:
    report = BenchReport(tmp_path / "deep" / "bench", {"date": "2026-11-15", "device": "cpu"})
    steps = [
        {"axis": axis, "size": size, "ms a pass": 2.5 * size, "floor, ms": 1.0 * size}
        for axis in ("canvas length", "batch")
        for size in (1, 2, 4)
    ]
    verdict = verdict_row("whole floor", 1.23456789, "llada-8b", GPU)
    profiles = {"a decode": [{"where": "attention", "ms": 1.0, "share, %": 12345.6}]}
    report.add(
        SuiteOutcome("llada-8b", "whole", "measured", 1.0, [{"x": 0.123456, "y": None}], [verdict], profiles, ["A."])
    )
    first = (tmp_path / "deep" / "bench.md").read_text()
    report.add(SuiteOutcome("llada-8b", "growth", "measured", 1.0, steps))
    report.add(SuiteOutcome("llada-8b", "caches", "failed", error="RuntimeError: broken"))
    text = (tmp_path / "deep" / "bench.md").read_text()
    assert "whole" in first
    assert "growth" not in first
    assert "| llada-8b | whole-canvas step, no cache | 1.23 x the floor | at most 1.3 x the floor | met |" in text
    assert "| 0.123 | — |" in text
    assert "| attention | 1 | 12346 |" in text
    assert "failed: RuntimeError: broken" in text
    assert "(bench-llada-8b-growth.svg)" in text
    assert (tmp_path / "deep" / "bench-llada-8b-growth.svg").read_text().count("<svg") == 1
    parts = json.loads((tmp_path / "deep" / "bench.json").read_text())["parts"]
    assert [part["status"] for part in parts] == ["measured", "measured", "failed"]
    assert parts[0]["verdicts"][0]["measured"] == 1.23457


def test_a_figure_that_cannot_be_drawn_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    report = BenchReport(tmp_path / "bench", {"date": "2026-11-15", "device": "cpu"})
    row = {"axis": "batch", "size": 1, "ms a pass": 1.0, "floor, ms": 1.0}
    report.add(SuiteOutcome("builtin", "growth", "measured", 1.0, [row]))
    assert "was not drawn" in (tmp_path / "bench.md").read_text()
    assert "softdlm[plots]" in (tmp_path / "bench.md").read_text()


def test_panels_hold_step_and_floor() -> None:
    seen = growth_panels([{"axis": "batch", "size": 4, "ms a pass": 3.0, "floor, ms": 2.0}])
    assert seen == {"batch": {"step": [(4, 3.0)], "floor": [(4, 2.0)]}}


def test_a_run_never_overwrites_another(tmp_path: Path) -> None:
    assert free_stem(tmp_path, "bench").name == "bench"
    (tmp_path / "bench.json").touch()
    (tmp_path / "bench-2.json").touch()
    assert free_stem(tmp_path, "bench").name == "bench-3"


def test_every_target_is_measured_by_some_part() -> None:
    """The suites are the files that import Check to make one."""
    files = [file.read_text() for file in Path(softdlm.bench.__file__).parent.glob("*.py")]
    suites = [text for text in files if re.search(r"\bCheck\(", text) and "targets import Check" in text]
    assert len(suites) >= 2
    assert [name for name in TARGETS if not any(f'"{name}"' in text for text in suites)] == []
