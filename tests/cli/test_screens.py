"""Every table of every verb on a screen of 80 columns: no line is longer, nothing in it is broken."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import softdlm
from softdlm.bench.report import BenchReport, SuiteOutcome, verdict_row
from softdlm.bench.targets import TARGETS
from softdlm.cli.bench import in_lines
from softdlm.cli.doctor import needs
from softdlm.cli.main import app
from softdlm.cli.reproduce import claims
from softdlm.report.document import Finding
from softdlm.report.formats import print_table
from softdlm.report.row_tables import table
from softdlm.report.table import Cell, Column, Row, Table
from tests.evaluate.cells import cell, write_cell
from tests.tokenizers import checkpoint

WIDTH = 80


def shown(*words: Any) -> str:
    done = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": str(WIDTH)})
    assert done.exit_code == 0, done.exception
    assert_fits(done.stdout)
    return done.stdout


def assert_fits(text: str) -> None:
    assert max(map(len, text.splitlines())) <= WIDTH, text


def assert_whole(text: str, *cells: str) -> None:
    assert [each for each in cells if each not in text] == []


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("screens") / "llada", "llada")


@pytest.mark.parametrize("name", ["mixtures", "consistency", "joint"])
def test_analyses_of_prompts(model: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps({"prompt": "either a or b:", "a": "a", "b": "b", "masks": 2}))
    words = ("analyze", name, "--model", model, "--device", "cpu", "--prompts", file, "--k", 2)
    assert_whole(shown(*words), "euclidean", "slerp", "additive", "norm-mix")


@pytest.mark.parametrize("name", ["geometry", "completions", "agreement"])
def test_analyses_of_decodes(model: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "questions-with-a-name.jsonl"
    file.write_text('{"prompt": "the cat"}')
    words = ("analyze", name, "--model", model, "--device", "cpu", "--prompts", file, "-n", 8, "--eos", "forbid")
    text = shown(*words)
    assert_whole(text, "questions-with-a-name", "euclidean", "slerp", "additive", "norm-mix")
    assert "_" not in text
    if name == "geometry":
        narrow = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "40"}).stdout
        parts = narrow.partition("soft tokens")[2].strip().split("\n\n")
        assert len(parts) > 1
        assert all("norm-mix" in part for part in parts)  # each says which rule a row is about


def test_models_and_doctor() -> None:
    names = ("builtin", "Dream-org/Dream-v0-Instruct-7B", "inclusionAI/LLaDA2.0-mini")
    assert_whole(shown("models"), *names, "<|role_end|>", "16.3 B")
    assert_whole(shown("doctor"), *names, "transformers")


def test_doctor_with_many_gpus() -> None:
    free = {"CPU": 2**40} | {f"cuda:{index} (NVIDIA H200)": 2**37 for index in range(8)}
    text = table([needs("Dream-org/Dream-v0-Instruct-7B", 7_615_616_512, free)], WIDTH).plain
    assert_fits(text)
    assert text.count("fits") == 9


def test_compare(model: Path) -> None:
    text = shown("compare", "the cat", "-m", model, "-n", 24, "-t", 4, "--eos", "forbid", "--device", "cpu")
    assert_whole(text, "method", "vanilla", "euclidean", "slerp", "24")


def test_results_and_their_folders(tmp_path: Path) -> None:
    verdicts = {str(item): item < 8 for item in range(12)}
    bound = "entropy(0.1)"
    folders = [
        write_cell(tmp_path, cell(), verdicts),
        write_cell(tmp_path, cell(commit=bound), verdicts),
        write_cell(tmp_path, cell(softdlm.Slerp(), bound), verdicts),
        write_cell(tmp_path, cell(softdlm.Slerp(k=2), bound, block_length=4, seed=1), verdicts),
    ]
    text = shown("results", tmp_path)
    cells = ("slerp k=2 lam=0.3", "entropy bound 0.1", "66.7 [39.1, 86.2]", "block_length=4", "seed=1")
    assert_whole(text, *cells, *(folder.name[:8] for folder in folders))


def test_a_wide_table_of_the_paper(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    numbers = tuple(Cell(96.1 + index, 94.7, 97.1, paper=73.2 + index, note="p 8e-11") for index in range(4))
    columns = tuple(Column(name) for name in ("SLERP", "SLERP, candidate norm", "linear, [MASK] norm", "|cosine|"))
    row = Row(("mini-math", "entropy bound 0.1"), numbers)
    print_table(Table("t", "A title of a table " * 6, ("task", "rate"), columns, (row,), ("A note of words. " * 9,)))
    text = capsys.readouterr().out
    assert_fits(text)
    assert_whole(text, *(f"{96.1 + index:.1f} [94.7, 97.1] p 8e-11" for index in range(4)), "76.20")


def test_findings() -> None:
    claim = "Soft tokens move probability to the coherent answers, and the most likely answer is one of them"
    found = [Finding(claim, "ours, with Table 6", task, "does not hold", "e") for task in ("mini-math", "MATH-500")]
    text = table(list(claims(found)), WIDTH, "Findings").plain
    assert_fits(text)
    assert_whole(text, "ours, with Table 6", "mini-math: does not hold", "MATH-500: does not hold", *claim.split())
    assert text.count("probability") == 1


def test_targets_of_the_bench() -> None:
    outcome = SuiteOutcome("llada2-mini", "all", "measured")
    outcome.verdicts = [verdict_row(name, 1234.5, TARGETS[name].shapes[0], "NVIDIA H200") for name in TARGETS]
    rows = BenchReport(Path("unused"), {}, [outcome]).verdicts()
    text = table(list(map(in_lines, rows)), WIDTH, labels=2).plain
    assert_fits(text)
    for row in rows:
        assert_whole(text, row["measured"], row["target"], row["verdict"], *row["what"].split())
