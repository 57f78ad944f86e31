"""Figures show the numbers they are given, in looks that stay the same from figure to figure."""

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from softdlm.errors import UsageError
from softdlm.report.figures import Point, curves, draw_reliability, draw_results, frontiers, growth_curves, shares

SERIES = {
    "vanilla": [Point(64, 96.0, 94.0, 97.0), Point(16, 89.0, 87.0, 91.0)],
    "slerp": [Point(16, 95.5, 94.5, 97.5)],
}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that was saved."""
    saved: list[Figure] = []
    save = Figure.savefig

    def keep(self: Figure, *args: Any, **kwargs: Any) -> None:
        saved.append(self)
        save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    return saved


def lines(figure: Figure, panel: int = 0) -> dict[str, Any]:
    return {str(bars.get_label()): bars for bars in figure.axes[panel].containers}


def test_points_stand_where_they_were_measured_with_their_intervals(tmp_path: Path, drawn: list[Figure]) -> None:
    held = [Point(64, 96.0, 94.0, 97.0)]
    frontiers({"": SERIES}, tmp_path / "deep" / "figure.png", ylabel="%", held=held)
    assert (tmp_path / "deep" / "figure.png").read_bytes().startswith(b"\x89PNG")
    line, _, (bars,) = lines(drawn[0])["vanilla"]
    assert [tuple(xy) for xy in line.get_xydata()] == [(16.0, 89.0), (64.0, 96.0)]
    (left, right), (bottom, top) = drawn[0].axes[0].get_xlim(), drawn[0].axes[0].get_ylim()
    assert left < 16 < 64 < right
    assert bottom < 87 < 97.5 < top
    low, high = bars.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((87.0, 91.0))
    band = drawn[0].axes[0].patches[0].get_extents().transformed(drawn[0].axes[0].transData.inverted())
    assert (band.y0, band.y1) == pytest.approx((94.0, 97.0))


def test_results_of_a_run_have_a_plain_title_and_a_legend_for_all_that_is_drawn(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    row = {"model": "builtin", "task": "mini-math", "items": 1, "interval": [94.0, 99.0], "accuracy": 97.0}
    single = row | {"method": "vanilla", "passes": 64.0, "is_single": True}
    rows = [single, row | {"method": "slerp k=3", "passes": 16.0, "is_single": False}]
    draw_results(rows, tmp_path / "a.svg")
    (axes,) = drawn[0].axes
    assert axes.get_title() == "mini-math: right answers\n(builtin, 1 item, k=3)"
    assert axes.get_xlabel() == "forward passes per answer"
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == [
        "vanilla, 1 token a step", "its 95 % interval", "vanilla", "SLERP",
    ]  # fmt: skip


@pytest.mark.parametrize("panels", [1, 2, 4])
def test_no_legend_is_wider_than_its_figure(tmp_path: Path, drawn: list[Figure], panels: int) -> None:
    named = {f"SLERP, entropy bound, variant {number}": SERIES["slerp"] for number in range(9)}
    frontiers({str(panel): named for panel in range(panels)}, tmp_path / "figure.png", ylabel="%")
    (legend,) = drawn[0].legends
    assert legend.get_window_extent().width <= drawn[0].bbox.width
    assert drawn[0].axes[0].get_window_extent().height > 0.5 * 3.6 * drawn[0].dpi


def test_a_rule_around_a_rule_is_a_line_of_its_own(tmp_path: Path, drawn: list[Figure]) -> None:
    row = {"model": "builtin", "task": "mini-math", "items": 1, "interval": [94.0, 99.0], "accuracy": 97.0}
    row |= {"passes": 16.0, "is_single": False}
    methods = ["slerp k=1 lam=0.5", "alternate-slerp k=1 lam=0.5"]
    draw_results([row | {"method": method} for method in methods], tmp_path / "a.svg")
    assert drawn[0].axes[0].get_title().endswith("(builtin, 1 item, k=1 lam=0.5)")
    assert list(lines(drawn[0])) == ["SLERP", "alternating SLERP"]
    methods.append("alternate-slerp period=3 k=1 lam=0.5")
    draw_results([row | {"method": method} for method in methods], tmp_path / "b.svg")
    assert list(lines(drawn[1])) == [
        "SLERP, k=1 lam=0.5", "alternating SLERP, k=1 lam=0.5", "alternating SLERP, period=3 k=1 lam=0.5",
    ]  # fmt: skip


def test_results_with_a_second_verdict_have_a_second_panel(tmp_path: Path, drawn: list[Figure]) -> None:
    known = {"accuracy": 97.0, "interval": [94.0, 99.0], "consistency": 60.0, "consistency_interval": [50.0, 70.0]}
    row = {"model": "builtin", "task": "mini-math", "items": 9, "method": "vanilla", **known}
    single = row | {"passes": 64.0, "is_single": True, "consistency": 90.0, "consistency_interval": [80.0, 95.0]}
    draw_results([single, row | {"passes": 16.0, "is_single": False}], tmp_path / "a.svg")
    assert [panel.get_title().split("\n")[0] for panel in drawn[0].axes] == [
        "mini-math: right answers", "consistent answers",
    ]  # fmt: skip
    line, _, (bars,) = lines(drawn[0], 1)["vanilla"]
    assert [tuple(xy) for xy in line.get_xydata()] == [(16.0, 60.0), (64.0, 90.0)]
    assert bars.get_segments()[0][:, 1] == pytest.approx([50.0, 70.0])
    band = drawn[0].axes[1].patches[0].get_extents().transformed(drawn[0].axes[1].transData.inverted())
    assert (band.y0, band.y1) == pytest.approx((80.0, 95.0))
    assert len({text.get_text() for text in drawn[0].legends[0].get_texts()}) == len(drawn[0].legends[0].get_texts())


def test_a_method_looks_the_same_everywhere(tmp_path: Path, drawn: list[Figure]) -> None:
    panels = {"one": {"slerp": SERIES["slerp"]}, "two": {"mine": SERIES["slerp"], "slerp, b": SERIES["slerp"]} | SERIES}
    curves(panels, tmp_path / "figure.svg", xlabels=["x", "x"], ylabel="%")
    looks = [
        (each[0].get_color(), each[0].get_marker()) for each in (lines(drawn[0])["SLERP"], lines(drawn[0], 1)["SLERP"])
    ]
    assert looks[0] == looks[1]
    variant = lines(drawn[0], 1)["SLERP, b"][0]
    assert (variant.get_color(), variant.get_marker()) == looks[0]
    assert variant.get_linestyle() != lines(drawn[0], 1)["SLERP"][0].get_linestyle()
    assert len({each[0].get_color() for each in lines(drawn[0], 1).values()}) == 3


def test_the_same_numbers_give_the_same_file(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        frontiers({"": SERIES}, tmp_path / name, ylabel="%")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_an_unknown_ending_and_a_missing_library_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="png"):
        frontiers({"": SERIES}, tmp_path / "figure.doc", ylabel="%")
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"softdlm\[plots\]"):
        frontiers({"": SERIES}, tmp_path / "figure.png", ylabel="%")


def test_a_level_is_a_band_in_every_panel_and_ticks_are_the_measured_values(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    panels = {"a": {"slerp": [Point(0.1, 50, 40, 60), Point(0.3, 70, 60, 80)]}, "b": {"slerp": [Point(2, 60, 50, 70)]}}
    curves(panels, tmp_path / "f.svg", xlabels=["x", "k"], ylabel="%", held=Point(0, 75, 65, 83), mark="quick run")
    first, second = drawn[0].axes
    assert [tick.get_text() for tick in first.get_xticklabels()] == ["0.1", "0.3"]
    assert [tick.get_text() for tick in second.get_xticklabels()] == ["2"]
    for axes in (first, second):
        assert axes.get_ylim()[0] < 40
        assert axes.get_ylim()[1] > 83
        level: Any = axes.lines[0].get_ydata()
        assert level[0] == 75
    assert "quick run" in (tmp_path / "f.svg").read_text()


def test_shares_are_bars_with_the_mixed_answers_hatched(tmp_path: Path, drawn: list[Figure]) -> None:
    shares({"one": [0.5, 0.2, 0.0, 0.3]}, ["ab", "ad", "cb", "cd"], tmp_path / "f.png", coherent=[0, 3])
    bars = drawn[0].axes[0].patches
    assert [bar.get_width() for bar in bars] == [0.5, 0.2, 0.0, 0.3]  # type: ignore[attr-defined]
    assert [bool(bar.get_hatch()) for bar in bars] == [False, True, True, False]


def test_growth_stands_beside_its_floor_and_a_line_of_proportion(tmp_path: Path, drawn: list[Figure]) -> None:
    panels = {"batch": {"step": [(1, 10.0), (8, 40.0)], "floor": [(1, 8.0), (8, 20.0)]}}
    growth_curves(panels, tmp_path / "growth.svg", title="a shape")
    found = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in drawn[0].axes[0].lines}
    assert found == {
        "step": [[1, 10], [8, 40]],
        "floor": [[1, 8], [8, 20]],
        "proportional": [[1, 10], [8, 80]],
    }
    assert (drawn[0].axes[0].get_xscale(), drawn[0].axes[0].get_yscale()) == ("log", "log")


def test_reliability_has_a_panel_a_rule_and_leaves_small_bins_out(tmp_path: Path, drawn: list[Figure]) -> None:
    def row(rule: str, name: str, *bins: tuple[int, float]) -> dict[str, Any]:
        curve = [
            {"predictions": n, "confidence": 85.0 + index, "right": right, "interval": [right - 5, right + 4]}
            for index, (n, right) in enumerate(bins)
        ]
        return {"rule": rule, "input": name, "calibration": {"curve": curve}}

    none = {"predictions": 0, "confidence": None, "right": None, "interval": None}
    rows = [row(rule, name, (20, 70.0), (19, 10.0), (21, 60.0)) for rule in ("a", "b") for name in ("hard", "own")]
    rows[0]["calibration"]["curve"].append(none)
    draw_reliability([*rows, row("a", "both", (3, 50.0))], tmp_path / "f.svg")
    assert [axes.get_title() for axes in drawn[0].axes] == ["a", "b"]
    for panel, axes in enumerate(drawn[0].axes):
        assert lines(drawn[0], panel).keys() == {"all [MASK]", "only itself soft"}
        line, _, (bars,) = lines(drawn[0], panel)["all [MASK]"]
        assert [tuple(xy) for xy in line.get_xydata()] == [(85.0, 70.0), (87.0, 60.0)]
        assert bars.get_segments()[0][:, 1] == pytest.approx([65, 74])
        diagonal = next(each for each in axes.lines if each.get_label() == "as often right as sure")
        assert np.asarray(diagonal.get_xydata()).tolist() == [[0, 0], [100, 100]]
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == [
        "as often right as sure", "all [MASK]", "only itself soft",
    ]  # fmt: skip
