"""Screenshots of the page for the documentation: `python -m benchmarks.page_screens` writes docs/figures/page-*.png.

They show the gallery's page on which vanilla fails, in the pass before it does, and the form of a served page; the
strip shows two of its answers in four passes, cell for cell as the page draws them. Colours are reduced to 256 by
Pillow, so that each file stays below 200 kB.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from tests.page.browser import Browser, chromium
from tests.serve.server import running

ROOT = Path(__file__).parents[1]
GALLERY, FIGURES = ROOT / "docs" / "gallery", ROOT / "docs" / "figures"
WIDTHS = (400, 1000, 1600)
MOST = 200_000
"""Bytes of a file."""
MIDDLE = (
    "const s = document.getElementById('pass'); s.value = Math.round(Number(s.max) * 0.7);"
    "s.dispatchEvent(new Event('input'))"
)
STRIP = {"Vanilla": "Vanilla, four tokens a pass", "The model's own": "Soft tokens in turns, as recommended"}
"""Cards of the strip, and how it calls them."""
PASSES = (2, 5, 9, 16)
STRIPPED = Path(__file__).with_name("page_strip.js")


def keep(name: str, data: bytes) -> None:
    image = Image.open(io.BytesIO(data)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    file = FIGURES / f"page-{name}.png"
    image.save(file, optimize=True)
    assert file.stat().st_size < MOST, f"{file} has {file.stat().st_size} bytes"
    print(f"{file}: {image.size[0]} x {image.size[1]}, {file.stat().st_size:,} bytes")


def shoot(browser: Browser, name: str, width: int, dark: bool) -> None:
    browser.size(width, dark=dark, calm=True)
    browser.open((GALLERY / "vanilla-fails.html").as_uri())
    browser.until(lambda: browser.all(".card"), "the page")
    browser.run(MIDDLE)
    wide = browser.run("return document.documentElement.scrollWidth")
    assert wide == width, f"the page is {wide} wide on a screen of {width}"
    high = browser.run("return document.documentElement.scrollHeight")
    browser.size(width, high, dark=dark, calm=True)
    keep(f"{name}-{width}-{'dark' if dark else 'light'}", browser.picture())


def strip(browser: Browser, width: int = 1000) -> None:
    browser.size(width, calm=True)
    browser.open((GALLERY / "vanilla-fails.html").as_uri())
    browser.until(lambda: browser.all(".card"), "the page")
    wanted = f"const [passes, names, width] = {json.dumps([PASSES, STRIP, width])};"
    high = browser.run(wanted + STRIPPED.read_text())
    browser.size(width, round(high), calm=True)
    keep("strip", browser.picture())


def main() -> None:
    with TemporaryDirectory() as folder, chromium(Path(folder)) as browser:
        strip(browser)
        for width in WIDTHS:
            for dark in (False, True):
                shoot(browser, "player", width, dark)
        with running() as url:
            for width, dark in ((400, True), (1000, False)):
                browser.size(width, 620, dark=dark)
                browser.open(url)
                browser.until(lambda: browser.all(".method"), "the form")
                keep(f"form-{width}-{'dark' if dark else 'light'}", browser.picture())
        assert browser.complaints() == []


if __name__ == "__main__":
    main()
