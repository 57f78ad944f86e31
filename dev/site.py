"""Hooks of mkdocs: pages that are written from the code, and links to files of the repository outside docs/.

`mkdocs build --strict` runs them. The front page is the README; the verbs come from the command line itself, the routes
from the server's own schema and the notebook's page from the notebook, so they cannot fall behind.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
NOTEBOOK = "examples/soft_tokens.ipynb"
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri
    if place == "index.md":
        text, place = (ROOT / "README.md").read_text(encoding="utf-8"), "../README.md"
    if place in WRITTEN:
        text = re.sub(r"<!--.*?-->", lambda _: "\n".join(WRITTEN[place]()), text, flags=re.DOTALL)
    return LINK.sub(lambda found: _link(found, place, page, files, config), text)


def _link(found: re.Match[str], place: str, page: Page, files: Files, config: MkDocsConfig) -> str:
    """A link as the site has it: inside docs/ as a page; outside, the file itself is put into the site."""
    start, target, anchor = found.group(1), found.group(2), found.group(3) or ""
    if "://" in target:
        return found.group(0)
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(place), target))
    if (ROOT / path / "README.md").exists():
        path += "/README.md"
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
    elif path == NOTEBOOK and place != "notebook.md":
        inside = "notebook.md"
    elif (ROOT / path).exists():
        inside = _kept(path, files, config)
    else:
        raise SystemExit(f"docs: {place} links to {target}, which is not in the repository")
    here = posixpath.dirname(page.file.src_uri)
    return f"{start}{posixpath.relpath(inside, here or '.')}{anchor})"


def _kept(path: str, files: Files, config: MkDocsConfig) -> str:
    """A file of the repository as a file of the site; Markdown as plain text, because its own links lead elsewhere.

    Of a folder, the names of its files.
    """
    source = ROOT / path
    inside = f"repository/{path}{'.txt' * (path.endswith('.md') or source.is_dir())}"
    if files.get_file_from_path(inside) is None:
        names = "\n".join(sorted(each.name for each in source.iterdir())) if source.is_dir() else ""
        files.append(File.generated(config, inside, content=names or source.read_bytes()))
    return inside


def verbs() -> Iterator[str]:
    from softdlm.cli.main import app

    yield from _group(typer.main.get_command(app), "softdlm")


def _group(group: Any, name: str) -> Iterator[str]:
    for word, command in group.commands.items():
        yield from (_group if hasattr(command, "commands") else _verb)(command, f"{name} {word}")


def _verb(command: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    yield f"\n## `{name}`\n\n{_plain(command.help)}\n"
    rows = [_option(each, context) for each in command.params if not getattr(each, "hidden", False)]
    yield "\n".join(["| option | what |", "|---|---|", *rows, ""])


def _option(parameter: Any, context: Any) -> str:
    names = ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
    names = names if parameter.param_type_name == "option" else f"`{parameter.name.upper()}`"
    default = parameter.get_default(context)
    told = isinstance(default, (str, int, float)) and not isinstance(default, bool) and default != ""
    words = _plain(getattr(parameter, "help", "") or "").replace("|", "\\|").replace("\n", " ")
    return f"| {names} | {words}{f' Default: `{default}`.' if told else ''} |"


def _plain(text: str | None) -> str:
    return re.sub(r"\[/?(bold|dim|cyan|yellow)[^\]]*\]", "", text or "").replace("<", "&lt;").strip()


def routes() -> Iterator[str]:
    from softdlm.serve.app import make_app

    def no_model() -> Any:
        raise AssertionError("only the schema is read")

    schema = make_app(no_model, ["model"]).openapi()
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            yield f"\n## `{method.upper()} {path}`\n\n{route.get('description', '')}\n"
            content = route.get("requestBody", {}).get("content", {}).get("application/json")
            if content:
                yield from _fields(schema["components"]["schemas"], content["schema"])
            yield f"Answers: {', '.join(sorted(route['responses']))}.\n"


def _fields(schemas: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    body = schemas[schema["$ref"].rsplit("/", 1)[1]]
    rows = [
        f"| `{name}` | {_type(each)} | {each.get('description', '')} |" for name, each in body["properties"].items()
    ]
    yield "\n".join(["| field | type | |", "|---|---|---|", *rows, ""])


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", schema.get("const", "any")))


def notebook() -> Iterator[str]:
    """The cells with their stored outputs; the page has the notebook's title already."""
    for number, cell in enumerate(json.loads((ROOT / NOTEBOOK).read_text("utf-8"))["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            yield f"\n```python\n{text}\n```\n"
            yield from map(_shown, cell["outputs"])
        else:
            yield text if number else text.partition("\n")[2]


def _shown(output: dict[str, Any]) -> str:
    if "text" in output:
        return f"\n```text\n{''.join(output['text'])}```\n"
    picture = output["data"]["image/png"].strip()
    return f'\n<img alt="What the code above draws" src="data:image/png;base64,{picture}">\n'


WRITTEN: dict[str, Callable[[], Iterator[str]]] = {
    "reference/command-line.md": verbs, "reference/http.md": routes, "notebook.md": notebook,
}  # fmt: skip
