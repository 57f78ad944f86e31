"""Readings as values, and in the cells that they make."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from softdlm import UsageError
from softdlm.cli.main import app
from softdlm.evaluate.readings import READINGS, Readings, note, words
from softdlm.records.journal import MANIFEST
from tests.conftest import BENCHMARKS
from tests.evaluate.harness_runs import folder

FAMILIES = {"llada", "llada2_moe", "Dream"}


def test_the_first_value_is_the_default_and_every_reading_is_on_record() -> None:
    assert Readings().record() == {name: each.values[0] for name, each in READINGS.items()}
    one = Readings.of(["figure2-rate=4", " turns = many "])
    assert one == Readings.of({"figure2-rate": 4, "turns": "many"}) == Readings.of(one)
    assert (one.value("figure2-rate"), one.value("turns"), one.value("dream")) == ("4", "many", "dream-dllm")
    assert one.record() == {**Readings().record(), "figure2-rate": "4", "turns": "many"}
    assert one.changed("turns", "one").value("turns") == "one"


def test_a_reading_says_what_it_is_for() -> None:
    for each in READINGS.values():
        assert len(each.values) == len(set(each.values)) >= 2
        assert set(each.families) <= FAMILIES
        assert each.about.endswith(".")
        assert each.where


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (["dream"], "'dream': write name=value"),
        (["dreams=dream-eps"], "unknown reading 'dreams': one of dream, adaptive, "),
        (["dream=eps"], "dream=eps: the values are dream-dllm, dream-eps, dream-greedy"),
        (["dream=dream-eps", "dream=dream-dllm"], "dream is given twice"),
    ],
)
def test_what_cannot_be_meant_is_refused(said: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Readings.of(said)


def test_a_reading_applies_where_another_value_would_make_something_else() -> None:
    read = Readings.of(["turns=many"])

    def make(readings: Readings) -> Any:
        return readings.value("turns"), readings.value("dream"), readings.value("prompts")

    assert read.applied("llada", make, ("answers", "task")) == {"turns": "many"}
    assert read.applied("llada", make, ("answers", "task", "reproduce")) == {"turns": "many", "prompts": "raw"}
    assert read.applied("Dream", make, ("answers", "task")) == {"dream": "dream-dllm"}
    read.check_used(["turns"])
    with pytest.raises(UsageError, match="turns=many changes nothing here, it is for LLaDA families on gsm8k"):
        read.check_used(["dream"])
    assert words({"turns": "many", "prompts": "raw"}) == "turns=many, prompts=raw"
    assert note({}) == ()


def shell(*asked: str) -> Result:
    return CliRunner().invoke(app, [*asked])


def evaluated(out: Path, *asked: str, models: str = "dream", task: str = "gsm8k") -> Result:
    """One item, four new tokens."""
    named = ",".join(folder(model) for model in models.split(","))
    where = ["--data-dir", str(BENCHMARKS), "--limit", "1", "-n", "4", "--device", "cpu", "--out", str(out)]
    return shell("eval", "--model", named, "--task", task, "--no-single", "--feedback", "vanilla", *where, *asked)


def manifests(out: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(out.glob(f"*/{MANIFEST}"))]


def test_readings_are_in_the_manifest_and_below_the_table(tmp_path: Path) -> None:
    asked = ["--recipe", "paper", "--commit", "topn(4),threshold(0.9)", "--reading", "dream=dream-eps"]
    done = evaluated(tmp_path, *asked)
    assert done.exit_code == 0, done.output
    found = {each["labels"]["rate"]: each for each in manifests(tmp_path)}
    assert found["4 a step"]["labels"]["readings"] == "dream=dream-eps"
    assert found["4 a step"]["protocol"]["decoding"]["commit"] == "topn-eps(4, rank='entropy')"
    # dream-greedy would change it, by its temperature; the schedule does not
    assert found["threshold 0.9"]["labels"]["readings"] == "dream=dream-eps, adaptive=untempered"
    assert found["threshold 0.9"]["protocol"]["decoding"]["confidence"] == "untempered"
    line = "Readings: dream=dream-eps, adaptive=untempered."
    for shown in (done, shell("results", str(tmp_path)), shell("results", str(tmp_path), "--markdown")):
        assert line in shown.output.replace("\n", " ").replace("  ", " ")
    rows = json.loads(shell("results", str(tmp_path), "--json").stdout)["rows"]
    assert {row["readings"] for row in rows} == {each["labels"]["readings"] for each in found.values()}


def test_without_a_recipe_there_are_no_readings_but_the_headline_of_math500(tmp_path: Path) -> None:
    done = evaluated(tmp_path / "gsm8k", "-t", "4")
    assert done.exit_code == 0, done.output
    assert "Readings" not in done.output
    assert all("readings" not in each["labels"] for each in manifests(tmp_path / "gsm8k"))
    for value in READINGS["math500"].values:
        out = tmp_path / value
        done = evaluated(out, "-t", "4", "--reading", f"math500={value}", models="llada", task="math500")
        assert done.exit_code == 0, done.output
        (found,) = manifests(out)
        assert found["labels"]["readings"] == f"math500={value}"
        assert found["protocol"]["task"]["headline"] == value.replace("-", "_")
    names = [{each.name for each in (tmp_path / value).iterdir()} for value in READINGS["math500"].values]
    assert not names[0] & names[1]


def test_a_reading_must_apply_to_one_of_the_models(tmp_path: Path) -> None:
    paper = ["--recipe", "paper", "-t", "4"]
    for models, reading in (("llada", "dream=dream-greedy"), ("dream", "adaptive=tempered"), ("dream", "prompts=chat")):
        done = evaluated(tmp_path, *paper, "--reading", reading, models=models)
        assert isinstance(done.exception, UsageError)
        assert f"reading {reading} changes nothing here" in str(done.exception)
    assert not tmp_path.exists() or not list(tmp_path.iterdir())
    done = evaluated(tmp_path, *paper, "--reading", "dream=dream-greedy", models="llada,dream")
    assert done.exit_code == 0, done.output
    assert isinstance(evaluated(tmp_path, "--reading", "dream=dream-greedy").exception, UsageError)
