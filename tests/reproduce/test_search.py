"""Searches: what is tried, on which items, what is chosen, and the tables of chosen settings."""

from pathlib import Path

from softdlm.evaluate.cell import ModelSpec
from softdlm.evaluate.summary import Result
from softdlm.feedback import Euclidean
from softdlm.reproduce import best, consistent, rivals, table7
from softdlm.reproduce.measurements import Cells
from softdlm.reproduce.search import KS, LAMS, choice_note, choose, paper_grid, search_grids
from softdlm.reproduce.study import Study
from tests.reproduce.made import measured, result, study
from tests.reproduce.test_cell_experiments import cells_of

RATES = ("topn(4)", "topn(8)")


def searched(root: Path, solved: dict[str, tuple[int, ...]], task: str = "mini-math") -> list[Result]:
    """Setting -> how many items it solves at each of RATES."""
    return [
        result(root / "search", task, setting, commit, range(count))
        for setting, counts in solved.items()
        for commit, count in zip(RATES, counts, strict=False)
    ]


def test_the_papers_grid_is_twelve_settings_of_each_method() -> None:
    assert (LAMS, KS) == ((0.1, 0.3, 0.5, 0.7), (2, 3, 4))
    (math, code) = best.search(study())
    for grid in (math, code):
        found = [each.decoding for each in grid.outline("llada")]
        assert len(found) == 2 * 12 * 3
        assert sum(each.feedback == Euclidean(4, 0.7) for each in found) == 3


def test_built_in_tasks_are_searched_on_validation_items_and_benchmarks_on_their_own() -> None:
    (math,) = search_grids(study(), ["mini-math"], ["slerp"], RATES)
    assert [(each.split, each.limit) for each in math.tasks] == [("validation", 300)]
    real = Study(ModelSpec("a/b", "cpu", "float32"), "llada", ("gsm8k",))
    (gsm8k,) = search_grids(real, ["gsm8k"], ["slerp"], RATES)
    assert [(each.split, each.limit) for each in gsm8k.tasks] == [("test", None)]


def test_the_best_mean_over_the_rates_wins_and_ties_go_to_the_weaker(tmp_path: Path) -> None:
    made = {"slerp(k=2, lam=0.1)": (10, 10), "slerp(k=3, lam=0.1)": (18, 4), "slerp(k=2, lam=0.3)": (4, 18)}
    cells = Cells(searched(tmp_path, made))
    found = choose(cells, "mini-math", paper_grid("slerp"), RATES)
    assert found is not None
    assert (found.feedback, found.items, found.settings) == ("slerp(k=3, lam=0.1)", 20, 3)
    assert found.accuracy == 55.0
    half = Cells(searched(tmp_path / "half", {**made, "slerp(k=4, lam=0.7)": (20,)}))
    assert choose(half, "mini-math", paper_grid("slerp"), RATES) == found  # measured at one rate only
    assert choose(cells, "mini-math", paper_grid("euclidean"), RATES) is None
    assert choose(cells, "mini-code", paper_grid("slerp"), RATES) is None
    note = choice_note("mini-math", {"slerp": found}, RATES)
    assert "chosen on 20 validation items" in note
    assert "4 a step, 8 a step: slerp(k=3, lam=0.1) (55.0 %, of 3)" in note
    assert "test items, the ones reported here" in choice_note("gsm8k", {"slerp": found}, RATES)
    assert "not finished" in choice_note("gsm8k", {"slerp": None}, RATES)


def test_the_chosen_settings_are_measured_and_shown(tmp_path: Path) -> None:
    scale = study().scale
    one = study(scale=scale, tasks=("mini-math",))
    tried = {"euclidean(k=4, lam=0.7)": 12, "euclidean(k=2, lam=0.1)": 8, "slerp(k=2, lam=0.5)": 15}
    found = [
        result(tmp_path / "search", "mini-math", setting, commit, range(count))
        for setting, count in tried.items()
        for commit in scale.search_rates
    ]
    grids = best.follow(one, Cells(found))
    follow = {each.decoding.feedback for grid in grids for each in grid.outline("llada")}
    assert {str(each) for each in follow} == {"Euclidean(k=4, lam=0.7, norm=None)", "Slerp(k=2, lam=0.5, norm='mask')"}
    cells = [
        result(tmp_path, "mini-math", name, "topn(2)", range(count))
        for name, count in {
            "vanilla": 5, "euclidean": 6, "slerp": 7, "euclidean(k=4, lam=0.7)": 8, "slerp(k=2, lam=0.5)": 14,
        }.items()
    ]  # fmt: skip
    made = measured({"best": cells}, study=one, searches={"best": Cells(found)})
    table, grid = best.tables(made)
    assert [cell.value for cell in cells_of(table, "mini-math", "2")] == [25.0, 30.0, 35.0, 40.0, 70.0]
    assert any("euclidean(k=4, lam=0.7) (60.0 %, of 2)" in note for note in table.notes)
    assert [cell.value for cell in cells_of(grid, "mini-math", "Euclidean", "4")] == [None, None, None, 60.0]
    (ahead,) = best.ahead(made)
    assert ahead.points == 30.0


