"""Tables of analyses by hand."""

from typing import Any

import pytest

from softdlm.analysis import agreement, completions, consistency, geometry, joint, mixtures
from softdlm.evaluate.metrics import Mean
from softdlm.evaluate.readings import Readings
from softdlm.report.table import Cell, Table
from softdlm.reproduce import agreement as agreement_experiment
from softdlm.reproduce import b1, figure1, table1, table3, table4, table8
from tests.reproduce.made import measured, study


def cells_of(table: Table, *labels: str) -> tuple[Cell, ...]:
    (found,) = [row.cells for row in table.rows if row.labels == labels]
    return found


def mixture(slerp: list[float], additive: float) -> mixtures.MixtureRow:
    return mixtures.MixtureRow("p", len(slerp), 16, {"slerp": [additive] * len(slerp)}, {"slerp": slerp})


def shape(positions: int, candidate: float, aggregate: float, share: float = 0.6) -> geometry.Shape:
    return geometry.Shape(
        positions, candidate, aggregate, 89.0, 0.8, {"euclidean": share, "slerp": 0.5},
        {"euclidean": 0.85, "slerp": 1.0}, {"euclidean": 0.99, "slerp": 0.0},
    )  # fmt: skip


def consistent(vanilla: float, slerp: float) -> consistency.ConsistencyRow:
    shares = {"vanilla": [0.3, 0.2, 0.2, 0.3], "slerp": [0.5, 0.1, 0.0, 0.4]}
    kl = {"vanilla": vanilla, "slerp": slerp}
    return consistency.ConsistencyRow(
        "p", 2, ["a"] * 4, [0.5, 0, 0, 0.5], 0.9, shares, {"vanilla": 0.8, "slerp": 0.7}, kl
    )


def test_figure_1_shows_what_lies_on_other_answers() -> None:
    row = joint.JointRow(
        "Either:", ["a b", "a d", "c b", "c d"], {"vanilla": [0.3, 0.2, 0.2, 0.2], "slerp": [0.5, 0, 0, 0.4]}
    )
    (table,) = figure1.tables(measured(rows={"joint": [row]}))
    assert [column.name for column in table.columns] == ["a b", "a d", "c b", "c d", "other answers"]
    assert [cell.value for cell in cells_of(table, "SLERP")] == pytest.approx([0.5, 0, 0, 0.4, 0.1])
    assert "raw text" in table.notes[0]
    (drawing,) = figure1.drawings(measured(rows={"joint": [row]}))
    assert drawing.name == "figure1"


def test_table_1_means_positions_first_then_prompts() -> None:
    rows = [mixture([0.1, 0.3], 0.5), mixture([0.4, 0.4, 0.4], 0.3)]
    (table,) = table1.tables(measured(rows={"mixtures": rows}, study=study(readings=Readings.of(["prompts=chat"]))))
    additive, multiplicative = cells_of(table, "SLERP")
    assert additive.value == pytest.approx(0.4)
    assert multiplicative.value == pytest.approx(0.3)  # not 0.32, the mean over all positions
    assert (multiplicative.low, multiplicative.high) == pytest.approx(Mean.of([0.2, 0.4])[1:3])
    assert (additive.best, multiplicative.best) == (False, True)
    assert (additive.paper, multiplicative.paper) == (0.2099, 0.0410)
    assert "2 of 70 prompts" in table.notes[0]
    assert "chat template" in table.notes[0]


def test_table_3_counts_every_position_the_same() -> None:
    rows = [geometry.Row("mini-math", "a", shape(30, 0.2, 0.1)), geometry.Row("mini-math", "b", shape(10, 0.6, 0.3))]
    empty = geometry.Row("mini-math", "c", shape(0, 0.0, 0.0))
    (table,) = table3.tables(measured(rows={"geometry": [*rows, empty]}))
    candidate, aggregate, positions, items = cells_of(table, "mini-math")
    assert (candidate.value, aggregate.value) == (pytest.approx(0.3), pytest.approx(0.15))
    assert (positions.value, items.value) == (40, 2)
    assert (candidate.paper, aggregate.paper) == (0.496, 0.015)


