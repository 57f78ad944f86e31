"""What names a cell: everything that can change an answer, and nothing else."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import softdlm
from softdlm import Decoding, registry
from softdlm.errors import UsageError
from softdlm.evaluate.cell import Cell, ModelSpec, TaskSpec, protocol, task_record
from softdlm.evaluate.task import load_eval_task
from softdlm.records.canonical import canonical, digest
from tests.conftest import tiny
from tests.evaluate.cells import RULES, cell
from tests.tokenizers import checkpoint

BASE = cell("slerp", "topn(4)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("cell") / "llada", "llada")


def key(
    folder: Path, *, model: dict[str, Any] | None = None, task: dict[str, Any] | None = None, **decoding: Any
) -> str:
    spec = replace(ModelSpec(str(folder), "cpu", "float32"), **(model or {}))
    items = replace(TaskSpec("mini-math", limit=4), **(task or {}))
    found = spec.checkpoint()
    one = Cell(spec, items, replace(BASE.decoding, **decoding))
    return digest(protocol(one, spec.record(found), task_record(load_eval_task(items, found))))


def test_the_same_protocol_has_the_same_name(folder: Path) -> None:
    assert key(folder) == key(folder)
    assert key(folder, feedback=softdlm.Slerp(k=3, lam=1)) == key(folder, feedback=softdlm.Slerp(k=3, lam=1.0))
    assert key(folder, model={"device": "cuda:0"}) == key(folder, model={"device": "cuda:3"})


CHANGES: list[dict[str, Any]] = [
    {"model": {"dtype": "bfloat16"}},
    {"model": {"device": "cuda"}},
    {"model": {"attention": "full"}},
    {"model": {"eos_ids": (181,)}},
    {"task": {"name": "either-or"}},
    {"task": {"split": "validation"}},
    {"task": {"limit": 5}},
    {"feedback": softdlm.Mask()},
    {"feedback": softdlm.Slerp(2, 0.3)},
    {"feedback": softdlm.Slerp(3, 0.31)},
    {"feedback": softdlm.Slerp(3, 0.3, norm="candidate")},
    {"feedback": softdlm.Euclidean(3, 0.3)},
    {"commit": softdlm.TopN(1)},
    {"commit": softdlm.TopN(4, "margin")},
    {"commit": softdlm.Steps(4)},
    {"commit": softdlm.Threshold(0.9)},
    {"commit": softdlm.Threshold(0.9, floor=softdlm.TopN(1, "entropy"))},
    {"max_new_tokens": 9},
    {"eos": "last"},
    {"eos": "forbid-first"},
    {"forbid": (3,)},
    {"last": (3,)},
    {"block_length": 4},
    {"temperature": 0.1},
    {"top_p": 0.9},
    {"top_k": 3},
    {"seed": 1},
    {"cache": softdlm.Prefix()},
    {"cache": softdlm.Dual()},
    {"cache": softdlm.Dual(refresh=2)},
    {"cache": softdlm.Dual(renew=2)},
]


def test_every_change_of_the_protocol_changes_the_name(folder: Path) -> None:
    keys = [key(folder), *(key(folder, **change) for change in CHANGES)]
    assert len(set(keys)) == len(CHANGES) + 1


def test_what_cannot_change_a_token_is_no_part_of_the_name(folder: Path) -> None:
    changes: list[dict[str, Any]] = [{"early_finish": False}, {"candidates": 9}]
    for change in changes:
        assert key(folder, **change) == key(folder)


def test_the_protocol_spells_the_rules() -> None:
    written = protocol(BASE, {"digest": "w"}, {"name": "mini-math"})
    assert written == {
        "softdlm_protocol": 2,
        "model": {"digest": "w"},
        "task": {"name": "mini-math"},
        "decoding": {
            "commit": "topn(4)",
            "feedback": "slerp(k=3, lam=0.3)",
            "max_new_tokens": 8,
            "eos": "allow",
            "temperature": 0,
            "seed": 0,
        },
    }
    cached = cell("slerp", "topn(4)", cache="dual", refresh=2)
    assert cached.decoding.record() == {**BASE.decoding.record(), "cache": "dual(refresh=2)"}


def edit_weights(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)


def edit_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")


@pytest.mark.parametrize("edit", [edit_weights, edit_template])
def test_a_folder_counts_by_its_content_not_by_its_place(
    folder: Path, tmp_path: Path, edit: Callable[[Path], None]
) -> None:
    copy = checkpoint(tmp_path / "copy", "llada")
    (copy / "notes.md").write_text("mine")
    assert key(copy) == key(folder)
    edit(copy)
    assert key(copy) != key(folder)


RULE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Mine:
    k: int = 3
    def __call__(self, prediction, embeddings, context):
        return helper(embeddings.mask.expand(len(prediction.token), -1))

def helper(value):
    return {what}

def leftmost(prediction, open, context):
    return open & (open.cumsum(1) == {what})
"""


def test_a_rule_of_a_users_module_counts_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    records = []
    for number, what in enumerate(["value", "value", "value * 2"]):
        (tmp_path / f"mine{number}.py").write_text(RULE.format(what=what))
        records.append(cell(__import__(f"mine{number}").Mine()).decoding.record())
    assert records[0] == records[1]
    assert records[0]["feedback"] == "Mine(k=3)"
    assert records[2] == {**records[0], "feedback_source": records[2]["feedback_source"]} != records[0]