def test_rivals_stand_beside_vanilla_and_slerp(tmp_path: Path) -> None:
    one = study(tasks=("mini-math",))
    settings = rivals.published(one, "mini-math")
    assert list(settings) == [
        "vanilla", "euclidean", "euclidean-mask-norm", "slerp", "additive", "norm-mix", "lrd", "remix", "soft-token-5",
    ]  # fmt: skip
    assert settings["slerp"] == "slerp(k=3, lam=0.3)"
    counts = {"vanilla": 5, "slerp": 15, "lrd": 10}
    cells = [
        result(tmp_path, "mini-math", settings[rule], "topn(8)", range(count), consistent=range(count + 2), forwards=8)
        for rule, count in counts.items()
    ]
    chosen = dict.fromkeys(("slerp(k=2, lam=0.5)", "lrd(r_f=0.4, p=0.5)"), 9)
    search = [
        result(tmp_path / "search", "mini-math", setting, commit, range(count))
        for setting, count in chosen.items()
        for commit in one.scale.rival_rates
    ]
    cells.append(result(tmp_path, "mini-math", "slerp(k=2, lam=0.5)", "topn(8)", range(18), forwards=8))
    cells.append(result(tmp_path, "mini-math", "lrd(r_f=0.4, p=0.5)", "topn(8)", range(2), forwards=8))
    made = measured({"rivals": cells}, study=one, searches={"rivals": Cells(search)})
    published, at_best = rivals.tables(made)
    accuracy, p, agree, both, passes, setting = cells_of(published, "mini-math", "8 a step", "LRD")
    assert (accuracy.value, agree.value, both.value, passes.value) == (50.0, 60.0, 50.0, 8.0)
    assert (p.value, accuracy.note, setting.value) == ("0.062", "p 0.062", "lrd")
    assert cells_of(published, "mini-math", "8 a step", "SLERP")[1].value is None
    assert cells_of(at_best, "mini-math", "8 a step", "LRD")[0].value == 10.0
    assert [row.labels[2] for row in at_best.rows] == ["vanilla", "SLERP", "LRD"]
    assert any("lrd(r_f=0.4, p=0.5) (45.0 %, of 1)" in note for note in at_best.notes)
    assert [each.points for each in rivals.ahead(made)] == [65.0]  # 18 against vanilla's 5, the best of the others
    assert [drawing.name for drawing in rivals.drawings(made)] == ["rivals-accuracy", "rivals-consistency"]


def test_every_setting_of_the_search_can_be_built() -> None:
    for grid in [*rivals.search(study()), *rivals.cells(study())]:
        found = [each.decoding for each in grid.outline("llada")]
        assert len({repr((each.commit, each.feedback)) for each in found}) == len(found)


def test_consistency_is_shown_beside_accuracy(tmp_path: Path) -> None:
    cells = [
        result(tmp_path, "mini-math", name, f"topn({n})", range(10), consistent=range(2, count))
        for name, n, count in (("vanilla", 1, 20), ("vanilla", 4, 5), ("slerp", 4, 15))
    ]
    found = measured({"consistent": cells})
    alone, both = consistent.tables(found)
    assert [cell.value for cell in cells_of(alone, "mini-math", "4")] == [15.0, None, 65.0]
    assert [cell.value for cell in cells_of(both, "mini-math", "4")] == [15.0, None, 40.0]
    assert [cell.value for cell in cells_of(alone, "mini-math", "1")] == [90.0, None, None]
    first, *_ = consistent.EXPERIMENT.findings(found)
    assert (first.scope, first.verdict, first.strength) == ("mini-math", "holds", "k = 3, λ = 0.3")
    assert consistent.cells is table7.cells
