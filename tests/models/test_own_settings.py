"""Settings files: input from outside that takes the place of a checkpoint's own settings, field by field."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import softdlm
from softdlm.errors import CheckpointError, UsageError
from softdlm.evaluate.cell import ModelSpec, read_own
from softdlm.evaluate.fingerprint import protocol
from softdlm.evaluate.grid import Grid, plan
from softdlm.evaluate.harness_settings import Settings
from softdlm.models.load import find_checkpoint
from softdlm.models.own_settings import LARGEST, OwnSettings
from softdlm.records.canonical import digest
from tests.tokenizers import checkpoint

DECODING = {"feedback": "slerp(k=1, lam=0.4)", "commit": "entropy(0.3)"}


def write(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "settings.json", {"softdlm_settings": 1, "decoding": DECODING, "made": {"any": ["thing"]}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = checkpoint(tmp_path / "llada", "llada")
    config = json.loads((made / "config.json").read_text())
    own = {"max_new_tokens": 7, "commit": "topn(2)", "lam": 0.1}
    (made / "config.json").write_text(json.dumps({**config, "decoding": own}))
    return made


def test_a_file_takes_the_place_of_what_the_checkpoint_says_field_by_field(file: Path, folder: Path) -> None:
    expected = OwnSettings(max_new_tokens=7, lam=0.1, **DECODING)  # type: ignore[arg-type]
    assert softdlm.load(folder, device="cpu", settings=file).own == expected
    assert softdlm.load(folder, device="cpu", settings=str(file)).own == expected
    assert find_checkpoint(folder, settings=OwnSettings(commit="topn(4)")).own.commit == "topn(4)"
    assert softdlm.load(folder, device="cpu").own.commit == "topn(2)"


def test_recommended_is_a_word_for_settings_of_models_that_nobody_tuned(folder: Path) -> None:
    own = softdlm.load(folder, device="cpu", settings="recommended").own
    assert (own.max_new_tokens, own.lam) == (7, 0.1)
    commit, feedback = softdlm.Decoding().settled(own).rules
    assert (commit, feedback) == (softdlm.EntropyBound(0.1), softdlm.Alternate(softdlm.Slerp(1, 0.3)))


def test_an_evaluation_takes_it_and_its_cells_are_those_of_the_decoding(file: Path, folder: Path) -> None:
    from softdlm.evaluate.cell import TaskSpec

    task, asked = TaskSpec("mini-math", limit=1), softdlm.Decoding(max_new_tokens=8)
    spec = ModelSpec.of(str(folder), device="cpu", settings=read_own(file))
    (filled,) = plan(Grid((spec,), (task,), (asked,), single=False)).cells
    named = softdlm.Decoding.of(**DECODING, max_new_tokens=8)
    (given,) = plan(Grid((ModelSpec.of(str(folder), device="cpu"),), (task,), (named,), single=False)).cells
    assert filled.key == given.key
    assert spec.load().own == spec.checkpoint().own


def test_the_harness_takes_it_and_its_cache_knows_it(file: Path) -> None:
    plain, tuned = Settings.parse({}), Settings.parse({"settings": str(file)})
    assert tuned.settings == OwnSettings(**DECODING)  # type: ignore[arg-type]
    assert digest(protocol(plain)) != digest(protocol(tuned))
    with pytest.raises(UsageError, match=r"none\.json cannot be read"):
        Settings.parse({"settings": "none.json"})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "nested too deep"),
        ([], "is not a settings file"),
        ({"decoding": {}}, "is not a settings file: it must be a JSON object with softdlm_settings = 1"),
        ({"softdlm_settings": 2, "decoding": {}}, "says softdlm_settings = 2; this version of softdlm reads 1"),
        ({"softdlm_settings": True, "decoding": {}}, "says softdlm_settings = True"),
        ({"softdlm_settings": 1}, "says decoding = None"),
        ({"softdlm_settings": 1, "decoding": {}, "more": 1}, "holds more; a settings file holds decoding and made"),
        ({"softdlm_settings": 1, "decoding": {}, "made": 1}, "says made = 1"),
        ({"softdlm_settings": 1, "decoding": {"eos": "last"}}, "it may hold max_new_tokens, feedback, commit, k, lam"),
        ({"softdlm_settings": 1, "decoding": {"commit": 3}}, "decoding.commit = 3, which has the wrong type"),
        ({"softdlm_settings": 1, "decoding": {"max_new_tokens": 0}}, "k and max_new_tokens start at 1"),
        ({"softdlm_settings": 1, "decoding": {"feedback": "slurp"}}, "unknown feedback rule 'slurp'"),
        ({"softdlm_settings": 1, "decoding": {"commit": "topn(0)"}}, "must be at least 1"),
        ({"softdlm_settings": 1, "decoding": {"commit": "mine.py:Rule(3)"}}, "a rule in a file, which is a program"),
        (" " * (LARGEST + 1), "is larger than 1 MiB"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_own(write(tmp_path / "settings.json", value))
    assert message in str(refused.value)
    assert str(tmp_path / "settings.json") in str(refused.value)


@pytest.mark.usefixtures("unchecked")
def test_pipes_folders_and_other_text_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b'{"softdlm_settings": 1, "decoding": {"commit": "\xe9"}}')
    for name, message in (("pipe", "not a regular file"), ("", "not a regular file"), ("latin", "is not JSON")):
        with pytest.raises(UsageError, match=message):
            read_own(tmp_path / name)
    with pytest.raises(UsageError, match="settings must be a file that softdlm tune wrote, or recommended, not 3"):
        softdlm.load("builtin", settings=3)  # type: ignore[arg-type]


def test_neither_a_file_nor_a_checkpoint_runs_a_program(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    rule = f"{tmp_path}/evil.py:Mine"
    with pytest.raises(CheckpointError, match="a rule in a file, which is a program"):
        OwnSettings.read({"feedback": rule})
    with pytest.raises(UsageError, match="a rule in a file, which is a program"):
        read_own(write(tmp_path / "s.json", {"softdlm_settings": 1, "decoding": {"commit": rule}}))
    assert not (tmp_path / "ran").exists()