@pytest.mark.parametrize("spelled", ["rules.py:Mine(k=2)", "alternate(rules.py:Mine(k=2), period=3)"])
def test_a_spelled_rule_from_a_file_counts_by_its_text_wherever_it_stands(tmp_path: Path, spelled: str) -> None:
    records = []
    for place, more in (("a", ""), ("b", ""), ("c", "# edited")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "rules.py").write_text(RULES + more)
        records.append(cell(spelled.replace("rules.py", f"{tmp_path / place}/rules.py")).decoding.record())
    assert records[0]["feedback"] == spelled
    assert records[0] == records[1] == {**records[2], "feedback_source": records[0]["feedback_source"]} != records[2]


@pytest.mark.parametrize("commit", ["{}:leftmost", "lead_in"])
def test_a_rule_from_a_file_counts_by_its_text_not_by_its_place(tmp_path: Path, commit: str) -> None:
    """Also where it stands inside another rule."""
    records = []
    for place, what in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / place).mkdir()
        file = tmp_path / place / "rules.py"
        file.write_text(RULE.format(what=what))
        rule: Any = registry.build("commit", f"{file}:leftmost")
        one = cell("vanilla", softdlm.LeadIn(rule) if commit == "lead_in" else commit.format(file))
        records.append(one.decoding.record())
    spelled = "rules.py:leftmost"
    assert records[0]["commit"] == (f"lead_in({spelled})" if commit == "lead_in" else spelled)
    assert records[0] == records[1] == {**records[2], "commit_source": records[0]["commit_source"]} != records[2]


class Bare:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, prediction: Any, open: Any, context: Any) -> Any:
        return softdlm.TopN(self.n)(prediction, open, context)


def made(n: int) -> Any:
    return lambda prediction, open, context: softdlm.TopN(n)(prediction, open, context)


def preset(n: int) -> Any:
    def rule(prediction: Any, open: Any, context: Any, n: int = n) -> Any:
        return softdlm.TopN(n)(prediction, open, context)

    return rule


@pytest.mark.usefixtures("unchecked")
def test_rules_that_cannot_be_told_apart_are_refused() -> None:
    scope: dict[str, Any] = {}
    exec("def rule(prediction, open, context): return open", scope)
    with pytest.raises(UsageError, match="source of rule cannot be read"):
        cell(commit=scope["rule"]).decoding.record()
    for hidden in (partial(softdlm.TopN(1)), made(3), lambda prediction, open, context: open, Bare(3)):
        with pytest.raises(UsageError, match="write the rule as a dataclass or a plain function"):
            cell(commit=hidden).decoding.record()
    assert cell(commit=preset(1)).decoding.record() == cell(commit=preset(1)).decoding.record()
    assert cell(commit=preset(1)).decoding.record() != cell(commit=preset(2)).decoding.record()


@dataclass(frozen=True)
class Sure:
    """Commits what is surer than `share`, and the surest position in any case."""

    share: float = 0.5

    def __str__(self) -> str:
        return f"surer than {self.share}"

    def __call__(self, prediction: Any, open: Any, context: Any) -> Any:
        return softdlm.Threshold(self.share)(prediction, open, context)


def test_cells_travel_can_be_looked_up_and_say_what_they_are() -> None:
    assert pickle.loads(pickle.dumps(BASE)) == BASE
    assert {BASE: 1}[cell(softdlm.Slerp(3, 0.3), softdlm.TopN(4))] == 1
    assert str(BASE) == "tiny · mini-math · slerp k=3 lam=0.3 · 4 a step"
    assert str(cell(commit="entropy(0.1)")) == "tiny · mini-math · vanilla · entropy bound 0.1"
    assert cell("norm-mix(k=2)").labels["method"] == "norm-mix k=2"
    assert cell("slerp-candidate-norm").labels["method"] == "slerp-candidate-norm k=3 lam=0.3"
    assert cell("alternate(slerp(k=1, lam=0.5))").labels["method"] == "alternate-slerp k=1 lam=0.5"
    assert cell("alternate(slerp, period=3)").labels["method"] == "alternate-slerp period=3 k=3 lam=0.3"
    assert cell("alternate(remix(mix=0.25))").labels["method"] == "alternate-remix mix=0.25"
    assert cell("slerp", "hard_only(steps(4, schedule='power', power=2))").labels["rate"] == (
        "4 steps, power 2, hard only"
    )
    assert str(cell(commit=Sure(0.75))) == "tiny · mini-math · vanilla · surer than 0.75"


def test_eos_forbidden_but_not_the_end_of_turn() -> None:
    model = tiny("llada")
    assert model.eos_ids == (181, 190)
    for eos, forbid, last in (("forbid-first", (181,), ()), ("last", (), (181, 190)), ("allow", (), ())):
        assert Decoding(eos=eos).token_policy(model) == {"forbid": forbid, "last": last}  # type: ignore[arg-type]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TaskSpec("gsm9k"), "unknown task 'gsm9k': one of mini-math"),
        (lambda: TaskSpec("mini-math", split="tests"), "no split 'tests'"),
        (lambda: TaskSpec("gsm8k", split="train"), "no split 'train'"),
        (lambda: TaskSpec("mini-math", limit=0), "limit must be at least 1, not 0"),
        (lambda: ModelSpec.of("x", attention="half"), "attention must be one of auto"),
        (lambda: ModelSpec.of("x", dtype="int8"), "dtype must be native, fp8 or a floating-point type"),
        (lambda: canonical({"x": float("nan")}), "must be a finite number"),
        (lambda: canonical({"x": object()}), "must be a number, a word or a list"),
    ],
)
def test_bad_values_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
