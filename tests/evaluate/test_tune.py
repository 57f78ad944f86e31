"""The race itself: within its budget, resumed it ends as an undisturbed one, and its file gives the settings back."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import softdlm
from softdlm.errors import ResultsError, SoftDLMError, UsageError
from softdlm.evaluate import tune as tuning
from softdlm.evaluate.cell import Cell, ModelSpec
from softdlm.evaluate.executors import Failure, LocalExecutor, Work
from softdlm.evaluate.grid import Grid, plan
from softdlm.evaluate.race import Goal
from softdlm.evaluate.racing import Course, Race, Standing, Store, most_passes
from softdlm.evaluate.run import run
from softdlm.evaluate.tuned import conclude
from softdlm.models.own_settings import OwnSettings
from softdlm.records.journal import MANIFEST, SAMPLES, SUMMARY, Sample, read_samples
from softdlm.registry import spell
from tests.evaluate.cells import cell, planned, sample
from tests.tokenizers import checkpoint

ITEMS = [f"item{number:03}" for number in range(60)]
CELLS = [
    cell(),
    cell("slerp(k=1, lam=0.3)", "topn(2)"),
    cell("slerp(k=1, lam=0.3)", "topn(4)"),
    cell("vanilla", "topn(4)"),
    cell("slerp(k=3, lam=0.3)", "topn(8)"),
]
"""The reference first; their canvas has 8 tokens."""
WRONG = {"topn(1)": 0, "topn(2)": 0, "topn(4)": 2, "topn(8)": 30}


@dataclass
class Fake:
    """Answers as the settings would: passes by the commit rule, errors by a table."""

    stop_after: int | None = None
    broken: tuple[str, ...] = ()
    late: int = 0
    """Further passes of the items after the first round."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)

    def run(self, works: Iterable[Work]) -> Iterator[tuple[str, Sample | Failure]]:
        for work in works:
            self.works.append(work)
            commit = spell(work.cell.decoding.commit)
            for item in reversed(work.items):
                if commit in self.broken:
                    yield work.key, Failure("it broke")
                    break
                if len(self.asked) == self.stop_after:
                    raise KeyboardInterrupt
                self.asked.append((work.key, item))
                wrong = ITEMS.index(item) % 30 < WRONG[commit]
                passes = 8 // int(commit[5:-1]) + self.late * (ITEMS.index(item) >= 12)
                yield work.key, sample(item, not wrong, forwards=min(8, passes))

    def record(self, cell: Cell) -> dict[str, Any]:
        return {"executor": "fake", "batch_size": 1}


def race(
    out: Path, executor: Fake, budget: int = 10_000, goal: Goal = Goal(within=5), cells: list[Cell] = CELLS, **more: Any
) -> Race:
    settings = tuple(planned(each, ITEMS) for each in cells)
    made = Race(Course(settings, ()), Store(out, executor), goal, budget, more.pop("alpha", 0.05), **more)
    made.run()
    return made


