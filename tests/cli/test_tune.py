"""`softdlm tune` and --settings on the command line: the table at 80 columns, the file, and every wrong value."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from softdlm.cli.main import app
from softdlm.evaluate.executors import LocalExecutor
from tests.cli.test_hostile import said
from tests.tokenizers import checkpoint

GRID = ["--feedback", "vanilla,slerp", "--commit", "topn(8)", "--k", "2", "--lam", "0.4", "--items", "3", "-n", "16"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoint(tmp_path_factory.mktemp("tune") / "llada", "llada"))


def ran(*words: Any, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "80"})
    assert done.exit_code == code, done.exception
    return done.stdout


def tune(model: str, out: Path, *words: Any, code: int = 0) -> str:
    return ran("tune", "-m", model, "--device", "cpu", *GRID, "--out", out, *words, code=code)


def test_it_prints_a_table_and_writes_what_settings_takes(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(model).parent)
    shown = tune("llada", Path("out"), "--eos", "forbid")
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("fewest passes within", "reference", "chosen", "flattered", "slerp(k=2, lam=0.4)", "accuracy %"):
        assert word in shown
    assert shown.endswith("  softdlm generate ... --settings out/settings.json --eos forbid\n")
    stated = json.loads(Path("out/settings.json").read_text())["decoding"]
    words = ["generate", "the cat", "-m", model, "--device", "cpu", "--settings", "out/settings.json", "--json"]
    answer = json.loads(ran(*words))
    assert {name: answer["decoding"][name] for name in stated} == stated
    assert json.loads(ran(*words, "-t", "2"))["decoding"]["commit"] == "topn(2, rank='confidence')", "options go first"


def test_json_holds_everything_and_a_second_run_decodes_nothing(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = json.loads(tune(model, tmp_path, "--passes", "2", "--json"))
    assert [row["is_reference"] for row in first["rows"]] == [True, False, False]
    assert first["goal"] == "best accuracy in at most 2 passes"
    assert first["chosen"]["max_new_tokens"] == 16
    assert first["settings"] == str(tmp_path / "settings.json")
    assert first["used"] <= first["budget"] == 40_000
    monkeypatch.setattr(LocalExecutor, "model", None)
    assert json.loads(tune(model, tmp_path, "--passes", "2", "--json")) == first


def test_no_setting_in_the_passes_is_said_with_exit_code_1(model: str, tmp_path: Path) -> None:
    shown = tune(model, tmp_path, "--passes", "1", "--commit", "topn(2)", code=1)
    assert "No setting keeps to the number of passes." in shown
    assert "Settings:" not in shown


def test_a_file_of_problems_is_tuned_on_and_evaluated(model: str, tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text('{"prompt": "1 + 1?", "answer": 2}\n{"prompt": "2 + 2?", "answer": 4}\n')
    found = json.loads(tune(model, tmp_path / "out", "--task", file, "--json"))
    assert (found["items"], found["task"]) == (2, str(file))
    words = ["--task", file, "--method", "vanilla", "-t", "8", "-n", "16", "--no-single", "--json"]
    rows = json.loads(ran("eval", "-m", model, "--device", "cpu", *words, "--out", tmp_path / "out" / "cells"))["rows"]
    assert rows[0]["cell"] in {row["cell"] for row in found["rows"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--within", "1", "--passes", "8"], "--within and --passes are two goals"),
        (["--within", "-1"], "within must lie between 0 and 100"),
        (["--passes", "0"], "passes must be a finite number from 1"),
        (["--items", "0"], "items must be at least 1"),
        (["--budget", "0"], "budget must be at least 1"),
        (["--budget", "20"], "budget 20 is too small"),
        (["--alpha", "2"], "alpha must lie between 0 and 0.5"),
        (["--task", "gsm9k"], "unknown task 'gsm9k'"),
        (["--task", "none.jsonl"], "no such file: none.jsonl"),
        (["--feedback", "slurp"], "unknown feedback rule 'slurp'"),
        (["--commit", ","], "--commit names nothing"),
        (["--k", "two"], "--k must be a number"),
        (["--lam", "2"], "must lie in [0, 1]"),
        (["--batch-size", "0"], "batch_size must be at least 1"),
        (["--eos", "never"], "eos must be one of"),
        (["-m", "/no/where"], "no such folder"),
        (["--settings", "none.json"], "none.json cannot be read"),
        (["-n", "9999"], "the model's context is"),
    ],
)
def test_a_bad_value_is_one_line_before_weights_are_read(
    model: str, tmp_path: Path, words: list[str], message: str,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(LocalExecutor, "model", None)
    out = tmp_path / "out"
    code, line = said(["tune", "-m", model, "--items", "2", "--out", str(out), *words], monkeypatch, capfd)
    assert code == 2
    assert message in line
    assert not out.exists()


@pytest.mark.parametrize("name", ["", "cells", "settings.json", "frontier.svg"])
def test_a_place_that_cannot_be_written_is_said_before_weights_are_read(
    model: str, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LocalExecutor, "model", None)
    place = tmp_path / "out" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir() if "." in name else place.write_text("mine")
    code, line = said(["tune", "-m", model, *GRID, "--out", str(tmp_path / "out")], monkeypatch, capfd)
    assert code == 1
    assert "cannot write" in line


@pytest.mark.parametrize("verb", [["eval", "-m", "a,b"], ["reproduce", "table1", "-m", "a,b"]])
def test_settings_belong_to_one_model(
    tmp_path: Path, verb: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.json").write_text('{"softdlm_settings": 1, "decoding": {}}')
    code, line = said([*verb, "--settings", str(tmp_path / "s.json")], monkeypatch, capfd)
    assert code == 2
    assert "--settings belong to one model" in line


def test_interrupted_it_says_how_to_go_on(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from softdlm.cli.main import main

    def stop(self: Any, works: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalExecutor, "run", stop)
    words = ["tune", "-m", model, *GRID, "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["softdlm", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert f"stopped; every finished sample is in {tmp_path}. To go on: softdlm tune" in capfd.readouterr().err
