"""From lists to cells: all of them, none twice, and no bad value gets past the start."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import softdlm
from softdlm import Decoding
from softdlm.errors import CheckpointError, PromptError, UsageError
from softdlm.evaluate.cell import Cell, ModelSpec, TaskSpec
from softdlm.evaluate.grid import Grid, Planned, plan, sweep
from softdlm.evaluate.readings import Readings
from tests.conftest import FAMILIES
from tests.evaluate.cells import RULES
from tests.tokenizers import checkpoint

METHODS = ("vanilla", "euclidean", "slerp")
RATES = ("topn(2)", "topn(4)", "topn(8)")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSpec]:
    root = tmp_path_factory.mktemp("grid")
    return {
        family: ModelSpec.of(str(checkpoint(root / family, family)), device="cpu", mask_id={"llada2": 155}.get(family))
        for family in FAMILIES
    }


@pytest.fixture
def grid(models: dict[str, ModelSpec]) -> Grid:
    return Grid((models["llada"],), (TaskSpec("mini-math", limit=2),), sweep(Decoding(), METHODS, RATES))


def cells(grid: Grid) -> list[Cell]:
    return [each.cell for each in plan(grid).cells]


def methods(grid: Grid) -> list[str]:
    return [each.labels["method"] for each in cells(grid)]


def test_every_combination_is_a_cell_of_its_own(models: dict[str, ModelSpec]) -> None:
    tasks = tuple(TaskSpec(name, limit=2) for name in ("mini-math", "mini-code", "either-or"))
    found = plan(Grid(tuple(models.values()), tasks, sweep(Decoding(), METHODS, RATES)))
    assert found.failures == ()
    assert len({each.key for each in found.cells}) == len(found.cells) == 3 * 3 * (3 * 3 + 1)
    assert {len(each.items) for each in found.cells} == {2}


def test_vanilla_has_no_strength_and_comes_once(grid: Grid) -> None:
    swept = sweep(Decoding(), ("vanilla", "slerp"), ("topn(1)",), (2, 3), (0.1, 0.3))
    assert len(swept) == 5
    found = methods(replace(grid, decodings=swept))
    assert found == ["vanilla", *(f"slerp k={k} lam={lam}" for k in (2, 3) for lam in (0.1, 0.3))]


def test_a_rule_with_a_strength_of_its_own_keeps_it_in_a_sweep(grid: Grid) -> None:
    swept = sweep(Decoding(), ("slerp(k=1, lam=0.9)", softdlm.Euclidean(2, 0.7), "slerp"), ("topn(1)",), (4,), (0.1,))
    found = methods(replace(grid, decodings=swept, single=False))
    assert found == ["slerp k=1 lam=0.9", "euclidean k=2 lam=0.7", "slerp k=4 lam=0.1"]


def test_a_rule_inside_a_rule_has_its_strength_swept(grid: Grid) -> None:
    names = ("alternate(slerp)", "alternate(slerp(k=1), period=3)", "alternate(vanilla)", "alternate(norm-mix)")
    swept = sweep(Decoding(), names, ("hard_only(topn(2))",), (2, 4), (0.1,))
    assert methods(replace(grid, decodings=swept, single=False)) == [
        "alternate-slerp k=2 lam=0.1", "alternate-slerp k=4 lam=0.1", "alternate-slerp period=3 k=1 lam=0.1",
        "alternate-vanilla", "alternate-norm-mix k=1",
    ]  # fmt: skip


def test_single_token_decoding_is_added_unless_declined(grid: Grid) -> None:
    slerp = Decoding.of(feedback="slerp", tokens_per_step=2, block_length=4, rank="margin", cache="dual", refresh=3)
    one = replace(grid, decodings=(slerp,))
    single, other = plan(one).cells
    assert single.cell.decoding.rules == (softdlm.TopN(1, "margin"), softdlm.Mask())
    rules = {"commit": "topn(1, rank='margin')", "feedback": "vanilla"}
    assert single.protocol["decoding"] == {**other.protocol["decoding"], **rules}
    assert other.protocol["decoding"]["cache"] == "dual(refresh=3)"
    assert len(plan(replace(one, single=False)).cells) == 1


def test_the_models_own_settings_unless_others_are_given(grid: Grid, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "llada")
    own = {"feedback": "slerp", "k": 2, "lam": 0.5, "commit": "topn(4)", "max_new_tokens": 7}
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | {"decoding": own})
    )
    mine = replace(grid, models=(ModelSpec.of(str(folder), device="cpu"),), single=False)
    for recipe in (None, "paper"):
        (found,) = cells(replace(mine, decodings=(Decoding(),), recipe=recipe))
        assert found.decoding.rules == (softdlm.TopN(4), softdlm.Slerp(2, 0.5))
    given: list[tuple[Any, str]] = [
        ({"feedback": "euclidean"}, "euclidean k=2 lam=0.5"),
        ({"feedback": "slerp(lam=0.1)"}, "slerp k=2 lam=0.1"),
        ({"lam": 0.1}, "slerp k=2 lam=0.1"),
        ({"feedback": softdlm.Slerp()}, "slerp k=3 lam=0.3"),
    ]
    for fields, wanted in given:
        assert methods(replace(mine, decodings=(Decoding(**fields),))) == [wanted]
    (task,) = mine.tasks
    (found,) = cells(replace(mine, decodings=(Decoding(),)))
    assert found.decoding.max_new_tokens == softdlm.tasks.load_task(task.name).max_new_tokens, "the task's length"


def test_the_recipe_chooses_by_family_and_benchmark(
    models: dict[str, ModelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake: Any = ModuleType("softdlm.evaluate.benchmarks")
    fake.load_benchmark = lambda name, model, **options: SimpleNamespace(
        items=[SimpleNamespace(id="0", prompt="abc", stop=())],
        max_new_tokens=7,
        eos="allow",
        score=lambda item, text: {"correct": False, "reason": ""},
        protocol=lambda: {"name": name},
    )
    monkeypatch.setitem(sys.modules, "softdlm.evaluate.benchmarks", fake)
    both = (models["llada"], models["dream"])
    two = sweep(Decoding(), ("slerp",), RATES[:1])
    asked = Grid(both, (TaskSpec("humaneval"),), two, single=False)
    for each in cells(asked):
        assert (each.labels["method"], each.decoding.max_new_tokens, each.decoding.eos) == (
            "slerp k=3 lam=0.3", 7, "allow",
        )  # fmt: skip
    llada, dream = (each.decoding for each in cells(replace(asked, recipe="paper")))
    assert llada.rules == (softdlm.TopN(2), softdlm.Slerp(3, 0.3))
    assert (llada.max_new_tokens, llada.eos, llada.temperature) == (512, "forbid-first", 0.0)
    assert dream.rules == (softdlm.TopN(2, "entropy"), softdlm.Slerp(2, 0.3))
    assert (dream.max_new_tokens, dream.eos, dream.temperature, dream.top_p) == (768, "allow", 0.1, 0.9)
    (unsaid,) = cells(replace(asked, models=both[1:], recipe="paper", decodings=(Decoding(),)))
    assert unsaid.decoding.commit == softdlm.TopN(1, "entropy")
    greedy = replace(asked, models=both[1:], recipe="paper", readings=Readings.of(["dream=dream-greedy"]))
    (found,) = (each.decoding for each in cells(greedy))
    assert (found.commit, found.temperature, found.top_p) == (softdlm.TopN(2), 0.0, None)
    given = sweep(Decoding(eos="last", max_new_tokens=9), ("slerp",), RATES[:1], (4,), (0.5,))
    (found,) = (each.decoding for each in cells(replace(asked, models=both[:1], recipe="paper", decodings=given)))
    assert (found.feedback, found.max_new_tokens, found.eos) == (softdlm.Slerp(4, 0.5), 9, "last")


def test_a_missing_model_does_not_cost_the_others(grid: Grid) -> None:
    nowhere = replace(grid.models[0], name="/no/where")
    found = plan(replace(grid, models=(nowhere, *grid.models)))
    assert len(found.cells) == len(plan(grid).cells)
    assert len(found.failures) == 1
    assert "no such folder: /no/where" in found.failures[0]
    with pytest.raises(CheckpointError, match="no such folder"):
        plan(replace(grid, models=(nowhere,)))


def test_a_prompt_that_does_not_fit_is_said_at_the_start(grid: Grid) -> None:
    with pytest.raises(PromptError, match=r"mini-math on .* may take 4090 more, the model's context is 4096"):
        plan(replace(grid, decodings=(Decoding(max_new_tokens=4090),)))


def test_a_rule_from_a_file_makes_cells_and_an_edited_file_makes_others(grid: Grid, tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    file.write_text(RULES)
    mine = sweep(Decoding(), ("vanilla", f"{file}:Mine(k=2)"), (f"{file}:leftmost",))

    def planned() -> list[Planned]:
        return list(plan(replace(grid, decodings=mine, single=False)).cells)

    vanilla, own = before = planned()
    assert own.cell.labels["method"] == "Mine k=2"
    assert own.protocol["decoding"]["feedback"] == "rules.py:Mine(k=2)"
    assert own.protocol["decoding"]["commit"] == vanilla.protocol["decoding"]["commit"] == "rules.py:leftmost"
    assert {"commit_source", "feedback_source"} <= own.protocol["decoding"].keys()
    assert "feedback_source" not in vanilla.protocol["decoding"]
    assert planned() == before
    file.write_text(RULES.replace("<= 2", "<= 3"))
    mine = sweep(Decoding(), ("vanilla", f"{file}:Mine(k=2)"), (f"{file}:leftmost",))
    assert not {each.key for each in planned()} & {each.key for each in before}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"feedback": ("slurp",)}, "unknown feedback rule 'slurp'"),
        ({"lams": (0.3, 2.0)}, r"lam must lie in \[0, 1\], not 2.0"),
        ({"ks": (0,)}, "k must be at least 1, not 0"),
        ({"commits": ("topn(0)",)}, "n must be at least 1, not 0"),
        ({"commits": ("threshold(-1)",)}, "tau must be at least 0, not -1"),
        ({"commits": ()}, "no decodings: give at least one"),
    ],
)
def test_bad_values_of_a_sweep_are_refused(grid: Grid, fields: dict[str, Any], message: str) -> None:
    words: dict[str, Any] = {"feedback": METHODS, "commits": RATES, **fields}
    with pytest.raises(UsageError, match=message):
        replace(grid, decodings=sweep(Decoding(), **words))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decodings": (Decoding(feedback="vanilla", k=3),)}, "k 3 has no effect on the feedback rule vanilla"),
        ({"decodings": (Decoding(commit="factor(1.0)", rank="entropy"),)}, "rank entropy has no effect"),
        ({"recipe": "pasta"}, "unknown recipe 'pasta'"),
        ({"readings": Readings.of(["dream=dream-dllm"])}, "reading dream needs the recipe paper"),
    ],
)
def test_bad_values_are_refused_before_anything_is_run(grid: Grid, change: dict[str, Any], message: str) -> None:
    make: Callable[..., Any] = replace
    with pytest.raises(UsageError, match=message):
        make(grid, **change)
