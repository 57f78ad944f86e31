"""What a study decides: places, readings, scales, and which cells the tables share."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from softdlm.commit import TopN
from softdlm.errors import UsageError
from softdlm.evaluate.cell import ModelSpec
from softdlm.evaluate.grid import Finder, Grid, join, plans
from softdlm.evaluate.readings import READINGS, Readings
from softdlm.evaluate.run import expected_passes
from softdlm.feedback import Additive, Euclidean, Mask, NormMix, Slerp
from softdlm.reproduce import analyses, figure2, frontier, rivals, table2, table5, table6, table7
from softdlm.reproduce.experiments import EXPERIMENTS, NAMES, select
from softdlm.reproduce.study import FULL, QUICK, Study
from tests.reproduce.made import study

REAL = ("gsm8k", "math500", "humaneval", "mbpp")
BUDGET = 40_000
"""Sample-passes of a quick run on the built-in model; the analyses took 14,500 of them when counted."""
ANALYSES = 14_500


def real(**changes: Any) -> Study:
    return Study(ModelSpec("a/b", "cpu", "float32"), "llada", REAL, **changes)


def test_built_in_tasks_take_the_places_of_their_domains_benchmarks() -> None:
    assert study().places("gsm8k", "math500", "humaneval") == {"mini-math": "gsm8k", "mini-code": "humaneval"}
    assert study().places("math500") == {"mini-math": "math500"}
    assert real().places("math500", "humaneval") == {"math500": "math500", "humaneval": "humaneval"}
    assert study(tasks=("mini-math",)).places("humaneval") == {}


def test_a_model_of_the_paper_is_known_and_another_gets_its_family_for_orientation() -> None:
    dream = replace(real(), model=ModelSpec("Dream-org/Dream-v0-Instruct-7B", "cpu", "float32"), family="Dream").printed
    assert (dream.model, dream.same) == ("Dream", True)
    assert dream.value(table2.PAPER, "humaneval", 4) == (17.68, 23.78, 32.32)
    mine = replace(real(), family="llada2_moe").printed
    assert (mine.model, mine.same) == ("LLaDA-2.0-mini", False)
    assert mine.value(table5.PAPER, "math500") is None
    assert mine.value(table5.PAPER, "math500", "slerp") is None


def test_prompts_are_raw_text_unless_told_otherwise() -> None:
    assert not Study.of("builtin", device="cpu").chat
    chat = Study.of("builtin", device="cpu", readings=Readings.of(["prompts=chat"]))
    assert chat.chat
    assert not real().chat
    assert chat.record()["readings"]["prompts"] == "chat"


def test_the_recipe_decides_the_strength() -> None:
    assert study().strength("mini-math") == (3, 0.3)
    assert real().strength("gsm8k") == (2, 0.3)
    dream = Study(ModelSpec("a/b", "cpu", "float32"), "Dream", REAL)
    assert [dream.strength(task) for task in ("math500", "mbpp")] == [(3, 0.1), (2, 0.3)]
    assert dream.record()["readings"]["dream"] == "dream-dllm"
    assert set(dream.record()["readings"]) == set(READINGS)


def test_a_cap_is_said_and_lowers_everything() -> None:
    capped = QUICK.capped(5)
    assert capped.mark == f"{QUICK.mark}, at most 5 items of each kind"
    assert (capped.items, capped.prompts, capped.completions) == ({"math": 5, "code": 5}, 5, 3)
    assert FULL.mark == ""
    assert FULL.capped(3).mark == "at most 3 items of each kind"
    with pytest.raises(UsageError, match="at least 1"):
        FULL.capped(0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: study(tasks=("either-or",)), "either-or"),
        (lambda: study(tasks=()), "none"),
        (lambda: select(["table9"]), "unknown experiment table9"),
        (lambda: select([]), "give all"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        change()


def test_experiments_come_in_the_papers_order_whatever_was_asked() -> None:
    assert [each.name for each in select(["table5", "figure1"])] == ["figure1", "table5"]
    assert tuple(each.name for each in select(["all"])) == NAMES
    assert len(NAMES) == 16
    assert tuple(each.name for each in EXPERIMENTS) == NAMES


def labels(made: list[Grid], task: str) -> set[tuple[str, str]]:
    found = set()
    for grid in made:
        named = [each.labels for each in grid.outline("llada")]
        found |= {(each["method"], each["rate"]) for each in named if each["task"] == task}
    return found


def test_table_6_takes_the_first_500_of_gsm8k_unless_told_otherwise() -> None:
    limits = {spec.name: spec.limit for grid in table6.cells(real()) for spec in grid.tasks}
    assert limits == {"gsm8k": 500, "humaneval": None}
    full = {
        spec.name: spec.limit
        for grid in table6.cells(real(readings=Readings.of(["table6-items=full"])))
        for spec in grid.tasks
    }
    assert full == {"gsm8k": None, "humaneval": None}
    capped = table6.cells(real(scale=FULL.capped(7)))
    assert {spec.limit for grid in capped for spec in grid.tasks} == {7}


def test_the_tables_ask_for_what_the_paper_has() -> None:
    made = real()
    assert {spec.name for grid in table5.cells(made) for spec in grid.tasks} == {"math500", "humaneval"}
    assert labels(table5.cells(made), "math500") == {
        (f"{name} k=2 lam=0.3", "2 a step") for name in ("slerp", "slerp-candidate-norm", "euclidean-mask-norm")
    }
    assert {spec.name for grid in figure2.cells(made) for spec in grid.tasks} == {"humaneval"}
    sweep = labels(figure2.cells(made), "humaneval")
    assert {f"slerp k=3 lam={lam}" for lam in ("0.1", "0.5", "0.7")} <= {label for label, _ in sweep}
    assert {f"slerp k={k} lam=0.3" for k in (1, 2, 3, 4, 8)} <= {label for label, _ in sweep}
    assert {rate for _, rate in labels(figure2.cells(real(readings=Readings.of(["figure2-rate=4"]))), "humaneval")} == {
        "4 a step"
    }
    assert ("vanilla", "1 a step") in labels(table7.cells(made), "mbpp")
    assert ("slerp k=3 lam=0.3", "threshold 0.9") in labels(table6.cells(made), "humaneval")
    rates = {rate for _, rate in labels(frontier.cells(made), "humaneval")}
    assert {"threshold 0.5", "entropy bound 0.8"} <= rates


def test_rules_of_others_keep_their_own_strength() -> None:
    strength = {"k": 4, "lam": 0.7}
    math, _ = rivals.cells(study())
    assert {NormMix(), Additive(), Slerp(3, 0.3)} <= {
        each.decoding.feedback for each in math.outline("llada", strength)
    }
    assert analyses.rules_of(analyses.SOFT, 4, 0.7) == {
        "euclidean": Euclidean(4, 0.7), "slerp": Slerp(4, 0.7), "additive": Additive(), "norm-mix": NormMix(),
    }  # fmt: skip


def test_an_experiment_without_a_task_asks_for_nothing() -> None:
    assert table5.cells(study(tasks=("gsm8k",))) == []


@pytest.mark.filterwarnings("ignore:generated code will run without a sandbox")
def test_shared_cells_are_measured_once_and_a_quick_run_keeps_its_budget() -> None:
    """Adaptive rules are counted at the most they were seen to take on mini-math, half the canvas."""
    quick = Study.of("builtin", quick=True, device="cpu", allow_unsandboxed=True)
    finder = Finder()
    made = {each.name: join(plans(each.cells(quick), finder)) for each in EXPERIMENTS if each.cells is not None}
    keys = {name: {cell.key for cell in plan.cells} for name, plan in made.items()}
    whole = join(list(made.values()))
    assert len(whole.cells) < sum(map(len, keys.values()))
    assert keys["table2"] < keys["table7"]
    assert len(keys["table7"] - keys["table2"]) == 2
    for name, shared in {"table5": 2, "figure2": 4, "frontier": 22, "best": 18, "consistent": 20}.items():
        assert len(keys[name] & (keys["table7"] | keys["table6"])) == shared
    searched = join([plan for each in EXPERIMENTS if each.search for plan in plans(each.search(quick), finder)])
    soft = [each for name in ("rivals", "best") for each in made[name].cells]
    followed = [each for each in soft if each.cell.decoding.feedback != Mask()]  # the chosen settings cost no more
    passes = 0.0
    for cell in [*whole.cells, *searched.cells, *followed]:
        adaptive = not isinstance(cell.cell.decoding.commit, TopN)
        passes += len(cell.items) * (32 if adaptive else expected_passes(cell.cell.decoding))
    assert passes + ANALYSES < BUDGET
