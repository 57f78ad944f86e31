"""Figures in one style: legible in print, in grey and for the colour-blind. They draw; others compute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from softdlm.errors import UsageError
from softdlm.records.files import ready_folder, replacing
from softdlm.report.words import count

LOOKS = {"vanilla": ("#000000", "o"), "euclidean": ("#E69F00", "s"), "slerp": ("#0072B2", "D")}
"""Colour and marker of a method, the same in every figure; colours are Okabe and Ito's."""
INPUT_LOOKS = {
    "hard": LOOKS["vanilla"],
    "own": ("#D55E00", "v"),
    "neighbours": ("#009E73", "^"),
    "both": LOOKS["slerp"],
}
"""The same for what a prediction was made from (docs/analysis.md, reliability)."""
LEAST = 20
"""Predictions that a bin needs to be drawn: of fewer, the share that is right says little."""
LABELS = {
    "hard": "all [MASK]", "own": "only itself soft", "neighbours": "only the others soft", "both": "all soft",
    "euclidean": "Euclidean", "slerp": "SLERP", "euclidean-mask-norm": "linear, [MASK] norm", "additive": "Additive",
    "norm-mix": "NormMix", "lrd": "LRD", "remix": "ReMix", "soft-token-5": "SoftToken, 5",
    "alternate-slerp": "alternating SLERP",
    "no_eos-alternate-slerp": "alternating, no EOS", "alternate-euclidean": "alternating Euclidean",
}  # fmt: skip
"""What a legend says for a name."""
MORE_LOOKS = (
    ("#009E73", "^"), ("#CC79A7", "v"), ("#56B4E9", "P"), ("#D55E00", "*"), ("#B8A900", "X"), ("#888888", "h"),
)  # fmt: skip
DASHES = ("-", ":", "--", "-.")
STYLE = Path(__file__).with_name("softdlm.mplstyle")
LINE = {"markersize": 5, "linewidth": 1.4, "elinewidth": 0.8, "capsize": 2}
LEGEND_COLUMNS, LEGEND_LINE = 4, 0.22
"""The most columns of a legend below a figure, for each 5 inches, and the height of a line of it in inches."""
BESIDE = 2.0
"""Points between series at the same x."""


class Point(NamedTuple):
    """A measured share in per cent with its 95 % interval, at `x`."""

    x: float
    percent: float
    low: float
    high: float


Lines = Mapping[str, Sequence[tuple[float, float]]]
"""x and y by the name in the legend."""
Series = Mapping[str, Sequence[Point]]
"""Points by the name in the legend: a method, or "method, variant"."""