def test_appendix_b1_sets_the_papers_numbers_beside_the_linear_interpolation() -> None:
    rows = [geometry.Row("mini-code", "a", shape(30, 0.2, 0.1)), geometry.Row("mini-code", "b", shape(10, 0, 0, 0.2))]
    (table,) = b1.tables(measured(rows={"geometry": rows}))
    linear, slerp = cells_of(table, "mini-code", "Euclidean"), cells_of(table, "mini-code", "SLERP")
    assert [cell.value for cell in linear] == pytest.approx([89.0, 0.5, 0.85, 0.99])
    assert [cell.paper for cell in linear] == [89.42, 0.599, 0.863, 0.994]
    assert [cell.value for cell in slerp] == pytest.approx([89.0, 0.5, 1.0, 0.0])
    assert {cell.paper for cell in slerp} == {None}


def test_table_4_marks_the_lowest_and_says_how_many_prompts_qualify() -> None:
    (table,) = table4.tables(measured(rows={"consistency": [consistent(2.0, 1.0), consistent(4.0, 2.0)]}))
    kl, coherent, mass = cells_of(table, "SLERP")
    assert (kl.value, kl.best, kl.paper) == (1.5, True, 0.2458)
    assert coherent.value == pytest.approx(0.9)  # the two alternatives are the first and the last
    assert mass.value == pytest.approx(0.7)
    assert cells_of(table, "vanilla")[0].value == 3.0
    assert "2 of 70 prompts qualify" in table.notes[0]


def test_without_a_prompt_that_qualifies_the_table_is_empty_and_says_so() -> None:
    (table,) = table4.tables(measured(rows={"consistency": []}))
    assert table.rows == ()
    assert "0 of 70" in table.notes[0]


def test_table_8_means_spans_first_then_completions() -> None:
    def row(kl: dict[str, list[float]]) -> completions.CompletionRow:
        spans = len(next(iter(kl.values())))
        return completions.CompletionRow("mini-math", "i", [2] * spans, [1] * spans, [9] * spans, kl)

    short = completions.CompletionRow("mini-math", "s", [], [], [], {"vanilla": [], "slerp": []})
    rows = [row({"vanilla": [0.2], "slerp": [0.1]}), row({"vanilla": [0.2] * 3, "slerp": [0.1, 0.2, 0.6]}), short]
    (table,) = table8.tables(measured(rows={"completions": rows}))
    (vanilla, *_), (slerp, count, spans) = (cells_of(table, "mini-math", name) for name in ("vanilla", "SLERP"))
    assert (vanilla.value, slerp.value) == (pytest.approx(0.2), pytest.approx(0.2))  # not 0.25, over all spans
    assert (count.value, spans.value) == (2, 4)
    assert (vanilla.paper, slerp.paper) == (0.06519, 0.053294)


def course(settled: int) -> agreement.Course:
    return agreement.Course([4, 0], [1, 0], [8, 2], [settled, 2], [1, 2])


def test_agreement_in_per_cent() -> None:
    orders = {"vanilla": agreement.Reordering(None, 0, 0, 10), "slerp": agreement.Reordering(2, 3, 1, 10)}
    row: Any = agreement.AgreementRow("mini-math", "i", {"vanilla": course(3), "slerp": course(6)}, orders)
    (table,) = agreement_experiment.tables(measured(rows={"agreement": [row]}))
    assert [cell.value for cell in cells_of(table, "mini-math", "SLERP")] == pytest.approx([80, 25, 100, 30, 10, 1])
    assert [cell.value for cell in cells_of(table, "mini-math", "vanilla")][:3] == pytest.approx([50, 25, 0])
