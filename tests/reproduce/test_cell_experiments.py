"""Tables of cells by hand: every lookup and formula."""

from pathlib import Path
from typing import Any

import pytest

from softdlm.evaluate.cell import method_label
from softdlm.evaluate.metrics import Share, mcnemar
from softdlm.report.table import Cell, Table
from softdlm.reproduce import figure2, frontier, table2, table5, table6, table7
from softdlm.reproduce.experiment import Experiment
from softdlm.reproduce.measurements import Cells, paired
from softdlm.reproduce.study import QUICK
from tests.reproduce.made import grid_of, measured, result, study


def cells_of(table: Table, *labels: str) -> tuple[Cell, ...]:
    (found,) = [row.cells for row in table.rows if row.labels == labels]
    return found


@pytest.fixture
def three(tmp_path: Path) -> list:
    return grid_of(tmp_path, {"vanilla": (10, 8, 4), "euclidean": (12, 8, 6), "slerp": (16, 7, 6)}, range(5, 15))


def test_table_2_by_hand(three: list) -> None:
    (table,) = table2.tables(measured({"table2": three}))
    assert [row.labels for row in table.rows][:3] == [("mini-math", "2"), ("mini-math", "4"), ("mini-math", "8")]
    vanilla, euclidean, slerp = cells_of(table, "mini-math", "2")
    assert [vanilla.value, euclidean.value, slerp.value] == [50.0, 60.0, 80.0]
    assert (slerp.low, slerp.high) == Share.of([True] * 16 + [False] * 4)[1:3]
    assert [vanilla.best, euclidean.best, slerp.best] == [False, False, True]
    assert slerp.note == f"p {mcnemar([True] * 10 + [False] * 10, [True] * 16 + [False] * 4):.2g}"
    assert vanilla.note == ""
    assert [cell.best for cell in cells_of(table, "mini-math", "4")] == [True, True, False]
    assert (vanilla.paper, euclidean.paper, slerp.paper) == (71.65, 72.33, 73.24)  # LLaDA, GSM8K, 2 a step
    assert cells_of(table, "mini-math", "8")[2].paper == 36.77
    assert all(cell.value is None for cell in cells_of(table, "mini-code", "2"))
    assert cells_of(table, "mini-code", "4")[1].paper == 31.71  # HumanEval
    assert any(
        "LLaDA, GSM8K beside mini-math, HumanEval beside mini-code. Another model" in note for note in table.notes
    )
    assert any("20 mini-math" in note for note in table.notes)
    assert any("k = 3, λ = 0.3" in note for note in table.notes)


def test_unfinished_cells_are_dashes_and_two_that_fit_are_a_mistake(tmp_path: Path) -> None:
    made = result(tmp_path, "mini-math", "slerp", "topn(2)", range(5))
    assert Cells([made]).find("mini-math", "slerp", "topn(4)") is None
    assert Cells([made]).find("mini-code", "slerp", "topn(2)") is None
    assert Cells([made]).find("mini-math", "euclidean", "topn(2)") is None
    other = result(tmp_path, "mini-math", "slerp(k=2)", "topn(2)", range(5))
    with pytest.raises(ValueError, match="ambiguous"):
        Cells([made, other]).find("mini-math", "slerp", "topn(2)")
    assert Cells([made, other]).find("mini-math", "slerp", "topn(2)", k=2) is other


def test_a_rate_is_found_whatever_orders_the_commits(tmp_path: Path) -> None:
    """Dream ranks by entropy, and its rules are spelled so."""
    made = [result(tmp_path, "mini-math", "vanilla", f"topn({n}, rank='entropy')", range(5)) for n in (1, 4)]
    assert Cells(made).find("mini-math", "vanilla", "topn(4)") is made[1]
    assert Cells(made).single("mini-math") is made[0]


def test_a_variant_of_a_benchmark_is_that_benchmark(tmp_path: Path) -> None:
    made = result(tmp_path, "gsm8k-dream", "slerp", "topn(2)", range(5))
    assert Cells([made]).find("gsm8k", "slerp", "topn(2)") is made
    assert Cells([made]).find("gsm", "slerp", "topn(2)") is None


def test_different_items_are_not_compared(tmp_path: Path) -> None:
    few = result(tmp_path, "mini-math", "slerp", "topn(2)", range(5), items=10)
    many = result(tmp_path, "mini-math", "vanilla", "topn(2)", range(5))
    with pytest.raises(ValueError, match="different items"):
        paired(few, many)


def test_table_7_is_of_what_vanilla_solves_one_token_at_a_time(three: list) -> None:
    (table,) = table7.tables(measured({"table7": three}))
    vanilla, euclidean, slerp = cells_of(table, "mini-math", "2")  # items 5 to 14 are solved one at a time
    assert [vanilla.value, euclidean.value, slerp.value] == [50.0, 70.0, 100.0]
    assert (vanilla.low, vanilla.high) == Share.of([True] * 5 + [False] * 5)[1:3]
    assert [vanilla.paper, slerp.paper] == [89.24, 90.05]
    assert [cell.value for cell in cells_of(table, "mini-math", "8")] == [0.0, 10.0, 10.0]
    assert any("mini-math 50.0" in note for note in table.notes)


