"""The first page does not lie: its Python and its commands run, on a tiny checkpoint in the real format."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from softdlm.tasks.consistency import equations
from tests.small_checkpoints import small_checkpoint
from tests.tokenizers import checkpoint

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
RESULTS = (ROOT / "docs" / "results.md").read_text()
DECODING = (ROOT / "docs" / "decoding.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
HUB = "GSAI-ML/LLaDA-8B-Instruct"


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("readme"), "llada")


def test_the_python_runs(tmp_path: Path) -> None:
    code = "\n".join(blocks("python"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, table = done.stdout.split("builtin · mini-math", 1)
    for shown in re.findall(r"\d+[-+*/]\d+=\d+|#### \d+", blocks("python")[0]):
        assert shown in said, "the comment shows what is printed"
    assert re.search(r"\d+ passes\n", said)
    assert [line.split()[0] for line in table.splitlines() if "4 a step" in line or "entropy bound" in line] == [
        "vanilla",
        "no_eos-alternate-slerp",
    ]


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=["README", "tutorial"])
def test_no_example_shows_a_false_equation(page: str) -> None:
    shown = "\n".join(blocks("[a-z]*", page))
    assert [equation.text for equation in equations(shown) if not equation.true] == []


def test_a_rule_of_ones_own_runs_as_the_docs_show(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(blocks("python", DECODING)))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = [line.split()[0] for line in done.stdout.splitlines() if "4 a step" in line]
    assert table == ["vanilla", "SureSlerp", "slerp"]


def test_the_tables_of_rules_are_those_of_the_registry() -> None:
    from softdlm.registry import names
    from softdlm.report.rule_tables import with_rules

    assert with_rules(DECODING) == DECODING, "write them anew: python -m softdlm.report.rule_tables docs/decoding.md"
    for kind in ("feedback", "commit", "cache"):
        assert all(f"| `{name}" in DECODING for name in names(kind))


def test_the_docs_list_every_field_that_a_user_may_set_or_read() -> None:
    from dataclasses import fields

    from softdlm import Context, Decoding, Embeddings, Prediction

    for kind in (Decoding, Prediction, Embeddings, Context):
        for each in fields(kind):
            assert f"`{each.name}`" in DECODING, f"docs/decoding.md lacks {kind.__name__}.{each.name}"


def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path) -> None:
    code = "\n".join(blocks("python", TUTORIAL))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    vanilla, euclidean, slerp = re.findall(r"#### ?(\S+)", done.stdout)[:3]
    assert vanilla != "5", "the tutorial says that vanilla decoding fails here"
    assert (euclidean, slerp) == ("5", "5")


PAGES_WITH_COMMANDS = README + TUTORIAL
COMMANDS = [
    line for block in blocks("bash", PAGES_WITH_COMMANDS) for line in block.splitlines() if line.startswith("softdlm ")
]


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 4
    assert any(HUB in command for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(command: str, folder: Path, tmp_path: Path) -> None:
    words = shlex.split(command.replace(HUB, str(folder)))[1:]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", "softdlm", *words], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


OWN_RULE = (ROOT / "docs" / "own-rule.md").read_text()
EXAMPLE = ROOT / "examples" / "my_rules.py"


def test_the_page_on_rules_of_ones_own_shows_the_example() -> None:
    assert EXAMPLE.read_text().endswith("\n\n".join(blocks("python", OWN_RULE)))


@pytest.mark.parametrize("command", [each.replace("\\\n", "") for each in blocks("bash", OWN_RULE)])
def test_its_commands_run(command: str, tmp_path: Path) -> None:
    """On two items instead of 200."""
    shutil.copy(EXAMPLE, tmp_path / "my_rules.py")
    words = shlex.split(command.replace("--limit 200", "--limit 2"))[1:]
    done = subprocess.run([sys.executable, "-m", "softdlm", *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


RECIPES = (ROOT / "docs" / "recipes.md").read_text()
LAPTOP = [line for block in blocks("bash", RECIPES) for line in block.splitlines()]


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_checkpoint(tmp_path_factory.mktemp("recipes"), "a2d-qwen3")


@pytest.mark.parametrize("command", LAPTOP)
def test_the_laptops_commands_run(command: str, small_folder: Path, tmp_path: Path) -> None:
    """On a tiny checkpoint in the format of the 0.6 B ones, in an empty folder."""
    words = shlex.split(command.replace("dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1", str(small_folder)))[1:]
    done = subprocess.run([sys.executable, "-m", "softdlm", *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "dllm-hub" not in done.stdout or words == ["doctor"]


def test_the_recipes_memory_is_what_doctor_counts() -> None:
    from softdlm.cli.doctor import needs
    from softdlm.cli.models import listed

    free = {"CPU": 0, "cuda:0": 0}
    found = {each.name: [round(place["GiB"], 1) for place in list(needs(each, free).values())[1:]] for each in listed()}
    rows = re.findall(
        r"^\| `(dllm-hub/Qwen\S+)`.*\| (\d\.\d) GiB \| (\d\.\d) GiB on a GPU \|$", RECIPES, flags=re.MULTILINE
    )
    assert len(rows) == 3
    assert all(found[name] == [float(cpu), float(gpu)] for name, cpu, gpu in rows)
    assert found["GSAI-ML/LLaDA-8B-Instruct"][0] == 31.9
    assert "it is 31.9 GiB" in RECIPES


def test_the_example_shows_what_the_docs_show() -> None:
    example = ROOT / "examples" / "harry_potter.py"
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert line.strip() in RESULTS


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="a source archive has no benchmarks")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    files = [target.partition("#")[0] for target in targets if not target.startswith(("http", "#", "mailto:"))]
    assert [file for file in files if not (page.parent / file).exists()] == []


def test_the_queue_runs_as_the_docs_show() -> None:
    (code,) = [each for each in blocks("python", (ROOT / "docs" / "engines.md").read_text()) if "Engine" in each]
    start = "import softdlm\nmodel = softdlm.load('builtin')\n"
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("#### 42") == 2
