"""The page as one file, and the marks on equations. What it does in a browser is tested in tests/page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from softdlm.cli.view import view
from softdlm.errors import SoftDLMError
from softdlm.report.player import page
from softdlm.report.player.marks import marked
from softdlm.trace import Mark, Pass, Trace
from tests.cli.test_main import run

TOP_LEVEL = re.compile(r"^(?:export )?(?:async )?(?:const|let|function\*?|class) (\w+)", re.MULTILINE)


def trace_of(pieces: list[str], prompt: int = 2) -> Trace:
    """An answer with these tokens, committed in one pass; the first ones are the prompt."""
    ids = list(range(5, 5 + len(pieces)))
    places = list(range(prompt, len(ids)))
    made = Pass(places, ids[prompt:], [0.9] * len(places))
    texts = dict(zip(ids, pieces, strict=True)) | {1: ""}
    return Trace(
        ids[:prompt], len(ids) + 1, 0, 1, [made], "a model", {"feedback": "vanilla"}, eos_ids=[1], pieces=texts
    )


def test_marks_lie_on_their_equations() -> None:
    pieces = ["user ", "3*8=24", " So", " ", "3*", "8", "=2", "4", ".", " Then", " 24-", "5=1", "8", "."]
    assert marked(trace_of(pieces)).marks == [Mark(4, 7, True), Mark(10, 12, False)]
    assert marked(trace_of(pieces, prompt=5)).marks == [Mark(4, 7, True), Mark(10, 12, False)], "part of it was given"
    assert marked(replace(trace_of(pieces), pieces={})).marks == []


class Reader(HTMLParser):
    """The inline parts of a page, and everything that it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.parts: dict[str, list[str]] = {"script": [], "style": [], "json": []}
        self.inside, self.policy, self.fetched = "", "", list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in ("script", "style"):
            self.inside = "json" if found.get("type") == "application/json" else tag
            self.parts[self.inside].append("")
        if tag == "meta" and found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""
        self.fetched += [value for name, value in attrs if value and name in ("src", "href") and tag != "a"]

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag in ("script", "style") else self.inside

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.parts[self.inside][-1] += data


def test_a_saved_page_holds_all_that_it_needs() -> None:
    """Its policy allows one script and one style by their digests, and nothing that is fetched."""
    trace = trace_of(["user", "</script><script>alert(1)</script><!--", "5", "</style>"])
    text = page.saved_page(page.data_of([page.Method("</script>", trace)], note="<b>"))
    read = Reader(text)
    (script,), (style,), (data,) = read.parts["script"], read.parts["style"], read.parts["json"]
    for kind, part in (("script", script), ("style", style)):
        assert f"{kind}-src 'sha256-{b64encode(sha256(part.encode()).digest()).decode()}'" in read.policy
    assert "default-src 'none'" in read.policy
    assert "unsafe" not in read.policy
    assert [each for each in read.fetched if not each.startswith("data:")] == []
    assert Trace.from_json(json.loads(data)["methods"][0]["trace"]) == trace
    assert not re.search(r"^\s*(import|export) ", script, re.MULTILINE)


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[2] / "docs" / "gallery").glob("*.html")), ids=lambda f: f.stem
)
def test_the_gallery_is_of_this_page(file: Path) -> None:
    """Else: python examples/gallery.py --redraw."""
    text = file.read_text(encoding="utf-8")
    data = page.held_in(text)
    assert page.saved_page(data) == text
    assert len(text) < 1_000_000
    for method in data["methods"]:
        trace = Trace.from_json(method["trace"])
        assert marked(trace).marks == trace.marks
    assert data["note"].startswith("Picked: ")


def test_modules_become_one_without_clashes() -> None:
    """Each file is in the bundle once, and no two have a name in common."""
    names = Counter(TOP_LEVEL.findall(page.bundle()))
    assert [name for name, times in names.items() if times > 1] == []
    for name, file in page.files().items():
        if file.suffix == ".js":
            own = TOP_LEVEL.findall(file.read_text(encoding="utf-8"))
            assert set(own) <= names.keys(), f"{name} is not reached from main.js"


def test_view_writes_a_page_beside_the_first_trace(tmp_path: Path) -> None:
    for name in ("one", "two"):
        trace_of(["user", "x ", "2+2=", "5"]).save(tmp_path / f"{name}.json")
    done = run("view", str(tmp_path / "one.json"), str(tmp_path / "two.json"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Page: {tmp_path / 'one.html'}\n"
    (data,) = Reader((tmp_path / "one.html").read_text()).parts["json"]
    methods = json.loads(data)["methods"]
    assert [each["label"] for each in methods] == ["Vanilla (one)", "Vanilla (two)"]
    assert methods[0]["trace"]["marks"] == [[2, 3, False]]
    view([tmp_path / "one.json"], tmp_path / "x.html")
    assert (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    ("files", "out", "message"),
    [
        (["no.json"], None, "no.json cannot be read: No such file or directory"),
        (["old.json"], None, "old.json is a trace of version 1; this softdlm reads version 2"),
        (["text.json"], None, "text.json is not a trace saved by softdlm: it is not JSON"),
        (["empty.json"], None, "empty.json holds no passes"),
        (["."], None, ". is not a regular file: give one"),
        (["good.json"] * 7, None, "7 traces have no room on one page: give at most 6"),
        (["good.json"], "good.json", "--out good.json is one of the traces"),
        (["page.html"], None, "page.html is a trace, where the page would be written"),
        (["good.json"], "folder", "cannot write folder: it exists and is not a regular file"),
    ],
)
def test_view_refuses_what_it_cannot_show_in_one_line(
    files: list[str], out: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "old.json").write_text('{"softdlm_trace": 1}')
    (tmp_path / "text.json").write_text("no")
    trace_of(["user", "x", "y"]).save(tmp_path / "good.json")
    trace_of(["user", "x", "y"]).save(tmp_path / "page.html")
    replace(trace_of(["user", "x", "y"]), passes=[]).save(tmp_path / "empty.json")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    with pytest.raises(SoftDLMError) as caught:
        view([Path(each) for each in files], None if out is None else Path(out))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()} == before


def test_view_needs_no_server(tmp_path: Path) -> None:
    """Neither FastAPI nor the networks are imported."""
    trace_of(["user", "x", "y"]).save(tmp_path / "good.json")
    program = (
        "import sys; from typer.testing import CliRunner; from softdlm.cli.main import app\n"
        f"done = CliRunner().invoke(app, ['view', {str(tmp_path / 'good.json')!r}])\n"
        "print(done.exit_code, sorted({'fastapi', 'starlette', 'uvicorn', 'transformers'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0 []"
