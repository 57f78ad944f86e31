"""A reproduction's page in a real browser, on our own report: phones, desktops, paper, a keyboard, a screen reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from softdlm.report.document import Report
from softdlm.report.formats import LONG
from softdlm.report.page import write
from softdlm.report.table import Table
from tests.page.browser import Browser, chromium

DATA = Path(__file__).parents[2] / "benchmarks" / "reproduction" / "data" / "report.json.gz"
PHONE, DESKTOP, PAPER = 360, 1280, 703
"""Widths in CSS pixels; of A4 between its margins."""
TOO_WIDE = (
    "return [...document.querySelectorAll('table, svg, p, h1, h2, h3')].filter(e => {over}).map(e => e.outerHTML)"
)


def shortened(table: Table) -> Table:
    """Still long enough to be folded."""
    return replace(table, rows=table.rows[: LONG + 1])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    whole = Report.read(DATA)
    sections = tuple(replace(each, tables=tuple(map(shortened, each.tables))) for each in whole.sections)
    file = write(replace(whole, sections=sections), tmp_path_factory.mktemp("report"), "report")
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        browser.open(file.as_uri())
        yield browser


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_only_tables_and_figures_scroll_sideways(page: Browser, width: int) -> None:
    page.size(width)
    page.run("document.querySelectorAll('details').forEach((each) => each.open = true)")
    assert page.run("return document.documentElement.scrollWidth") == width
    over = "!e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1"
    assert page.run(TOO_WIDE.replace("{over}", over)) == []
    assert bool(
        page.run("const e = document.querySelector('#table6 .scroll'); return e.scrollWidth > e.clientWidth")
    ) is (width == PHONE)


def test_on_a_phone_a_row_keeps_its_label_and_the_contents_are_near(page: Browser) -> None:
    page.size(PHONE)
    page.run("document.querySelector('#table6 .scroll').scrollLeft = 999")
    assert page.run("return document.querySelector('#table6 tbody .key').getBoundingClientRect().left") < 30
    page.one(".up").click()
    assert page.run("return document.getElementById('contents').getBoundingClientRect().top") < 100


def test_on_a_desktop_the_contents_stay_beside_the_text(page: Browser) -> None:
    page.size(DESKTOP)
    page.run("location.hash = 'protocol'")
    top, right = page.run("const r = document.querySelector('nav').getBoundingClientRect(); return [r.top, r.right]")
    assert top == 0
    assert right < page.run("return document.querySelector('main').getBoundingClientRect().left")


def test_a_figure_comes_before_the_verdicts(page: Browser) -> None:
    page.size(DESKTOP)
    assert page.run("return document.querySelector('figure').compareDocumentPosition(findings) & 4") == 4
    assert page.run("scrollTo(0, 0); return document.querySelector('svg').getBoundingClientRect().bottom") < 900


@pytest.mark.parametrize(("width", "dark"), [(PHONE, False), (DESKTOP, True)])
def test_axe_finds_nothing(page: Browser, width: int, dark: bool) -> None:
    page.size(width, dark=dark)
    assert page.axe("minor", "moderate", "serious", "critical") == []


def test_on_paper_nothing_is_cut_and_all_is_dark_on_white(page: Browser) -> None:
    page.size(PAPER)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    page.run("document.querySelectorAll('details').forEach((each) => each.open = false)")
    assert page.run(TOO_WIDE.replace("{over}", f"e.getBoundingClientRect().right > {PAPER}")) == []
    assert page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.one("nav").is_displayed()
    assert page.run("return document.querySelector('#rivals tbody td').getBoundingClientRect().height") > 0