def test_a_race_says_how_many_passes_it_expects(tmp_path: Path) -> None:
    executor = Fake()
    race(tmp_path, executor, cells=CELLS[:2])
    expected = {planned(each, ITEMS).key: 8 // rate for each, rate in zip(CELLS, (1, 2), strict=False)}
    assert [work.passes for work in executor.works] == [len(work.items) * expected[work.key] for work in executor.works]


def decisions(found: Race) -> dict[str, Any]:
    chosen = found.choice()
    return {
        "out": {each.name: (each.out, len(each.samples)) for each in found.others},
        "chosen": None if chosen is None else chosen.name,
        "used": found.used,
        "size": found.size,
    }


def test_the_race_drops_what_is_worse_and_chooses_the_fastest_within(tmp_path: Path) -> None:
    said: list[Any] = []
    found = race(tmp_path, Fake(), report=said.append)
    out = {each.name: each.out for each in found.others}
    assert out["slerp(k=3, lam=0.3) with topn(8)"].startswith("dropped after 12 items: 0 % right, reference 100 %")
    chosen = found.choice()
    assert chosen is not None
    assert chosen.name == "slerp(k=1, lam=0.3) with topn(2)", "four of 60 wrong are more than 5 points"
    assert found.size == 60
    assert next(each for each in said if isinstance(each, str)).startswith("12 items: 3 of 4 settings left, ")
    assert all(isinstance(each, Standing) or "settings left" in each for each in said)
    assert max(len(each.line(79)) for each in said if isinstance(each, Standing)) <= 79


def test_cells_are_those_of_eval_and_only_whole_ones_are_finished(tmp_path: Path) -> None:
    found = race(tmp_path, Fake())
    for each in (found.reference, *found.others):
        folder = tmp_path / each.planned.key
        assert (folder / SUMMARY).exists() == (len(each.samples) == 60)
        assert len(json.loads((folder / MANIFEST).read_text())["sessions"]) == 1
        assert len(read_samples(folder / SAMPLES)[0]) == len(each.samples)
    assert any(len(each.samples) == 12 for each in found.others)


@pytest.mark.parametrize("stop", [0, 1, 11, 12, 13, 40, 77, 130])
def test_stopped_anywhere_it_ends_as_undisturbed_and_decodes_nothing_twice(tmp_path: Path, stop: int) -> None:
    whole = Fake()
    undisturbed = decisions(race(tmp_path / "whole", whole))
    first, second = Fake(stop_after=stop), Fake()
    with pytest.raises(KeyboardInterrupt):
        race(tmp_path / "out", first)
    assert decisions(race(tmp_path / "out", second)) == undisturbed
    assert sorted(first.asked + second.asked) == sorted(whole.asked)
    third = Fake()
    assert decisions(race(tmp_path / "out", third)) == undisturbed
    assert third.asked == []


@pytest.mark.parametrize("budget", [0, 7, 8, 95, 96, 97, 300, 480, 500, 750, 1000, 1500])
@pytest.mark.parametrize("late", [0, 6])
def test_the_budget_holds_and_what_does_not_fit_is_said(tmp_path: Path, budget: int, late: int) -> None:
    """Also where later items take more passes than any before them."""
    found = race(tmp_path, Fake(late=late), budget)
    on_disk = [each for file in tmp_path.glob(f"*/{SAMPLES}") for each in read_samples(file)[0].values()]
    assert found.used == sum(each.forwards for each in on_disk) <= budget
    short = found.size < 60
    said = found.ended or any("the budget had no room" in each.out for each in found.others)
    assert not short or said


def test_what_does_not_fit_is_not_begun(tmp_path: Path) -> None:
    """After the first round and 24 items of the reference 20 passes are left, and twelve items need at least 24."""
    found = race(tmp_path, Fake(), 96 + 48 + 24 + 24 + 12 + 96 + 20)
    assert len(found.reference.samples) == 24
    assert {len(each.samples) for each in found.others} == {12}
    assert found.ended == "The race ended at 12 items: the 20 passes left are too few for 24 items."


def test_samples_that_lie_there_count_and_change_nothing(tmp_path: Path) -> None:
    """A search with a small budget decides the same after one with a large budget."""
    small = decisions(race(tmp_path / "small", Fake(), 700))
    race(tmp_path / "both", Fake())
    again = Fake()
    assert decisions(race(tmp_path / "both", again, 700)) == small
    assert again.asked == []


def test_the_order_of_settings_changes_nothing(tmp_path: Path) -> None:
    for number, budget in enumerate((10_000, 700, 230)):
        one = decisions(race(tmp_path / f"{number}a", Fake(), budget))
        other = decisions(race(tmp_path / f"{number}b", Fake(), budget, cells=[CELLS[0], *reversed(CELLS[1:])]))
        assert one == other


def test_a_failing_setting_costs_itself_and_a_failing_reference_all(tmp_path: Path) -> None:
    found = race(tmp_path / "one", Fake(broken=("topn(2)",)))
    assert [each.out for each in found.others if "failed" in each.out] == [
        "failed: tiny · mini-math · slerp k=1 lam=0.3 · 2 a step: it broke"
    ]
    assert found.size == 60
    with pytest.raises(SoftDLMError, match="it broke"):
        race(tmp_path / "all", Fake(broken=("topn(1)",)))


def test_a_cell_that_another_process_writes_ends_the_race(tmp_path: Path) -> None:
    from softdlm.records.journal import Journal

    held = planned(CELLS[2], ITEMS)
    with Journal(tmp_path / held.key, held.protocol, held.cell.labels), pytest.raises(ResultsError, match="another"):
        race(tmp_path, Fake())


def test_rows_hold_the_reference_the_finalists_and_the_reasons(tmp_path: Path) -> None:
    found = race(tmp_path, Fake())
    tuned = conclude(
        found, {"model": "tiny", "task": "mini-math", "split": "validation"}, [], tmp_path / "settings.json"
    )
    assert [row["note"] for row in tuned.rows if row["is_reference"]] == ["reference"]
    (chosen,) = (row for row in tuned.rows if "chosen" in row["note"])
    assert (chosen["commit"], chosen["passes"], chosen["accuracy"], chosen["p"]) == ("topn(2)", 4, 100, 1)
    assert tuned.chosen == CELLS[1].decoding
    assert all(row["items"] == 60 for row in tuned.finalists)
    assert "dropped after 12 items" in tuned.markdown()
    assert "flattered" in tuned.markdown()
    assert "dropped" not in str(tuned)
    assert json.dumps(tuned.record())


def test_a_rule_that_may_wait_is_bounded_too() -> None:
    assert most_passes(cell().decoding) == 8
    assert most_passes(cell(commit="lrd(most=3)").decoding) == 11
    assert most_passes(cell(commit="topn-eps(2)").decoding) == 16
    assert most_passes(cell(block_length=4).decoding) == 11


def test_fixed_rates_keep_to_the_passes() -> None:
    base = softdlm.Decoding()
    assert tuning.fixed_rates(Goal(passes=8.5), base, 64) == ("topn(8)", "steps(8, schedule='power')")
    assert tuning.fixed_rates(Goal(passes=7), base, 64) == ("topn(10)", "steps(7, schedule='power')")
    blocks = softdlm.Decoding(block_length=16)
    assert tuning.fixed_rates(Goal(passes=8), blocks, 64) == ("topn(8)", "steps(2, schedule='power')")
    assert tuning.fixed_rates(Goal(passes=3), blocks, 64) == ()
    assert tuning.fixed_rates(Goal(within=1), base, 64) == ()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("tune") / "llada", "llada")


