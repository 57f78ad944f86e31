"""Tables and figures made of analyses: Figure 1, Tables 1, 3, 4, 8, appendix B.1, and agreement along a decode."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from softdlm.analysis.agreement import summarise as summarise_agreement
from softdlm.evaluate.metrics import Mean
from softdlm.report.document import Drawing
from softdlm.report.table import Cell, Column, Row, Table, mark_best
from softdlm.reproduce.labels import BOOTSTRAP, method_title, paper_notes
from softdlm.reproduce.measurements import Data
from softdlm.reproduce.study import task_title

SHOWN = ("sequential", "vanilla", "euclidean", "slerp")
"""Methods of Figure 1 that are drawn."""


def mean_cell(values: Sequence[float], paper: float | None = None, weights: Sequence[float] | None = None) -> Cell:
    if not values:
        return Cell(paper=paper)
    mean = Mean.of(values, weights)
    return Cell(mean.value, mean.low, mean.high, paper)


def figure1(data: Data) -> list[Table]:
    """One table per prompt; there is one."""
    return [
        Table(
            "figure1",
            f"Figure 1. Joint probability: {row.prompt} [MASK] [MASK]",
            ("method",),
            (*(Column(words, digits=4) for words in row.combinations), Column("other answers", digits=4)),
            tuple(
                Row((method_title(method),), tuple(Cell(value) for value in (*values, 1 - sum(values))))
                for method, values in row.probability.items()
            ),
            (_reading(data), "Sequential: mean over all orders. The paper's figure has no numbers in its text."),
            data.study.scale.mark,
        )
        for row in data.rows("joint")
    ]


def figure1_drawings(data: Data) -> list[Drawing]:
    caption = "The coherent answers in blue, the mixed ones hatched; what is missing to 1 is on other answers."
    drawings = []
    for row in data.rows("joint"):
        panels = {method_title(name): row.probability[name] for name in SHOWN if name in row.probability}
        ends = [0, len(row.combinations) - 1]
        drawings.append(
            Drawing("figure1", caption, "shares", {"panels": panels, "names": row.combinations, "coherent": ends})
        )
    return drawings


def table1(data: Data) -> list[Table]:
    rows, study = data.rows("mixtures"), data.study
    lines = []
    for rule in rows[0].additive if rows else ():
        printed = [study.printed.value("table1", kind) if rule == "slerp" else None for kind in KINDS]
        cells = [
            mean_cell([fmean(getattr(row, kind)[rule]) for row in rows], value)
            for kind, value in zip(KINDS, printed, strict=True)
        ]
        lines.append(Row((method_title(rule),), mark_best(cells, higher=False)))
    notes = (
        f"{len(rows)} of 70 prompts. {_reading(data)} k = 3, λ = 0.3; bold is the closer reference.",
        BOOTSTRAP.format("prompts"),
        *paper_notes(study, None, True),
    )
    columns = tuple(Column(f"to the {kind} mixture", 4, 4) for kind in KINDS)
    title = f"Table 1. JS divergence of soft-token predictions to two mixtures, nats, {study.title}"
    return [Table("table1", title, ("soft token",), columns, tuple(lines), notes, study.scale.mark)]


KINDS = ("additive", "multiplicative")


def open_rows(data: Data) -> dict[str, list[Any]]:
    """The geometry's items that had open positions at all, by task."""
    found = {task: [row for row in rows if row.shape.positions] for task, rows in data.by_task("geometry").items()}
    return {task: rows for task, rows in found.items() if rows}


def table3(data: Data) -> list[Table]:
    study, places = data.study, data.study.places("gsm8k", "humaneval")
    lines = []
    for task, rows in open_rows(data).items():
        weights = [row.shape.positions for row in rows]
        printed = {name: study.printed.value("table3", places[task], name) for name in ("candidate", "aggregate")}
        cells = (
            mean_cell([row.shape.candidate_cosine for row in rows], printed["candidate"], weights),
            mean_cell([row.shape.aggregate_cosine for row in rows], printed["aggregate"], weights),
            Cell(sum(weights)),
            Cell(len(rows)),
        )
        lines.append(Row((task_title(task),), cells))
    columns = (Column("candidates, cosine", 3, 3), Column("aggregate and [MASK], |cosine|", 3, 3))
    notes = (
        "Top 3 candidates at every position left open while decoding with SLERP at 2 tokens a step.",
        BOOTSTRAP.format("items"),
        *paper_notes(study, places, True),
    )
    title = f"Table 3. Geometry of candidates and [MASK], {study.title}"
    counts = (Column("positions"), Column("items"))
    return [Table("table3", title, ("task",), (*columns, *counts), tuple(lines), notes, study.scale.mark)]


