"""`softdlm analyze` on the three formats of checkpoints: every command, its JSON, its table, its mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from softdlm.cli.main import app
from softdlm.errors import TokenizerError, UsageError
from tests.conftest import DATA, FAMILIES
from tests.tokenizers import checkpoint

FOUR = ["euclidean", "slerp", "additive", "norm-mix"]
FIVE = ["vanilla", *FOUR]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("analyze")
    for family in FAMILIES:
        checkpoint(root / family, family)
    lines = [{"prompt": "either a or b:", "a": "a", "b": "b", "masks": 2}, {"prompt": "p", "a": "x", "b": "y z"}]
    (root / "pairs.jsonl").write_text("\n".join(json.dumps(line | {"masks": 2}) for line in lines))
    (root / "questions.jsonl").write_text('{"prompt": "the cat"}\n{"prompt": "a"}\n')
    return root


def analyze(*words: Any) -> Any:
    return CliRunner().invoke(app, ["analyze", *map(str, words)], env={"COLUMNS": "80"})


def found(*words: Any) -> dict[str, Any]:
    done = analyze(*words, "--device", "cpu", "--json")
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_on_every_format(folder: Path, family: str) -> None:
    model = ("--model", folder / family)
    table1 = found("mixtures", *model, "--limit", 2, "--k", 2)
    assert table1["rows"][0]["prompt"].startswith("The location is either New York")
    assert [row["rule"] for row in table1["summary"]] == FOUR
    assert all(0 < row["multiplicative"] < 0.7 for row in table1["summary"])
    table4 = found("consistency", *model, "--prompts", folder / "pairs.jsonl")
    assert (table4["settings"]["qualify"], table4["settings"]["of"]) == (1, 2)
    assert [(row["rule"], row["prompts"]) for row in table4["summary"]] == [(rule, 1) for rule in FIVE]
    figure1 = found("joint", *model, "--prompts", folder / "pairs.jsonl", "--limit", 1, "--order", "confidence")
    assert list(figure1["rows"][0]["probability"]) == ["sequential", *FIVE]
    assert (figure1["settings"]["order"], figure1["settings"]["chat"]) == ("confidence", False)
    chat = found("joint", *model, "--prompts", folder / "pairs.jsonl", "--limit", 1, "--chat", "--chat-lead", "space")
    assert chat["settings"]["chat"]
    assert chat["rows"][0]["probability"] != figure1["rows"][0]["probability"]


@pytest.mark.parametrize("family", FAMILIES)
def test_decodes_on_every_format(folder: Path, family: str) -> None:
    common = ("--model", folder / family, "--prompts", folder / "questions.jsonl", "-n", 8, "--eos", "forbid")
    table3 = found("geometry", *common)
    assert [(row["task"], row["items"]) for row in table3["summary"]] == [("questions", 2)]
    assert list(table3["rows"][0]["shape"]["angle_share"]) == FOUR
    table8 = found("completions", *common, "--rules", "norm-mix", "-t", 2)
    assert [row["rule"] for row in table8["summary"]] == ["vanilla", "euclidean", "slerp", "norm-mix"]
    assert all(row["spans"] == 12 for row in table8["summary"])
    beyond = found("agreement", *common)
    assert [row["rule"] for row in beyond["summary"]] == FIVE
    assert beyond["settings"]["decoding"]["eos"] == "forbid"


def test_no_prompt_of_the_70_fits_these_tokenizers_and_that_is_said(folder: Path) -> None:
    done = analyze("consistency", "--model", folder / "llada", "--device", "cpu")
    assert done.exit_code == 0, done.exception
    assert "0 of 70 prompts can be measured" in done.stderr
    assert "nothing to measure" in done.stdout


def test_tables_and_rows_kept_in_a_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    words = ("geometry", "--tasks", "mini-math", "--limit", 1, "-n", 6, "--device", "cpu", "--out", out)
    done = analyze(*words)
    assert done.exit_code == 0, done.exception
    assert "1/1" in done.stderr
    for word in ("cosine", "soft tokens", "share of the angle", "norm / [MASK] norm", *FOUR):
        assert word in done.stdout
    assert len(out.read_text().splitlines()) == 2
    again = analyze(*words)
    assert again.stdout == done.stdout
    assert "1/1" not in again.stderr


def test_figure_1_on_the_built_in_model() -> None:
    done = analyze("joint", "--chat", "--chat-lead", "space", "--device", "cpu")
    assert done.exit_code == 0, done.exception
    for word in ("Harry Potter", "Harry Wars", "Star Potter", "Star Wars", "other", "sequential", "slerp"):
        assert word in done.stdout


def test_reliability_on_the_built_in_model(tmp_path: Path) -> None:
    """Canvases of two or three tokens, so that it is quick."""
    out, plot = tmp_path / "rows.jsonl", tmp_path / "figure.svg"
    common = ("--tasks", "either-or", "--limit", 4, "-t", 1, "--device", "cpu", "--out", out)
    done = analyze("reliability", *common, "--plot", plot)
    assert done.exit_code == 0, done.exception
    assert max(map(len, done.stdout.splitlines())) <= 80
    for word in ("slerp(k=1, lam=0.5)", "slerp(k=3, lam=0.5)", "neighbours", "right where sure", "of 8 states\n"):
        assert word in done.stdout
    assert "slerp(k=3, lam=0.5)" in plot.read_text()
    rows = found("reliability", *common)
    assert len(rows["rows"]) == 8
    assert [row["input"] for row in rows["summary"]] == ["hard", "own", "neighbours", "both"] * 2
    assert all(row["calibration"]["predictions"] == rows["summary"][0]["calibration"]["predictions"] > 4
               for row in rows["summary"])  # fmt: skip
    assert rows["settings"]["decoding"]["feedback"] == "no_eos(alternate(slerp(k=1, lam=0.5)))"
    assert (rows["settings"]["states"], rows["settings"]["positions"]) == (2, 6)


def test_reliability_of_a_model_that_solves_nothing(folder: Path) -> None:
    words = ("reliability", "--model", folder / "llada", "--limit", 1, "-n", 6, "--rules", "slerp", "--k", 2)
    done = analyze(*words, "--device", "cpu")
    assert done.exit_code == 0, done.exception
    assert "mini-math · slerp · 0 predictions in 0 of 2 states\n" in done.stdout
    shown = found(*words)
    assert shown["settings"]["decoding"]["commit"] == "entropy(0.1)"
    assert shown["settings"]["rules"] == {"slerp": "slerp(k=2, lam=0.3)"}


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["mixtures", "--rules", "slerp,magic"], UsageError, "unknown feedback rule 'magic'"),
        (["mixtures", "--lam", "2"], UsageError, "lam must lie in [0, 1], not 2.0"),
        (["mixtures", "--limit", "0"], UsageError, "--limit must be at least 1, not 0"),
        (["mixtures", "--prompts", "none.jsonl"], UsageError, "no such file: none.jsonl"),
        (["mixtures", "--k", "40"], UsageError, "k=40 over 3 masks makes 68921 realisations"),
        (["mixtures", "--model", str(DATA / "dream")], TokenizerError, "has no tokenizer"),
        (["joint", "--order", "random"], UsageError, "order must be one of average, confidence"),
        (["geometry", "--batch-size", "0", "--limit", "1"], UsageError, "batch_size must be at least 1, not 0"),
        (["mixtures", "--batch-size", "0", "--limit", "1"], UsageError, "batch_size must be at least 1, not 0"),
        (["joint", "--batch-size", "-2"], UsageError, "batch_size must be at least 1, not -2"),
        (["agreement", "-n", "0", "--limit", "1"], UsageError, "max_new_tokens must be at least 1, not 0"),
        (["geometry", "--tasks", "maths"], UsageError, "unknown task 'maths'"),
        (["agreement", "--split", "tests"], UsageError, "unknown split 'tests'"),
        (["reliability", "--states", "0"], UsageError, "--states must be at least 1, not 0"),
        (["reliability", "--positions", "-1"], UsageError, "--positions must be at least 1, not -1"),
        (["reliability", "--limit", "0"], UsageError, "--limit must be at least 1, not 0"),
        (["reliability", "--temperature", "1"], UsageError, "use temperature 0, not 1.0"),
        (["reliability", "--block-length", "4"], UsageError, "leave out block_length and cache"),
        (["reliability", "--rules", "alternate(slerp)"], UsageError, "leave out alternate(slerp)"),
        (["reliability", "--plot", "figure.doc"], UsageError, "cannot draw figure.doc"),
        (["reliability", "--plot", "f.png", "--tasks", "mini-math,either-or"], UsageError, "draws one task"),
        (["completions", "-t", "0"], UsageError, "tokens per step n must be at least 1, not 0"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_mistakes(words: list[str], error: type[Exception], message: str) -> None:
    done = analyze(*words, "--device", "cpu")
    assert isinstance(done.exception, error), done.exception
    assert message in str(done.exception)
    assert done.stdout == ""
