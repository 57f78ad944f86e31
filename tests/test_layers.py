"""The source is layered as docs/layout.md says, and stays small.

A module imports only from its own entry of that list and from entries above it. Imports inside functions and those for
type checkers count.
"""

import ast
import io
import re
import statistics
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "softdlm"
EXEMPT = ("__init__", "__main__")
"""The public surface: it names modules of every layer, lazily."""
MOST_CODE_LINES, MOST_FILE_LINES, MOST_FUNCTION_LINES, MOST_MEDIAN_LINES = 23_700, 300, 80, 8
NO_CODE = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER", "ENCODING"}


@cache
def order() -> list[str]:
    """The entries of the map, top to bottom."""
    page = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `(\w+)(?:\.py|/)?` \|", page, flags=re.MULTILINE)


def entry(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.AST, package: list[str]) -> Iterator[tuple[int, str]]:
    """(line, full name) of everything that a module of `package` imports, also by import_module("...")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = [*base, *filter(None, [node.module])]
            yield from ((node.lineno, ".".join([*start, each.name])) for each in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from ((node.lineno, str(each.value)) for each in node.args if isinstance(each, ast.Constant))


def edges(text: str, file: Path) -> Iterator[tuple[int, str]]:
    """(line, entry) of every import of this package; importing the package itself has the entry ""."""
    package = ["softdlm", *file.relative_to(SOURCE).parts[:-1]]
    for line, name in imported(ast.parse(text), package):
        top, other, *_ = *name.split("."), ""
        if top == "softdlm":
            yield line, other if other and ((SOURCE / other).is_dir() or (SOURCE / f"{other}.py").exists()) else ""


def violations(text: str, file: Path) -> list[str]:
    mine, place = entry(file), {name: number for number, name in enumerate(order())}
    return [
        f"{file.relative_to(SOURCE)}:{line} imports {other or 'softdlm itself'}"
        for line, other in sorted(set(edges(text, file)))
        if other != mine and place.get(other, len(place)) >= place.get(mine, len(place))
    ]


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_every_entry_is_on_the_map() -> None:
    found = {entry(file) for file in SOURCE.iterdir() if file.name != "__pycache__"} - set(EXEMPT) - {"py.typed"}
    assert found - set(order()) == set()
    assert len(order()) == len(set(order())) > 0


def test_modules_import_only_from_above() -> None:
    inner = [file for file in sources() if entry(file) not in EXEMPT]
    found = [line for file in inner for line in violations(file.read_text(encoding="utf-8"), file)]
    assert found == [], "\n".join(["", *found])


@pytest.mark.parametrize(
    "line",
    [
        "import softdlm.decode",
        "from softdlm.decode import denoise",
        "from softdlm import decode",
        "from ..decode import denoise",
        "from .. import decode",
        "def late():\n    from softdlm.decode import denoise",
        "if TYPE_CHECKING:\n    from softdlm.decode import denoise",
        "from importlib import import_module\nimport_module('softdlm.decode')",
        "import softdlm",
        "from softdlm import __version__",
    ],
)
def test_every_way_to_import_upwards_is_seen(line: str) -> None:
    file = SOURCE / "models" / "load.py"
    assert len(violations(line, file)) == 1
    downwards = line.replace("decode", "errors")
    assert downwards == line or violations(downwards, file) == []


def code_lines(text: str) -> set[int]:
    """Numbers of the lines that hold code: neither blank, nor comments, nor strings that stand alone."""
    documented = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kept = (token for token in tokens if tokenize.tok_name[token.type] not in NO_CODE)
    return {line for token in kept for line in range(token.start[0], token.end[0] + 1)} - documented


def test_only_code_is_counted() -> None:
    text = '"""A module."""\n\n# words\nx = 1  # more\n"""Of x."""\ny = [\n    """a\n    b""",\n]\n'
    assert code_lines(text) == {4, 6, 7, 8, 9}


def test_files_and_functions_are_short() -> None:
    texts = {file: file.read_text(encoding="utf-8") for file in sources()}
    long = [str(file) for file, text in texts.items() if len(text.splitlines()) > MOST_FILE_LINES]
    assert long == []
    functions = {
        f"{file.relative_to(SOURCE)}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for file, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert [name for name, lines in functions.items() if lines > MOST_FUNCTION_LINES] == []
    assert statistics.median(functions.values()) <= MOST_MEDIAN_LINES


def test_the_source_does_not_grow(capsys: pytest.CaptureFixture[str]) -> None:
    total = sum(len(code_lines(file.read_text(encoding="utf-8"))) for file in sources())
    with capsys.disabled():
        print(f"{total:,} lines of code in src/softdlm, at most {MOST_CODE_LINES:,}")
    assert total <= MOST_CODE_LINES
