"""What is published: a wheel and a source archive, and that the wheel alone decodes and serves."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import softdlm

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "softdlm"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MOST_BYTES = {"wheel": 13 * 2**20, "sdist": 18 * 2**20}
PATIENCE = 60.0
QUESTION = "Ava has 3 boxes of 8 apples. She gives away 5. How many apples does she have now?"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from hatchling.builders.wheel import WheelBuilder

    (made,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(made)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from hatchling.builders.sdist import SdistBuilder

    (made,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("sdist")), versions=["standard"])
    return Path(made)


def sources(root: Path) -> set[str]:
    """The package's files, as a wheel names them."""
    found = (each for each in (root / "src" / "softdlm").rglob("*") if each.is_file())
    return {each.relative_to(root / "src").as_posix() for each in found if "__pycache__" not in each.parts}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as held:
        names = set(held.namelist())
        texts = [held.read(name) for name in names]
    own = {name for name in names if ".dist-info/" not in name}
    assert own == sources(ROOT)
    assert {
        "softdlm/py.typed", "softdlm/builtin/model.safetensors", "softdlm/builtin/tokenizer.json",
        "softdlm/records/trace.schema.json", "softdlm/report/player/page.css",
    } <= own  # fmt: skip
    assert {Path(name).name for name in names - own} == {"METADATA", "WHEEL", "RECORD", "LICENSE", "entry_points.txt"}
    assert wheel.stat().st_size < MOST_BYTES["wheel"]
    assert not [text for text in texts if str(ROOT).encode() in text], "a path of the machine that built it"


