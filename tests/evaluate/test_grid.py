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
from softdlm.errors import CheckpointError, PromptError, UsageError
from softdlm.evaluate.cell import SINGLE, ModelSpec, Rate, TaskSpec
from softdlm.evaluate.grid import Grid, plan
from softdlm.models.load import read_config
from tests.conftest import FAMILIES
from tests.tokenizers import checkpoint

RATES = tuple(Rate("tokens_per_step", n) for n in (2, 4, 8))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSpec]:
    root = tmp_path_factory.mktemp("grid")
    return {
        family: ModelSpec.of(str(checkpoint(root / family, family)), device="cpu", mask_id={"llada2": 155}.get(family))
        for family in FAMILIES
    }


@pytest.fixture
def grid(models: dict[str, ModelSpec]) -> Grid:
    return Grid((models["llada"],), (TaskSpec("mini-math", limit=2),), rates=RATES)


def test_every_combination_is_a_cell_of_its_own(models: dict[str, ModelSpec]) -> None:
    tasks = tuple(TaskSpec(name, limit=2) for name in ("mini-math", "mini-code", "either-or"))
    found = plan(Grid(tuple(models.values()), tasks, rates=RATES))
    assert found.failures == ()
    assert len({each.key for each in found.cells}) == len(found.cells) == 3 * 3 * (3 * 3 + 1)
    assert {len(each.items) for each in found.cells} == {2}


def test_vanilla_has_no_strength_and_comes_once(grid: Grid) -> None:
    swept = replace(grid, methods=("vanilla", "slerp"), rates=(SINGLE,), ks=(2, 3), lams=(0.1, 0.3))
    labels = [each.cell.decoding.label for each in plan(swept).cells]
    assert labels == ["vanilla", *(f"slerp k={k} lam={lam}" for k in (2, 3) for lam in (0.1, 0.3))]


def test_single_token_decoding_is_added_unless_declined(grid: Grid) -> None:
    one = replace(grid, methods=("slerp",), rates=RATES[:1], block_length=4, rank="margin", cache="dual", refresh=3)
    single, slerp = plan(one).cells
    assert (single.cell.decoding.method, single.cell.decoding.rate) == ("vanilla", SINGLE)
    assert single.cell.decoding.commit == softdlm.TopN(1, "margin")
    assert single.protocol["decoding"] == slerp.protocol["decoding"]
    assert (slerp.protocol["decoding"]["cache"], slerp.protocol["decoding"]["refresh"]) == ("dual", 3)
    renewed = plan(replace(one, refresh=None, renew=2)).cells
    assert [each.protocol["decoding"]["renew"] for each in renewed] == [2, 2]
    assert len(plan(replace(one, single=False)).cells) == 1


def test_the_models_own_strength_unless_another_is_given(grid: Grid, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "llada")
    (folder / "config.json").write_text(json.dumps(read_config(folder) | {"soft_tokens": {"k": 2, "lam": 0.5}}))
    mine = replace(grid, models=(ModelSpec.of(str(folder), device="cpu"),), methods=("slerp",), single=False)
    for recipe in (None, "paper"):
        assert {each.cell.decoding.label for each in plan(replace(mine, recipe=recipe)).cells} == {"slerp k=2 lam=0.5"}
    assert {each.cell.decoding.label for each in plan(replace(mine, lams=(0.1,))).cells} == {"slerp k=2 lam=0.1"}


def test_rules_of_ones_own_stand_beside_the_named_ones(grid: Grid) -> None:
    mine = replace(grid, methods=("vanilla", ("mine", softdlm.Slerp(k=1, lam=0.9))), rates=RATES[:1])
    assert [each.cell.decoding.label for each in plan(mine).cells][1:] == ["vanilla", "mine k=1 lam=0.9"]


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
    asked = Grid(both, (TaskSpec("humaneval"),), methods=("slerp",), rates=RATES[:1], single=False)
    plain = [each.cell.decoding for each in plan(asked).cells]
    assert [(each.label, each.max_new_tokens, each.eos) for each in plain] == [("slerp k=3 lam=0.3", 7, "allow")] * 2
    llada, dream = (each.cell.decoding for each in plan(replace(asked, recipe="paper")).cells)
    assert (llada.label, llada.max_new_tokens, llada.eos) == ("slerp k=3 lam=0.3", 512, "forbid-first")
    assert (dream.label, dream.max_new_tokens, dream.eos) == ("slerp k=2 lam=0.3", 768, "allow")
    assert (dream.temperature, dream.top_p, dream.commit) == (0.1, 0.9, softdlm.Steps(384, "eps", rank="entropy"))
    told = replace(asked, models=both[:1], recipe="paper", ks=(4,), lams=(0.5,), eos="last", max_new_tokens=9)
    (own,) = (each.cell.decoding for each in plan(told).cells)
    assert (own.label, own.max_new_tokens, own.eos) == ("slerp k=4 lam=0.5", 9, "last")


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
        plan(replace(grid, max_new_tokens=4090))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("slurp",)}, "unknown method 'slurp'"),
        ({"lams": (0.3, 2.0)}, r"lam must lie in \[0, 1\], not 2.0"),
        ({"ks": (0,)}, "k must be at least 1, not 0"),
        ({"rates": (Rate("tokens_per_step", 0),)}, "n must be at least 1, not 0"),
        ({"rates": (Rate("threshold", -1),)}, "tau must be at least 0, not -1"),
        ({"rates": ()}, "no rates"),
        ({"rates": (Rate("factor", 1.0),), "rank": "entropy"}, "the factor rule ranks by confidence, not by entropy"),
        ({"rank": "surely"}, "rank must be one of"),
        ({"eos": "never"}, "eos must be one of"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, not 0"),
        ({"block_length": -1}, "block_length must be at least 1"),
        ({"temperature": -0.1}, "temperature must be at least 0"),
        ({"recipe": "pasta"}, "unknown recipe 'pasta'"),
        ({"reading": "dream-dllm"}, "with the recipe paper"),
    ],
)
def test_bad_values_are_said_before_anything_is_run(grid: Grid, change: dict[str, Any], message: str) -> None:
    make: Callable[..., Any] = replace
    with pytest.raises(UsageError, match=message):
        make(grid, **change)
