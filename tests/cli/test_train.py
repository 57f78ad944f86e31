"""`softdlm train` as a verb: options reach the recipe, the card comes out, mistakes are one line."""

import json
from pathlib import Path

from typer.testing import CliRunner

import softdlm
from softdlm.cli.main import app
from softdlm.errors import UsageError

SMALL = [
    *("--recipe", "toy", "--device", "cpu", "--validation-items", "0", "--steps", "3", "--seed", "5", "--json"),
    *("--set", "warmup=1", "--set", "width=32", "--set", "batch=4", "--set", 'mixture={"mini-code":1}'),
]


def test_train_prints_the_card_and_leaves_a_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = CliRunner().invoke(app, ["train", "--out", str(out), *SMALL])
    assert done.exit_code == 0, done.exception
    card = json.loads(done.stdout)
    assert (card["steps"], card["seed"], card["recipe"]["width"]) == (3, 5, 32)
    assert card["recipe"]["mixture"] == {"mini-code": 1}
    assert "step 3/3" in done.stderr
    assert softdlm.load(out, device="cpu").embedding.shape[1] == 32


def test_a_full_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = CliRunner().invoke(app, ["train", "--out", str(tmp_path), *SMALL])
    assert isinstance(done.exception, UsageError)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