def test_the_archive_makes_the_same_wheel(archive: Path, tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    assert archive.stat().st_size < MOST_BYTES["sdist"]
    with tarfile.open(archive) as held:
        held.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    made = {each.distribution_path for each in WheelBuilder(str(root)).recurse_included_files()}
    assert made == sources(ROOT)
    parts = {part for each in root.rglob("*") for part in each.relative_to(root).parts}
    assert not parts & {"__pycache__", ".venv", ".git", ".hypothesis", ".pytest_cache", "node_modules"}
    assert {"tests", "docs", "examples", "CHANGELOG.md", "PKG-INFO"} <= parts


def test_the_metadata_is_valid_and_its_page_has_no_link_that_breaks(wheel: Path) -> None:
    """`packaging` checks every field, as an index does."""
    with zipfile.ZipFile(wheel) as held:
        (name,) = [each for each in held.namelist() if each.endswith(".dist-info/METADATA")]
        found = Metadata.from_email(held.read(name), validate=True)
    assert (found.name, str(found.version)) == ("softdlm", softdlm.__version__)
    assert found.description_content_type == "text/markdown"
    assert found.license_expression == "MIT"
    assert found.description is not None
    assert [each for each in links(found.description) if "://" not in each] == []
    assert found.description.count("```python") == (ROOT / "README.md").read_text(encoding="utf-8").count("```python")


def test_one_version() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (newest, date), *_ = re.findall(
        r"^## (\d\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert newest == softdlm.__version__
    assert f"\nversion: {newest}\ndate-released: {date}\n" in citation


def links(text: str) -> list[str]:
    """Where links and pictures of a page lead, outside code."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", plain) + re.findall(r"(?:src|href|srcset)=\"([^\"]+)\"", plain)


@pytest.fixture
def package_page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("package_page", ROOT / "dev" / "package_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_with_an_address_the_page_and_the_links_lead_there(package_page: ModuleType) -> None:
    address = "https://host.example/me/softdlm"
    metadata: dict[str, Any] = {}
    package_page.PackagePage(str(ROOT), {"address": address + "/"}).update(metadata)
    assert metadata["urls"]["Source"] == address
    found = [each for each in links(metadata["readme"]["text"]) if each.startswith(address)]
    assert found
    for each in found:
        path = re.sub(r"^/(blob|raw)/HEAD/", "", each.removeprefix(address)).partition("#")[0]
        assert (ROOT / path).exists(), each
    assert all("://" in each for each in links(metadata["readme"]["text"]))


@pytest.mark.parametrize(
    ("text", "without", "with_one"),
    [
        ("[a `b`](docs/c.md#d)", "a `b`", "[a `b`](A:/blob/HEAD/docs/c.md#d)"),
        ("[`[MASK]` b](c.md)", "`[MASK]` b", "[`[MASK]` b](A:/blob/HEAD/c.md)"),
        ("x ![alt](a.png) y", "x  y", "x ![alt](A:/raw/HEAD/a.png) y"),
        ("[![alt](a.png)](b.html)", "", "[![alt](A:/raw/HEAD/a.png)](A:/blob/HEAD/b.html)"),
        ('<img src="a.png" width="9">', "", '<img src="A:/raw/HEAD/a.png" width="9">'),
        ("[a](https://b.c)", "[a](https://b.c)", "[a](https://b.c)"),
        ("```\n[a](b.md)\n```", "```\n[a](b.md)\n```", "```\n[a](b.md)\n```"),
    ],
)
def test_links_of_the_page(package_page: ModuleType, text: str, without: str, with_one: str) -> None:
    assert package_page.page(text, "") == without
    assert package_page.page(text, "A:") == with_one


DISTRIBUTIONS = {"lm_eval": "lm-eval", "huggingface_hub": "huggingface-hub", "prometheus_client": "prometheus-client"}
BROUGHT = {
    "numpy": "transformers", "click": "typer", "starlette": "fastapi", "pydantic": "fastapi",
    "yaml": "huggingface-hub", "tqdm": "huggingface-hub", "datasets": "lm-eval", "math_verify": "lm-eval",
}  # fmt: skip
"""Imported, and held by something that is declared."""


def test_whatever_the_source_imports_is_declared() -> None:
    """The wheel is tried beside the packages of this environment, which would hide a dependency that nobody names."""
    project = PROJECT["project"]
    given = [each for words in project["optional-dependencies"].values() for each in words] + project["dependencies"]
    declared = {Requirement(each).name for each in given}
    found = {name for file in SOURCE.rglob("*.py") for name in imported(ast.parse(file.read_text(encoding="utf-8")))}
    third = found - set(sys.stdlib_module_names) - {"softdlm"}
    assert {name for name in third if BROUGHT.get(name, DISTRIBUTIONS.get(name, name)) not in declared} == set()


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of a new environment that holds the wheel, and sees this one's packages but not this source."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
    packages = [each for each in sys.path if Path(each).name in ("site-packages", "dist-packages")]
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "packages.pth").write_text("\n".join(packages), encoding="utf-8")
    return folder / "bin"


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def test_the_wheel_decodes_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    code = "import softdlm; print(softdlm.__file__); print(softdlm.generate(softdlm.load('builtin'), QUESTION).text)"
    command = [installed / "python", "-c", code.replace("QUESTION", repr(QUESTION))]
    done = subprocess.run(command, cwd=tmp_path, env=clean(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    place, answer = done.stdout.split("\n", 1)
    assert installed.parent in Path(place).parents
    assert answer.rstrip().endswith("#### 19")
    assert list(tmp_path.iterdir()) == []


@contextmanager
def serving(installed: Path, folder: Path) -> Iterator[str]:
    """The address of `softdlm serve`, once it says it."""
    command = [installed / "softdlm", "serve", "--port", "0"]
    process = subprocess.Popen(
        command, cwd=folder, env=clean(), text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        assert process.stderr is not None
        yield next(found[0] for line in process.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def asked(url: str, body: dict[str, Any] | None = None) -> str:
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with closing(urllib.request.urlopen(request, timeout=PATIENCE)) as answer:
        return answer.read().decode()


def test_the_wheel_serves_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    with serving(installed, tmp_path) as url:
        body = {"model": "builtin", "messages": [{"role": "user", "content": QUESTION}]}
        found = json.loads(asked(f"{url}/v1/chat/completions", body))
        assert found["choices"][0]["message"]["content"].rstrip().endswith("#### 19")
        assert "<html" in asked(f"{url}/")
    assert list(tmp_path.iterdir()) == []