def draw_results(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Rows of `softdlm.evaluate.summary`, of one model on one task: right answers and, where known, consistent ones.

    The band is vanilla at one token a step.
    """
    strengths = {strength for row in rows if (strength := row["method"].partition(" ")[2])}
    about = ""
    if rows:
        parts = [rows[0]["model"], count(rows[0]["items"], "item"), *(strengths if len(strengths) == 1 else ())]
        about = f"\n({', '.join(parts)})"
    kinds = {"accuracy": f"{rows[0]['task'] if rows else 'no results'}: right answers{about}"}
    if rows and all(row.get("consistency") is not None for row in rows):
        kinds["consistency"] = "consistent answers\n(equations true, names defined)"
    panels = {title: _results_series(rows, kind, len(strengths) > 1) for kind, title in kinds.items()}
    held = [next((_point(row, kind) for row in rows if row["is_single"]), None) for kind in kinds]
    frontiers(panels, file, ylabel="% of answers (95 % interval)", held=held)


def _results_series(rows: Sequence[Mapping[str, Any]], kind: str, several: bool) -> dict[str, list[Point]]:
    """Points by method, with its strength where there are several."""
    series: dict[str, list[Point]] = {}
    for row in rows:
        method, _, strength = row["method"].partition(" ")
        name = f"{method}, {strength}" if strength and several else method
        series.setdefault(name, []).append(_point(row, kind))
    return series


def frontiers(
    panels: Mapping[str, Series], file: Path, *, ylabel: str, mark: str = "", held: Sequence[Point | None] = ()
) -> None:
    """Panels of shares over the mean number of forward passes, few passes to the left, with one legend below.

    `held` is, for each panel, one token at a time without feedback: the level that fewer passes should hold, drawn as
    a band.
    """
    bands = held or [None] * len(panels)
    with _figure(file, len(panels), mark) as all_axes:
        for axes, (title, series), band in zip(all_axes, panels.items(), bands, strict=True):
            _band(axes, band, "vanilla, 1 token a step")
            _draw(axes, series)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set(title=title, xlabel="forward passes per answer")
        all_axes[0].set_ylabel(ylabel)
        _legend_below(all_axes)


def _point(row: Mapping[str, Any], kind: str) -> Point:
    return Point(row["passes"], row[kind], *row["interval" if kind == "accuracy" else f"{kind}_interval"])


def curves(
    panels: Mapping[str, Series],
    file: Path,
    *,
    xlabels: Sequence[str],
    ylabel: str,
    mark: str = "",
    doubling: bool = False,
    held: Point | None = None,
) -> None:
    """Panels side by side with one scale of y, each a title and its series; `doubling`: x in powers of two.

    `held` is vanilla where it does not depend on x: a band in every panel.
    """
    with _figure(file, len(panels), mark) as all_axes:
        for axes, (title, series), xlabel in zip(all_axes, panels.items(), xlabels, strict=True):
            _band(axes, held, "vanilla")
            _draw(axes, series)
            axes.set(title=title, xlabel=xlabel)
            if doubling:
                axes.set_xscale("log", base=2)
            _ticks(axes, series)
        all_axes[0].set_ylabel(ylabel)
        all_axes[-1].legend(loc="best")


def draw_reliability(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Rows of `softdlm.analysis.reliability` on one task: the share that is right over confidence, a panel a rule.

    Bins with fewer than `LEAST` predictions are left out; on the dashed line predictions are as often right as sure.
    """
    panels: dict[str, dict[str, list[Point]]] = {}
    for row in rows:
        bins = [each for each in row["calibration"]["curve"] if each["predictions"] >= LEAST]
        points = [Point(each["confidence"], each["right"], *each["interval"]) for each in bins]
        panels.setdefault(row["rule"], {})[row["input"]] = points
    with _figure(file, len(panels)) as all_axes:
        for axes, (rule, series) in zip(all_axes, panels.items(), strict=True):
            axes.plot(
                [0, 100], [0, 100], "--", color="#888888", linewidth=0.8, zorder=1, label="as often right as sure"
            )
            _draw(axes, {name: points for name, points in series.items() if points})
            axes.set(title=rule, xlabel="mean confidence of the bin, %", xlim=(-2, 102), ylim=(-2, 102))
        all_axes[0].set_ylabel("% right (95 % interval)")
        _legend_below(all_axes)


def shares(
    panels: Mapping[str, Sequence[float]], names: Sequence[str], file: Path, *, coherent: Sequence[int], mark: str = ""
) -> None:
    """The probability of each named answer, a panel a method; answers that are not `coherent` are grey and hatched."""
    with _figure(file, len(panels), mark, width=2.3) as all_axes:
        for axes, (title, values) in zip(all_axes, panels.items(), strict=True):
            colours = [LOOKS["slerp"][0] if index in coherent else "#BBBBBB" for index in range(len(names))]
            hatches = ["" if index in coherent else "///" for index in range(len(names))]
            bars = axes.barh(list(names), list(values), color=colours, hatch=hatches, edgecolor="#FFFFFF", height=0.7)
            axes.bar_label(bars, fmt="%.3f", padding=3)
            axes.set(title=title, xlabel="probability", xlim=(0, 1.3 * max(map(max, panels.values()))))
            axes.grid(visible=False, axis="y")
        all_axes[0].invert_yaxis()


def growth_curves(panels: Mapping[str, Lines], file: Path, *, title: str = "") -> None:
    """Milliseconds a step against what grows, both on logarithmic scales; the dashed line doubles with it."""
    with _figure(file, len(panels)) as all_axes:
        for axes, (label, lines) in zip(all_axes, panels.items(), strict=True):
            for (name, points), (colour, marker) in zip(lines.items(), (LOOKS["slerp"], ("#888888", "")), strict=True):
                axes.plot(*zip(*points, strict=True), label=name, color=colour, marker=marker, markersize=5)
            (x, y), (last, _) = next(iter(lines.values()))[0], next(iter(lines.values()))[-1]
            grey = {"color": "#BBBBBB", "linewidth": 0.8, "zorder": 0}
            axes.plot([x, last], [y, y * last / x], "--", label="proportional", **grey)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set(xlabel=label)
        all_axes[0].set(ylabel="ms a step", title=title)
        all_axes[-1].legend(loc="best")


def _legend_below(all_axes: Sequence[Any]) -> None:
    """One legend for all panels, each label once, in as many columns as fit; the figure grows by its lines."""
    figure = all_axes[0].figure
    shown = [dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)) for axes in all_axes]
    legend = {label: handle for labels in shown for label, handle in labels.items()}
    for columns in range(min(len(legend), LEGEND_COLUMNS * round(figure.get_figwidth() / 5)), 0, -1):
        drawn = figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=columns)
        if drawn.get_window_extent().width <= figure.bbox.width or columns == 1:
            figure.set_figheight(figure.get_figheight() + LEGEND_LINE * -(-len(legend) // columns))
            return
        drawn.remove()


def _band(axes: Any, held: Point | None, label: str) -> None:
    if held is not None:
        axes.axhline(held.percent, color="#888888", linewidth=0.8, zorder=1, label=label)
        axes.axhspan(held.low, held.high, color="#EEEEEE", zorder=0, label="its 95 % interval")


def _ticks(axes: Any, series: Series) -> None:
    """At the measured values, and nowhere else."""
    values = sorted({point.x for points in series.values() for point in points})
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


def _draw(axes: Any, series: Series) -> None:
    """Series stand a little beside each other, so that intervals at the same x can be told apart."""
    from matplotlib.transforms import ScaledTranslation

    looks = _looks(series)
    for index, (name, points) in enumerate(series.items()):
        colour, marker, dash = looks[name]
        ordered = sorted(points)
        aside = (index - (len(series) - 1) / 2) * BESIDE / 72
        method, comma, variant = name.partition(", ")
        below = [point.percent - point.low for point in ordered]
        above = [point.high - point.percent for point in ordered]
        drawn = axes.errorbar(
            [point.x for point in ordered],
            [point.percent for point in ordered],
            yerr=[below, above],
            label=LABELS.get(method, method) + comma + variant,
            **{"color": colour, "marker": marker, "linestyle": dash, **LINE},
        )
        shift = ScaledTranslation(aside, 0, axes.figure.dpi_scale_trans)
        for artist in drawn.get_children():  # only now, so that the axes know where the points are
            artist.set_transform(artist.get_transform() + shift)


def _looks(names: Iterable[str]) -> dict[str, tuple[str, str, str]]:
    """Colour and marker by method, dashes by variant."""
    parts = {name: name.partition(", ")[::2] for name in names}
    variants = list(dict.fromkeys(variant for _, variant in parts.values()))
    known = LOOKS | INPUT_LOOKS
    others = [method for method in dict.fromkeys(method for method, _ in parts.values()) if method not in known]
    looks = known | dict(zip(others, cycle(MORE_LOOKS), strict=False))
    return {
        name: (*looks[method], DASHES[variants.index(variant) % len(DASHES)])
        for name, (method, variant) in parts.items()
    }


def check_format(file: Path) -> None:
    """Whether this file can be drawn here; callers with long work before the drawing ask first."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(f"drawing {file} needs matplotlib: pip install 'softdlm[plots]'") from error
    known = Figure().canvas.get_supported_filetypes()
    if file.suffix.lstrip(".") not in known:
        raise UsageError(f"cannot draw {file}: give it one of the endings {', '.join(sorted(known))}")


@contextmanager
def _figure(file: Path, panels: int, mark: str = "", *, width: float = 3.6) -> Iterator[list[Any]]:
    """Axes side by side, saved when all is drawn. The file's ending chooses the format, `mark` is written into it."""
    check_format(file)
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(STYLE):
        figure = Figure(figsize=(5.2 if panels == 1 else width * panels, 3.6), layout="constrained")
        yield list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])
        if mark:
            figure.suptitle(mark, fontsize=8, color="#B00020", x=0.99, horizontalalignment="right")
        ready_folder(file.parent)
        with replacing(file) as part:
            figure.savefig(part, metadata={"Date": None} if file.suffix in (".svg", ".pdf") else None)
