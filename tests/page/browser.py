"""Debian's Chromium without a window, and what tests and screenshots do with it."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

REQUIRED = "SOFTDLM_REQUIRE_BROWSER"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip
PATIENCE = 60.0
"""Seconds for what takes well under one, on a machine that has time."""
AXE = Path(__file__).parents[1] / "data" / "axe" / "axe.min.js.gz"


def find_browser() -> tuple[str, str]:
    """Chromium and its driver; without them tests are skipped, or fail where the environment demands them."""
    found = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not all(found):
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)("chromium and chromedriver are not installed")
    return str(found[0]), str(found[1])


class Browser:
    def __init__(self, driver: webdriver.Chrome, downloads: Path) -> None:
        self.driver, self.downloads = driver, downloads

    def open(self, address: str) -> None:
        self.driver.get(address)

    def run(self, script: str) -> Any:
        """A function body; it may await."""
        body = f"const done = arguments[0]; (async () => {{ {script} }})().then(done, (error) => done(String(error)))"
        return self.driver.execute_async_script(body)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(self.one(selector).get_property("textContent"))

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + PATIENCE
        while not (found := holds()):
            assert time.monotonic() < end, f"{what} did not happen; the page says {self.text('#trouble')!r}"
            time.sleep(0.02)
        return found

    def size(self, width: int, height: int = 900, *, dark: bool = False, calm: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = {"prefers-color-scheme": "dark" if dark else "light"}
        features["prefers-reduced-motion"] = "reduce" if calm else "no-preference"
        wanted = [{"name": name, "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})

    def picture(self) -> bytes:
        """The whole page as PNG."""
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        return base64.b64decode(shot["data"])

    def complaints(self) -> list[str]:
        """Errors and violations of the content security policy since the last call."""
        return [f"{each['source']}: {each['message']}" for each in self.driver.get_log("browser")]

    def asked_for(self) -> list[str]:
        """Addresses that were requested since the last call."""
        events = [json.loads(each["message"])["message"] for each in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def axe(self, *impacts: str) -> list[str]:
        """Findings of axe-core of these impacts, by default the serious ones, with the elements."""
        self.driver.execute_script(gzip.decompress(AXE.read_bytes()).decode())
        found = self.run("return (await axe.run(document, {resultTypes: ['violations']})).violations")
        assert isinstance(found, list), found
        wanted = [each for each in found if each["impact"] in (impacts or ("serious", "critical"))]
        return [
            f"{each['id']}: {node['html'][:200]} {node['failureSummary']}" for each in wanted for node in each["nodes"]
        ]


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in this folder."""
    binary, driver_file = find_browser()
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    downloads = folder / "downloads"
    downloads.mkdir()
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_file))
    try:
        driver.set_script_timeout(PATIENCE)
        behaviour = {"behavior": "allow", "downloadPath": str(downloads)}
        driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
        yield Browser(driver, downloads)
    finally:
        driver.quit()
