"""What names a cell: everything that can change an answer, and nothing else."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import softdlm
from softdlm.errors import UsageError
from softdlm.evaluate.cell import (
    SINGLE,
    Cell,
    ModelSpec,
    Rate,
    TaskSpec,
    canonical,
    protocol,
    rule_record,
    short_digest,
    task_record,
)
from softdlm.evaluate.task import load_eval_task
from tests.evaluate.cells import cell
from tests.tokenizers import checkpoint

BASE = cell("slerp", softdlm.Slerp(3, 0.3), Rate("tokens_per_step", 4))
FOUR = Rate("tokens_per_step", 4)


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
    return short_digest(protocol(one, spec.record(found), task_record(load_eval_task(items, found))))


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
    {"method": "mine"},
    {"feedback": softdlm.Slerp(2, 0.3)},
    {"feedback": softdlm.Slerp(3, 0.31)},
    {"feedback": softdlm.Slerp(3, 0.3, norm="candidate")},
    {"feedback": softdlm.Euclidean(3, 0.3)},
    {"rate": SINGLE, "commit": softdlm.TopN(1)},
    {"commit": softdlm.TopN(4, "margin")},
    {"commit": softdlm.Threshold(0.9)},
    {"commit": softdlm.Threshold(0.9, floor=softdlm.TopN(1, "entropy"))},
    {"max_new_tokens": 9},
    {"eos": "last"},
    {"eos": "forbid-first"},
    {"block_length": 4},
    {"rank": "confidence"},
    {"reading": "dream-greedy"},
    {"temperature": 0.1},
    {"top_p": 0.9},
    {"seed": 1},
    {"cache": "prefix"},
    {"cache": "dual"},
    {"cache": "dual", "refresh": 2},
    {"cache": "dual", "renew": 2},
]


def test_every_change_of_the_protocol_changes_the_name(folder: Path) -> None:
    keys = [key(folder), *(key(folder, **change) for change in CHANGES)]
    assert len(set(keys)) == len(CHANGES) + 1


def test_a_cache_is_on_record_and_no_cache_leaves_old_names_as_they_were() -> None:
    cached = replace(BASE.decoding, cache="dual", refresh=2)
    assert cached.record() == {**BASE.decoding.record(), "cache": "dual", "refresh": 2}
    assert not {"cache", "refresh", "renew"} & BASE.decoding.record().keys()
    options = cached.options(())
    assert (options.get("cache"), options.get("refresh"), options.get("renew")) == ("dual", 2, 1)
    renewed = replace(BASE.decoding, cache="dual", renew=4)
    assert renewed.record() == {**BASE.decoding.record(), "cache": "dual", "refresh": None, "renew": 4}
    assert renewed.options(()).get("renew") == 4


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
import softdlm

@dataclass(frozen=True)
class Mine:
    k: int = 3
    def __call__(self, prediction, embeddings, context):
        return helper(embeddings.mask.expand(len(prediction.token), -1))

def helper(value):
    return {what}
"""


def test_a_rule_of_ones_own_counts_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    records = []
    for number, what in enumerate(["value", "value", "value * 2"]):
        (tmp_path / f"mine{number}.py").write_text(RULE.format(what=what))
        records.append(rule_record(__import__(f"mine{number}").Mine()))
    assert records[0] == records[1] == {"rule": "Mine", "k": 3, "source": records[0]["source"]}
    assert records[2] != records[0]
    scope: dict[str, Any] = {}
    exec("def rule(prediction, open, context): return open", scope)
    with pytest.raises(UsageError, match="source of rule cannot be read"):
        rule_record(scope["rule"])
    for hidden in (partial(print, 3), (lambda value: lambda: value)(3)):
        with pytest.raises(UsageError, match="write the rule as a dataclass or a plain function"):
            rule_record(hidden)


def test_cells_travel_and_can_be_looked_up() -> None:
    assert pickle.loads(pickle.dumps(BASE)) == BASE
    assert {BASE: 1}[cell("slerp", softdlm.Slerp(3, 0.3), FOUR)] == 1
    assert str(BASE) == "tiny · mini-math · slerp k=3 lam=0.3 · 4 a step"


def test_eos_forbidden_but_not_the_end_of_turn() -> None:
    assert replace(BASE.decoding, eos="forbid-first").options((7, 8)).get("forbid") == (7,)
    assert replace(BASE.decoding, eos="last").options((7, 8)).get("eos") == "last"
    assert "forbid" not in BASE.decoding.options((7, 8))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(BASE.decoding, temperature=-1.0), "temperature must be at least 0, not -1.0"),
        (lambda: replace(BASE.decoding, top_p=0.0), r"top_p must lie in \(0, 1\], not 0.0"),
        (lambda: replace(BASE.decoding, max_new_tokens=0), "max_new_tokens must be at least 1, not 0"),
        (lambda: replace(BASE.decoding, block_length=0), "block_length must be at least 1"),
        (lambda: replace(BASE.decoding, refresh=2), "refresh 2 is of a cache"),
        (lambda: replace(BASE.decoding, renew=2), "renew 2 is of a cache"),
        (lambda: replace(BASE.decoding, eos="never"), "eos must be one of allow, last, .* not 'never'"),
        (lambda: replace(BASE.decoding, reading="fast"), "reading must be one of plain, .* not 'fast'"),
        (lambda: Rate("speed", 3), "unknown rate 'speed': one of tokens_per_step"),
        (lambda: Rate("tokens_per_step", 2.5), "must be a whole number, not 2.5"),
        (lambda: TaskSpec("gsm9k"), "unknown task 'gsm9k': one of mini-math"),
        (lambda: TaskSpec("mini-math", split="tests"), "no split 'tests'"),
        (lambda: TaskSpec("gsm8k", split="train"), "no split 'train'"),
        (lambda: TaskSpec("mini-math", limit=0), "limit must be at least 1, not 0"),
        (lambda: ModelSpec.of("x", attention="half"), "attention must be one of auto"),
        (lambda: ModelSpec.of("x", dtype="int8"), "dtype must be native or a floating-point type"),
        (lambda: canonical({"x": float("nan")}), "must be a finite number"),
        (lambda: canonical({"x": object()}), "must be a number, a word or a list"),
    ],
)
def test_bad_values_are_said(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