def test_recovery_of_nothing_is_not_applicable(tmp_path: Path) -> None:
    method = result(tmp_path, "mini-math", "slerp", "topn(2)", range(5))
    single = result(tmp_path, "mini-math", "vanilla", "topn(1)", ())
    assert table7.recovered(method, single).value == "n/a"
    assert table7.recovered(method, None).value is None


def test_table_5_compares_norms_at_two_tokens_a_step(tmp_path: Path) -> None:
    methods = {"slerp": 14, "slerp-candidate-norm": 11, "euclidean-mask-norm": 15}
    made = [result(tmp_path, "mini-math", name, "topn(2)", range(count)) for name, count in methods.items()]
    (table,) = table5.tables(measured({"table5": made}))
    found = cells_of(table, "mini-math")
    assert [cell.value for cell in found] == pytest.approx([70.0, 55.0, 75.0])
    assert [cell.best for cell in found] == [False, False, True]
    assert [cell.paper for cell in found] == [23.6, 22.6, 21.8]  # LLaDA, MATH-500


def test_table_6_has_accuracies_and_passes(tmp_path: Path) -> None:
    threshold, bound = "threshold(0.9)", "entropy(0.1)"
    made = [
        result(tmp_path, "mini-math", "vanilla", threshold, range(10), forwards=28),
        result(tmp_path, "mini-math", "slerp", threshold, range(13), forwards=14),
        result(tmp_path, "mini-math", "vanilla", bound, range(9), forwards=30),
    ]
    (table,) = table6.tables(measured({"table6": made}))
    without, with_slerp, passes, passes_slerp = cells_of(table, "mini-math", "threshold 0.9")
    assert [without.value, with_slerp.value, passes.value, passes_slerp.value] == [50.0, 65.0, 28.0, 14.0]
    assert (without.paper, with_slerp.paper) == (29.8, 30.2)
    assert (without.best, with_slerp.best) == (False, True)
    assert [cell.value for cell in cells_of(table, "mini-math", "entropy bound 0.1")] == [45.0, None, 30.0, None]
    assert cells_of(table, "mini-code", "entropy bound 0.1")[1].paper == 48.17


def test_figure_2_sweeps_one_setting_at_the_others_usual_value(tmp_path: Path) -> None:
    solved = {(3, 0.1): 8, (3, 0.3): 12, (3, 0.7): 2, (2, 0.3): 11, (4, 0.3): 12}
    made = [
        result(tmp_path, "mini-code", f"slerp(k={k}, lam={lam})", "topn(2)", range(count))
        for (k, lam), count in solved.items()
    ]
    lam, k = figure2.tables(measured({"figure2": made}))
    assert [(row.labels, row.cells[0].value) for row in lam.rows] == [
        (("mini-code", "0.1"), 40.0), (("mini-code", "0.3"), 60.0), (("mini-code", "0.7"), 10.0),
    ]  # fmt: skip
    assert [(row.labels[1], row.cells[0].value) for row in k.rows] == [
        ("2", pytest.approx(55.0)), ("3", 60.0), ("4", 60.0),
    ]  # fmt: skip
    assert [row.cells[0].best for row in k.rows] == [False, True, True]


def test_the_frontier_has_every_rate_with_passes(tmp_path: Path) -> None:
    made = [
        result(tmp_path, "mini-math", "vanilla", "threshold(0.7)", range(10), forwards=18),
        result(tmp_path, "mini-math", "slerp", "threshold(0.7)", range(12), forwards=9),
        result(tmp_path, "mini-math", "slerp", "threshold(0.9)", range(15), forwards=12),
        result(tmp_path, "mini-math", "vanilla", "topn(1)", range(18), forwards=64),
    ]
    (table,) = frontier.tables(measured({"frontier": made}))
    assert [row.labels[1] for row in table.rows] == ["threshold 0.7", "threshold 0.9", "1 a step"]
    found = cells_of(table, "mini-math", "threshold 0.7")
    assert [cell.value for cell in found] == [50.0, 60.0, 18.0, 9.0]


def test_the_mark_of_the_run_is_on_every_table(three: list) -> None:
    made = measured({"table2": three, "table7": three}, study=study(QUICK))
    assert {table.mark for table in table2.tables(made) + table7.tables(made)} == {QUICK.mark}


def test_the_experiment_that_the_docs_add_is_whole(tmp_path: Path) -> None:
    """Cells, a table and a claim from one file; the list in experiments.py needs its name only."""
    text = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
    code = text.split("```python\n# softdlm/reproduce/k1.py")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    added: Experiment = names["EXPERIMENT"]
    assert added.cells is not None
    (grid,) = added.cells(study())
    assert [method_label(each.decoding) for each in grid.outline("llada")] == ["vanilla", "slerp k=1 lam=0.3"]
    made = [
        result(tmp_path, "mini-math", name, "topn(4)", range(count))
        for name, count in {"vanilla": 2, "slerp(k=1)": 18}.items()
    ]
    found = measured({"k1": made}, planned={"k1": 2})
    section = added.section(found)
    assert [cell.value for cell in cells_of(section.tables[0], "mini-math")] == [10.0, 90.0]
    assert section.measured == "2 of 2 cells"
    assert [(finding.where, finding.verdict) for finding in added.findings(found)] == [("One candidate", "holds")]
