"""The page holds everything, fetches nothing, and comes back from its data."""

import gzip
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from softdlm.errors import UsageError
from softdlm.records.files import write_json
from softdlm.report.document import Drawing, Finding, Report, Section
from softdlm.report.page import inline, page, write
from softdlm.report.table import Cell, Column, Row, Table

TABLE = Table(
    "table2", "Accuracy <all>", ("task",), (Column("SLERP"),), (Row(("mini-math",), (Cell(96.1, best=True),)),)
)
PANELS = {"mini-math": {"vanilla": [(2, 92.6, 90.8, 94.1), (4, 89.0, 87.0, 91.0)], "slerp": [(2, 97.6, 96.5, 98.4)]}}
CURVES = Drawing("table2", "Curves & bars.", "curves", {"panels": PANELS, "xlabels": ["n"], "ylabel": "%"})
HELD = {"panels": PANELS, "held": [(64, 96.1, 94.7, 97.1)], "ylabel": "%"}
SHARES = {"panels": {"SLERP": [0.5, 0.1, 0.0, 0.4]}, "names": ["a b", "a d", "c b", "c d"], "coherent": [0, 3]}
DRAWINGS = (CURVES, Drawing("frontier", "F.", "frontiers", HELD), Drawing("figure1", "J.", "shares", SHARES))
SECTION = Section("table2", "Table 2: accuracy", "About it.", (TABLE,), DRAWINGS, "9 of 9 cells", "GSM8K itself")
FINDINGS = (
    Finding("SLERP wins", "Table 2", "mini-math", "holds", "at 2 +5.0 points (p 1e-08)"),
    Finding("SLERP wins", "Table 2", "mini-code", "does not hold", "at 2 -8.7 points (p 0.01)"),
)
PROTOCOL = {"date": "2026-11-15", "study": {"chat": True, "scale": {"lams": [0.1, 0.3]}}, "measured_on": ["cpu"]}
REPORT = Report("Soft tokens on <b>", "Lead.", "quick run", (SECTION,), FINDINGS, PROTOCOL, ("mbpp: no sandbox",))


class Reader(HTMLParser):
    """Notes tags that are left open, ids, and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found[name] or "" for name in ("href", "src", "xlink:href") if name in found]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "br"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page")
    assert write(REPORT, out, "report") == out / "report.html"
    return out


def test_the_page_is_whole_and_fetches_nothing(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert all(link.startswith("#") for link in reader.links)
    assert {link[1:] for link in reader.links} <= set(reader.ids)
    assert {"findings", "table2", "protocol"} <= {link[1:] for link in reader.links}
    assert "url(http" not in text
    assert "@import" not in text
    assert "<script" not in text


def test_the_page_says_everything(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    for words in (
        "Soft tokens on &lt;b&gt;", "Accuracy &lt;all&gt;", "quick run", "mbpp: no sandbox", "9 of 9 cells",
        "GSM8K itself", "Curves &amp; bars.", "SLERP wins", "at 2 -8.7 points", "scale.lams", "0.1, 0.3",
        "1 does not hold",
    ):  # fmt: skip
        assert words in text
    assert text.count("<svg") == 6  # the first figures are those of Table 2, once more
    assert '<a href="#table2">Table 2</a>' in text
    assert text.count("SLERP wins") == 1  # a claim once, with a line for each task


def test_tables_and_figures_lie_beside_it_with_the_mark(folder: Path) -> None:
    assert sorted(file.name for file in (folder / "tables").iterdir()) == ["table2.csv", "table2.md", "table2.tex"]
    for name in ("table2", "frontier", "figure1"):
        svg = (folder / "figures" / f"{name}.svg").read_text()
        ElementTree.fromstring(svg)
        assert "quick run" in svg


def test_figures_in_the_page_keep_their_parts_and_take_its_colours() -> None:
    svg = (
        '<?xml version="1.0"?>\n<svg width="1"><metadata>x</metadata><g id="a" style="fill: #000000; stroke: #DDDDDD"/>'
    )
    svg += '<use xlink:href="#a"/><g clip-path="url(#a)"/></svg>'
    body = inline(svg, "fig", "Figure 1")
    assert body.startswith('<svg role="img" aria-label="Figure 1" width="1"><g id="fig-a"')
    assert 'style="fill: currentColor; stroke: var(--line)"/>' in body
    assert 'href="#fig-a"' in body
    assert "url(#fig-a)" in body


def test_a_report_comes_back_from_its_data(tmp_path: Path, folder: Path) -> None:
    write_json(tmp_path / "report.json", REPORT.record())
    again = Report.read(tmp_path / "report.json")
    assert again.sections[0].tables == (TABLE,)
    assert (again.findings, again.mark, again.failed) == (FINDINGS, "quick run", ("mbpp: no sandbox",))
    write(again, tmp_path, "report")
    assert (tmp_path / "report.html").read_text() == (folder / "report.html").read_text()
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UsageError, match="not a report"):
        Report.read(tmp_path / "other.json")
    with pytest.raises(UsageError, match="cannot be read"):
        Report.read(tmp_path / "none.json")


def test_compressed_data_gives_the_same_report_and_damaged_data_one_line(tmp_path: Path) -> None:
    write_json(tmp_path / "report.json", REPORT.record())
    packed = gzip.compress((tmp_path / "report.json").read_bytes())
    (tmp_path / "report.json.gz").write_bytes(packed)
    assert Report.read(tmp_path / "report.json.gz") == Report.read(tmp_path / "report.json")
    for damaged in (packed[:-20], b"not gzip", packed[:20] + bytes(20) + packed[40:]):
        (tmp_path / "damaged.json.gz").write_bytes(damaged)
        with pytest.raises(UsageError, match=r"damaged.json.gz cannot be read"):
            Report.read(tmp_path / "damaged.json.gz")


@pytest.mark.parametrize(
    "change",
    [
        {"sections": 3},
        {"title": None},
        {"findings": [{"claim": "c"}]},
        {"colour": "red"},
        {"sections": [{"name": "x"}]},
    ],
)
def test_a_damaged_report_is_one_line(tmp_path: Path, change: dict[str, object]) -> None:
    write_json(tmp_path / "report.json", {**REPORT.record(), **change})
    with pytest.raises(UsageError, match=r"report\.json cannot be read: \S"):
        Report.read(tmp_path / "report.json")


def test_without_figures_there_are_none(tmp_path: Path) -> None:
    write(REPORT, tmp_path, "report", figures=False)
    assert not (tmp_path / "figures").exists()
    assert "<svg" not in page(REPORT, {})
    assert re.search(r"<h2>Table 2: accuracy <a", (tmp_path / "report.html").read_text())
