"""`softdlm.evaluate`: the cells, folders and rows of the command line, from Python."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import softdlm
from softdlm import Decoding, SoftDLMError, UsageError
from softdlm.cli.main import app
from softdlm.evaluate import executors
from softdlm.evaluate.cell import ModelSpec, TaskSpec
from softdlm.evaluate.executors import LocalExecutor
from softdlm.evaluate.grid import Grid, plan, sweep
from softdlm.evaluate.run import run
from softdlm.evaluate.summary import Result, rows
from softdlm.models.toy import JointDenoiser
from softdlm.records.journal import MANIFEST, read_manifest
from tests.evaluate.cells import RULES
from tests.test_readme import ROOT, blocks
from tests.tokenizers import checkpoint

TIMES = ("seconds", "tokens_per_second")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("api") / "llada", "llada")


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return softdlm.load(folder, device="cpu")


def timeless(found: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in TIMES} for row in found]


def decoding_of(cell: Path) -> dict[str, Any]:
    return read_manifest(cell)["protocol"]["decoding"]


def test_three_lines_give_what_a_grid_gives(tmp_path: Path) -> None:
    model = softdlm.load("builtin", device="cpu")
    decodings = [{"feedback": "vanilla", "tokens_per_step": 8}, Decoding(feedback="slerp", commit=softdlm.TopN(8))]
    found = softdlm.evaluate(model, "mini-math", decodings, limit=2, out=tmp_path / "python")

    swept = sweep(Decoding(), ("vanilla", "slerp"), ("topn(8)",))
    grid = Grid((ModelSpec.of("builtin", device="cpu"),), (TaskSpec("mini-math", limit=2),), swept, single=False)
    chosen = plan(grid)
    assert run(chosen, tmp_path / "grid", LocalExecutor()) == {}
    assert [each.name for each in found.folders] == [each.key for each in chosen.cells]
    assert all((each / MANIFEST).exists() for each in found.folders)
    theirs = rows([Result.read(tmp_path / "grid" / each.key) for each in chosen.cells])
    assert timeless(found.rows) == timeless(theirs)
    assert {row["method"] for row in found.rows} == {"vanilla", "slerp k=3 lam=0.5"}
    assert str(found).splitlines()[0].startswith("builtin · mini-math · 2 items")


def test_the_command_line_gives_the_same_cells_and_rows(folder: Path, model: Any, tmp_path: Path) -> None:
    words = "--task either-or --feedback vanilla,slerp(k=2) --commit topn(2) --lam 0.5 -n 6 --limit 2 --device cpu"
    place = ["--model", str(folder), "--out", str(tmp_path / "command")]
    done = CliRunner().invoke(app, ["eval", *words.split(), *place, "--json"])
    assert done.exit_code == 0, done.output
    base = Decoding(commit="topn(2)", max_new_tokens=6)
    decodings = [replace(base, feedback="vanilla"), replace(base, feedback="slerp(k=2, lam=0.5)")]
    found = softdlm.evaluate(model, "either-or", decodings, limit=2, out=tmp_path / "python", single=True)
    assert {each.name for each in found.folders} == {
        each.parent.name for each in tmp_path.glob(f"command/*/{MANIFEST}")
    }
    assert len(found.rows) == 3
    assert timeless(found.rows) == timeless(json.loads(done.stdout)["rows"])


def test_a_second_call_decodes_nothing_also_from_the_models_name(
    folder: Path, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    asked: Any = {"limit": 2, "out": tmp_path, "progress": seen.append}
    first = softdlm.evaluate(model, "mini-math", Decoding(max_new_tokens=8), **asked)
    assert len(seen) == 2
    monkeypatch.setattr(executors, "generate", None)
    for again in (model, str(folder), folder):
        assert softdlm.evaluate(again, "mini-math", {"max_new_tokens": 8}, **asked) == first
    assert len(seen) == 2


def test_a_loaded_model_is_used_as_it_is(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelSpec, "load", None)
    fewer = softdlm.evaluate(model, ["mini-math", "either-or"], Decoding(max_new_tokens=4), limit=1, out=tmp_path)
    assert [row["task"] for row in fewer.rows] == ["either-or", "mini-math"]


def two_surest(prediction: Any, open: Any, context: Any) -> Any:
    return softdlm.TopN(2)(prediction, open, context)


def test_rules_of_ones_own_as_values_and_from_a_file(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules.py").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    asked: Any = {"limit": 2, "out": tmp_path / "out"}
    base = {"max_new_tokens": 8, "eos": "forbid"}
    spelled = {"feedback": "rules.py:Mine(k=2)", "commit": "rules.py:leftmost", **base}
    found = softdlm.evaluate(model, "mini-math", [Decoding.of(commit=two_surest, **base), spelled], **asked)
    assert {(row["method"], row["rate"]) for row in found.rows} == {
        ("vanilla", "two_surest"), ("Mine k=2", "leftmost"),
    }  # fmt: skip
    own, from_file = map(decoding_of, found.folders)
    assert (own["commit"], from_file["commit"], from_file["feedback"]) == (
        "two_surest", "rules.py:leftmost", "rules.py:Mine(k=2)",
    )  # fmt: skip
    assert own["commit_source"] != from_file["commit_source"] == from_file["feedback_source"]
    assert [row["passes"] for row in found.rows] == [4.0, 4.0], "two of eight in each pass"
    (tmp_path / "rules.py").write_text(RULES.replace("<= 2", "<= 4"))
    edited = softdlm.evaluate(model, "mini-math", spelled, **asked)
    assert edited.folders != found.folders[1:]
    assert [row["passes"] for row in edited.rows] == [2.0]


def test_a_model_that_came_from_no_checkpoint_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="was not loaded from a checkpoint, so its answers cannot be filed"):
        softdlm.evaluate(JointDenoiser("who is it", {"Harry Potter": 1.0}), "mini-math", Decoding(), out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_fails_is_an_error_that_names_the_cell(model: Any, tmp_path: Path) -> None:
    with pytest.raises(SoftDLMError, match=r"mini-math .* vanilla .* nothing: .*committed nothing"):
        softdlm.evaluate(model, "mini-math", Decoding(commit=nothing, max_new_tokens=4), limit=1, out=tmp_path)
    with pytest.raises(UsageError, match="no decodings: give at least one"):
        softdlm.evaluate(model, "mini-math", [], out=tmp_path)


def nothing(prediction: Any, open: Any, context: Any) -> Any:
    return open & False


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of docs/evaluation.md, in its order, in one namespace, as a reader runs them."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in blocks("python", (ROOT / "docs" / "evaluation.md").read_text()):
        exec(compile(code, "docs/evaluation.md", "exec"), names)
    assert list((tmp_path / "results").glob(f"*/{MANIFEST}"))