QUICK: dict[str, Any] = {"feedback": ["vanilla", "slerp"], "commit": ["topn(8)"], "k": [2], "lam": [0.4], "items": 3}


@pytest.fixture(scope="module")
def tuned(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    out = tmp_path_factory.mktemp("tuned")
    model = softdlm.load(folder, device="cpu")
    return softdlm.tune(model, "mini-math", **QUICK, decoding={"max_new_tokens": 16}, out=out), out


def test_tune_writes_settings_that_every_entry_point_takes(
    tuned: tuple[Any, Path], folder: Path, tmp_path: Path
) -> None:
    """A model of random weights solves nothing, so the fastest setting is within any distance of the reference."""
    found, out = tuned
    assert found.settings == out / "settings.json"
    written = json.loads(found.settings.read_text())
    assert written["softdlm_settings"] == 1
    assert written["decoding"] == {
        "feedback": spell(found.chosen.feedback, full=True),
        "commit": "topn(8, rank='confidence')",
        "max_new_tokens": 16,
    }
    assert written["made"]["items"] == 3
    assert written["made"]["goal"] == "fewest passes within 1 point of the reference"
    model = softdlm.load(folder, device="cpu", settings=found.settings)
    assert softdlm.Decoding().settled(model.own).rules == found.chosen.rules
    answer = softdlm.generate(model, "What is 1 + 2?")
    same = softdlm.generate(softdlm.load(folder, device="cpu"), "What is 1 + 2?", decoding=found.chosen)
    assert (answer.ids, answer.forwards) == (same.ids, same.forwards)
    one = softdlm.evaluate(model, "mini-math", {"max_new_tokens": 16}, limit=3, split="validation", out=out / "cells")
    (chosen,) = (row for row in found.rows if "chosen" in row["note"])
    assert one.folders == (out / "cells" / chosen["cell"],), "the settings fill the Decoding, and the cell is there"


def test_cells_have_the_names_and_samples_of_an_evaluation(
    tuned: tuple[Any, Path], folder: Path, tmp_path: Path
) -> None:
    _, out = tuned
    spec = ModelSpec.of(str(folder), device="cpu")
    swept = tuning.sweep(softdlm.Decoding(max_new_tokens=16), QUICK["feedback"], QUICK["commit"], [2], [0.4])
    chosen = plan(Grid((spec,), (tuning.task_of("mini-math", limit=3),), swept))
    assert {each.key for each in chosen.cells} == {file.name for file in (out / "cells").iterdir()}
    assert run(chosen, tmp_path, LocalExecutor()) == {}
    for each in chosen.cells:
        ours, theirs = (read_samples(place / each.key / SAMPLES)[0] for place in (out / "cells", tmp_path))
        assert {i: replace(s, seconds=0) for i, s in ours.items()} == {
            i: replace(s, seconds=0) for i, s in theirs.items()
        }


def test_a_second_call_decodes_nothing_and_the_figure_is_there(
    tuned: tuple[Any, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, out = tuned
    assert (out / "frontier.svg").read_text().startswith("<?xml")
    assert "| feedback | commit | passes |" in (out / "table.md").read_text()
    monkeypatch.setattr(ModelSpec, "load", None)
    again = softdlm.tune(str(folder), "mini-math", **QUICK, decoding={"max_new_tokens": 16}, out=out)
    assert again.rows == found.rows


def test_without_matplotlib_there_is_a_line_instead_of_a_figure(
    tuned: tuple[Any, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out = tuned
    (out / "frontier.svg").unlink(missing_ok=True)
    monkeypatch.setattr(tuning, "find_spec", lambda name: None)
    again = softdlm.tune(str(folder), "mini-math", **QUICK, decoding={"max_new_tokens": 16}, out=out)
    assert any("needs matplotlib" in note for note in again.notes)
    assert not (out / "frontier.svg").exists()


def test_few_items_are_used_where_the_reference_would_take_the_budget(folder: Path, tmp_path: Path) -> None:
    words: dict[str, Any] = {**QUICK, "items": 5, "decoding": {"max_new_tokens": 8}}
    found = softdlm.tune(str(folder), "mini-math", **words, budget=3 * 8 * 2 + 5, out=tmp_path)
    assert found.about["items"] == 2
    assert "2 of 5 items are used. All of them need --budget 120." in found.notes[0]
    with pytest.raises(UsageError, match=r"budget 23 is too small: .* give at least 24"):
        softdlm.tune(str(folder), "mini-math", **words, budget=23, out=tmp_path)


def test_no_setting_within_the_passes_is_no_choice_and_no_file(folder: Path, tmp_path: Path) -> None:
    words: dict[str, Any] = {**QUICK, "items": 2, "decoding": {"max_new_tokens": 16}, "out": tmp_path}
    assert softdlm.tune(str(folder), "mini-math", passes=2, **words).settings is not None
    found = softdlm.tune(str(folder), "mini-math", passes=1, **words)
    assert (found.chosen, found.settings) == (None, None)
    assert not (tmp_path / "settings.json").exists(), "that of the earlier search would be taken for its own"


def test_rules_of_ones_own_are_tuned_but_never_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(
        "def leftmost(prediction, open, context):\n    return open & (open.cumsum(1) <= 9)\n"
    )
    words: dict[str, Any] = {**QUICK, "items": 2, "commit": [f"{tmp_path}/rules.py:leftmost"]}
    found = softdlm.tune(str(folder), "mini-math", **words, decoding={"max_new_tokens": 16}, out=tmp_path / "out")
    assert found.chosen is not None
    assert found.settings is None
    assert "programs of your own" in found.notes[-1]


def test_a_task_is_tuned_on_items_that_are_not_tested() -> None:
    assert tuning.task_of("mini-math").split == "validation"
    assert tuning.task_of("gsm8k").split == "test"
    search = tuning.Search(ModelSpec("m", "cpu", "float32"), tuning.task_of("gsm8k"), Goal(within=1))
    assert next(iter(tuning._notes(search, 5, 5, 64))).startswith("gsm8k has test items only")
    assert search.most == 200
    assert replace(search, task=tuning.task_of("mine.jsonl")).most is None


def test_the_grid_is_every_rule_at_every_strength() -> None:
    search = tuning.Search(ModelSpec("m", "cpu", "float32"), tuning.task_of("mini-math"), Goal(within=1))
    assert len(search.grid(search.task, 64).decodings) == (1 + 6 + 6 + 6) * 4
    assert len(replace(search, goal=Goal(passes=8)).grid(search.task, 64).decodings) == 19 * 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"items": 0}, "items must be at least 1, not 0"),
        ({"budget": 0}, "budget must be at least 1 forward pass, not 0"),
        ({"alpha": 0.6}, "alpha must lie between 0 and 0.5, not 0.6"),
        ({"within": 1, "passes": 2}, "give within"),
        ({"feedback": ["slurp"]}, "unknown feedback rule 'slurp'"),
        ({"commit": ["topn(0)"]}, "must be at least 1"),
        ({"lam": [3]}, r"must lie in \[0, 1\]"),
        ({"feedback": []}, "no decodings"),
        ({"decoding": {"eos": "never"}}, "eos must be one of"),
    ],
)
def test_a_bad_value_is_an_error_before_the_model_is_looked_for(
    words: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        softdlm.tune("/no/where", "mini-math", **words, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_keeps_its_settings_in_an_evaluation(folder: Path) -> None:
    from softdlm.evaluate.api import model_spec

    model = softdlm.load(folder, device="cpu", settings=OwnSettings(commit="topn(8)", max_new_tokens=9))
    assert model_spec(model, LocalExecutor()).checkpoint().own == model.own