def b1(data: Data) -> list[Table]:
    """The paper's rows are those of the linear interpolation; the others say what each rule does about it."""
    study, lines = data.study, []
    there = study.printed.value("b1", "angle") is not None
    for task, rows in open_rows(data).items():
        weights = [row.shape.positions for row in rows]
        for rule in rows[0].shape.norm_ratio:
            own = rule == "euclidean"
            found = {"angle": [row.shape.angle for row in rows]}
            found |= {name: [getattr(row.shape, name)[rule] for row in rows] for name in SOFT_TOKEN}
            cells = [
                mean_cell(values, study.printed.value("b1", name) if own else None, weights)
                for name, values in found.items()
            ]
            lines.append(Row((task_title(task), method_title(rule)), tuple(cells)))
    columns = (
        Column("angle, degrees", 2, 2),
        Column("share of the angle", 3, 3),
        Column("norm / [MASK] norm", 3, 3),
        Column("below both norms", 3, 3),
    )
    notes = (
        "Top 4 candidates, λ = 0.5, at the positions of Table 3. Additive and NormMix have strengths of their own.",
        BOOTSTRAP.format("items"),
        *paper_notes(study, None, there),
        *(["The paper's numbers are over GSM8K and HumanEval together."] if there else []),
    )
    title = f"Appendix B.1. What interpolation from [MASK] does to angle and norm, {study.title}"
    return [Table("b1", title, ("task", "soft token"), columns, tuple(lines), notes, study.scale.mark)]


SOFT_TOKEN = ("angle_share", "norm_ratio", "below_both")


def table4(data: Data) -> list[Table]:
    rows, study = data.rows("consistency"), data.study
    methods = list(rows[0].reverse_kl) if rows else []
    printed = [study.printed.value("table4", method) for method in methods]
    divergence = [
        mean_cell([row.reverse_kl[method] for row in rows], value)
        for method, value in zip(methods, printed, strict=True)
    ]
    lines = [
        Row(
            (method_title(method),),
            (
                kl,
                mean_cell([row.shares[method][0] + row.shares[method][-1] for row in rows]),
                mean_cell([row.mass[method] for row in rows]),
            ),
        )
        for method, kl in zip(methods, mark_best(divergence, higher=False), strict=True)
    ]
    settings = data.analyses["consistency"][0].settings if data.analyses.get("consistency") else {"qualify": 0, "of": 0}
    columns = (Column("reverse KL, nats", 4, 4), Column("coherent share", 3), Column("mass on the support", 3))
    notes = (
        f"{settings['qualify']} of {settings['of']} prompts qualify. {_reading(data)} k = 3, λ = 0.3.",
        BOOTSTRAP.format("prompts"),
        *paper_notes(study, None, True),
    )
    title = f"Table 4. Reverse KL of the factorised prediction to the sequential reference, {study.title}"
    return [Table("table4", title, ("method",), columns, tuple(lines), notes, study.scale.mark)]


def table8(data: Data) -> list[Table]:
    study, places = data.study, data.study.places("math500", "humaneval")
    lines = []
    for task, rows in data.by_task("completions").items():
        long = [row for row in rows if row.lengths]
        methods = list(rows[0].reverse_kl)
        printed = [study.printed.value("table8", places[task], method) for method in methods]
        cells = [
            mean_cell([fmean(row.reverse_kl[method]) for row in long], value)
            for method, value in zip(methods, printed, strict=True)
        ]
        counts = (Cell(len(long)), Cell(sum(len(row.lengths) for row in long)))
        pairs = zip(methods, mark_best(cells, higher=False), strict=True)
        lines += [Row((task_title(task), method_title(method)), (cell, *counts)) for method, cell in pairs]
    there = any(study.printed.value("table8", name, "slerp") is not None for name in places.values())
    notes = (
        "Answers of vanilla at 1 token a step; spans of 2, 3 and 4 tokens at two places each; top 4, λ = 0.3.",
        BOOTSTRAP.format("completions"),
        *paper_notes(study, places, there),
    )
    columns = (Column("reverse KL, nats", 4, 6), Column("completions"), Column("spans"))
    title = f"Table 8. Reverse KL on spans of the model's own answers, {study.title}"
    return [Table("table8", title, ("task", "method"), columns, tuple(lines), notes, study.scale.mark)]


def agreement(data: Data) -> list[Table]:
    lines = []
    for task, rows in data.by_task("agreement").items():
        for found in summarise_agreement(rows):
            values = (found.settled, found.changed, found.reordered, found.earlier, found.later)
            label = (task_title(task), method_title(found.rule))
            lines.append(Row(label, (*(Cell(_per_cent(value)) for value in values), Cell(found.items))))
    columns = ("settled", "changed", "reordered", "earlier", "later")
    notes = (
        "At 4 tokens a step. Settled: open positions whose best token is already the final one.",
        "Changed: open positions whose best token is another in the next pass.",
        "Reordered: items whose commits differ from vanilla's; earlier, later: positions committed in another pass.",
    )
    title = f"Agreement along a decode (beyond the paper), per cent, {data.study.title}"
    made = (*(Column(name) for name in columns), Column("items"))
    return [Table("agreement", title, ("task", "method"), made, tuple(lines), notes, data.study.scale.mark)]


def _per_cent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _reading(data: Data) -> str:
    return "Prompts inside the chat template." if data.study.chat else "Prompts as raw text."


def rows_record(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows for the data files, rounded to what matters."""
    from dataclasses import asdict

    return [_rounded(asdict(row)) for row in rows]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
