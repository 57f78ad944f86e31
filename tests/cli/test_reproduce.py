"""`softdlm reproduce all --quick`, capped to a few items, on a tiny checkpoint of each family."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from softdlm.cli.main import app
from softdlm.records.journal import SAMPLES
from softdlm.report.document import Report
from softdlm.reproduce import run
from softdlm.reproduce.analyses import Analysis
from softdlm.reproduce.experiments import NAMES
from softdlm.reproduce.study import QUICK
from tests.conftest import BENCHMARKS
from tests.tokenizers import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:generated code will run without a sandbox")
OPTIONS = {
    "llada": ["--tasks", "mini-math,mini-code", "--reading", "prompts=chat", "--limit", "1"],
    "llada2": ["--tasks", "mini-math", "--mask-id", "155", "--limit", "1"],
    "dream": ["--tasks", "gsm8k,humaneval", "--data-dir", str(BENCHMARKS), "--limit", "1"],
}


def reproduce(*words: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", *words, "--device", "cpu", "--allow-unsandboxed"])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {name: str(checkpoint(tmp_path_factory.mktemp("reproduce") / name, name)) for name in OPTIONS}


def words(models: dict[str, str], family: str, out: Path, *what: str) -> list[str]:
    return [*what, "-m", models[family], *OPTIONS[family], "--quick", "-n", "8", "--out", str(out)]


@pytest.mark.parametrize("family", OPTIONS)
def test_the_whole_paper_on_every_family(models: dict[str, str], family: str, tmp_path: Path) -> None:
    done = reproduce(*words(models, family, tmp_path, "all"))
    assert done.exit_code == 1, done.output  # Figure 1 needs words of one token each, which these tokenizers lack
    report = Report.read(tmp_path / "data" / "report.json")
    assert [section.name for section in report.sections] == list(NAMES)
    (failed,) = report.failed
    assert failed.startswith("joint: the alternatives of 'Answer is either")
    measured = {section.name: section.measured for section in report.sections}
    assert measured["figure1"] == "nothing"
    assert "0 prompts" in measured["table4"]
    limit = OPTIONS[family][-1]
    assert measured["table1"].startswith(f"{limit} prompt")
    for section in report.sections:
        assert all(table.mark == f"{QUICK.mark}, at most {limit} items of each kind" for table in section.tables)
        done_cells = [part.split(" of ") for part in section.measured.split(", ") if part.endswith("cells")]
        assert all(found == planned.removesuffix(" cells") for found, planned in done_cells)
    for file in [
        *tmp_path.glob("tables/*"),
        *tmp_path.glob("figures/*"),
        *tmp_path.glob("data/*"),
        *tmp_path.glob("*.html"),
    ]:
        assert "quick run" in file.read_text(), file
    if family == "dream":
        assert {row.labels[0] for row in report.sections[2].tables[0].rows} == {"GSM8K", "HumanEval"}
        assert report.protocol["study"]["readings"]["dream"] == "dream-dllm"
        assert report.protocol["decoding"]["gsm8k-dream, 1 items"]["temperature"] == 0.1


def test_several_models_make_one_report(models: dict[str, str], tmp_path: Path) -> None:
    """One model each of the four formats: a group of rows for each in every table."""
    folder = tmp_path / "llada-1.5"
    names = {**models, "llada-1.5": str(checkpoint(folder, "llada"))}
    settings = json.loads((Path(names["llada2"]) / "config.json").read_text())
    (Path(names["llada2"]) / "config.json").write_text(json.dumps(settings | {"mask_token_id": 155}))
    options = ["--tasks", "mini-math", "--limit", "1", "--quick", "-n", "4", "--no-figures", "--out", str(tmp_path)]
    done = reproduce("all", "-m", ",".join(names.values()), *options)
    assert done.exit_code == 1, done.output  # Figure 1 as above, once for each model
    report = Report.read(tmp_path / "data" / "report.json")
    assert len(report.failed) == len(names)
    assert report.title == "Soft tokens on llada, llada2, dream and llada-1.5"
    assert list(report.protocol["study"]) == list(names)
    for section in report.sections:
        for table in section.tables:
            assert table.heads[0] == "model"
            assert {row.labels[0] for row in table.rows} in (set(names), set()), table.name
            assert not any(table.title.endswith(name) for name in names)
    shared = [each for each in report.findings if each.where == "Table 2"]
    assert [each.scope for each in shared] == ["12 settings of 4 models"] * 3
    scopes = {each.scope for each in report.findings if each.claim.startswith("Recovery falls")}
    assert scopes == {f"{name}: mini-math" for name in names}
    assert (tmp_path / "tables" / "table2.md").read_text().count("| llada2 |") == 3


def test_what_belongs_to_one_model_is_refused_for_several(models: dict[str, str], tmp_path: Path) -> None:
    both = f"{models['llada']},{models['dream']}"
    done = reproduce("table2", "-m", both, "--mask-id", "155", "--out", str(tmp_path / "out"))
    assert "belong to one model" in str(done.exception)
    assert not (tmp_path / "out").exists()


def samples(out: Path) -> dict[str, str]:
    return {
        str(file.relative_to(out)): file.read_text() for file in [*out.glob(f"cells/*/{SAMPLES}"), *out.glob("rows/*")]
    }


def test_a_stopped_run_goes_on_and_nothing_is_measured_twice(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = words(models, "llada2", tmp_path, "table2", "table3", "b1", "table8")
    real = run.analyse

    def stop(analysis: Analysis, *rest: Any) -> Any:
        if analysis.name == "completions":
            raise KeyboardInterrupt
        return real(analysis, *rest)

    monkeypatch.setattr(run, "analyse", stop)
    monkeypatch.setattr(sys, "argv", ["softdlm", "reproduce"])
    stopped = reproduce(*asked)
    assert stopped.exit_code == 130
    assert "To go on: softdlm reproduce" in stopped.output
    assert not (tmp_path / "table2-table3-b1-table8.html").exists()
    before = samples(tmp_path)
    assert len(before) == 9 + 1
    monkeypatch.undo()
    done = reproduce(*asked, "--json")
    assert done.exit_code == 0, done.output
    after = samples(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    printed = json.loads(done.stdout[done.stdout.index("{\n") :])
    assert [table["name"] for table in printed["tables"]] == ["table2", "table3", "b1", "table8"]
    seven = reproduce(*words(models, "llada2", tmp_path, "table7"))
    assert seven.exit_code == 0
    assert len(samples(tmp_path)) == len(after) + 1  # single tokens; the rest is Table 2's
    assert (tmp_path / "table7.html").exists()
    page = (tmp_path / "table7.html").read_text()
    again = CliRunner().invoke(
        app, ["redraw", str(tmp_path / "data" / "table7.json"), "--out", str(tmp_path / "again")]
    )
    assert again.exit_code == 0
    assert (tmp_path / "again" / "table7.html").read_text() == page


KEPT = Path(__file__).parents[2] / "benchmarks" / "reproduction"


@pytest.mark.skipif(not KEPT.exists(), reason="a source archive has no benchmarks")
def test_the_kept_reproduction_is_drawn_again_from_its_compressed_data(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["redraw", str(KEPT / "data" / "report.json.gz"), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "report.html").exists()
    kept_tables = {file.name for file in KEPT.glob("tables/*.md")}
    assert kept_tables == {file.name for file in tmp_path.glob("tables/*.md")}


def test_a_bad_value_is_an_error_before_anything_is_run(tmp_path: Path) -> None:
    for bad in (["table9"], ["table2", "--tasks", "chess"], ["table2", "--limit", "0"]):
        done = reproduce(*bad, "--out", str(tmp_path / "out"))
        assert done.exit_code != 0
        assert (
            "unknown" in str(done.exception)
            or "take no place" in str(done.exception)
            or "at least" in str(done.exception)
        )
    assert not (tmp_path / "out").exists()
