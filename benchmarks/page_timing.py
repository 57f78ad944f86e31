"""How fast the page plays, and how long a stranger needs: `python -m benchmarks.page_timing` writes a dated result.

Plays one and three traces of 512 tokens and 128 passes with five candidates, at 30 passes a second, in Chromium
without a GPU, and times every frame. Then it does what docs/page.md calls the stranger's test, from a server's start,
with a mouse and a keyboard, and counts seconds and clicks.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from selenium.webdriver.common.action_chains import ActionChains

from softdlm.records.files import write_json
from softdlm.report.player.page import Method, data_of, held_in, saved_page
from softdlm.trace import Pass, Trace
from tests.page.browser import Browser, chromium

TOKENS, PASSES, CANDIDATES, PROMPT = 512, 128, 5, 20
CHANGE = 0.35
"""Share of open positions whose best candidate is another one after a pass: 0.2 to 0.4 in the gallery's problems."""
PLAY = """
document.getElementById('speed').value = '30';
const slider = document.getElementById('pass');
slider.value = 0; slider.dispatchEvent(new Event('input'));
const times = [];
document.getElementById('play').click();
return await new Promise((done) => {
  const tick = (now) => {
    times.push(now);
    if (document.getElementById('play').getAttribute('aria-label') === 'Play') done(times);
    else requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
});
"""
PROBLEM = Path(__file__).parents[1] / "docs" / "gallery" / "vanilla-fails.html"


def long_trace(seed: int) -> Trace:
    """As a model could leave it: in each pass a share CHANGE of the candidate lists is another one, all shares move."""
    random, left, last = Random(seed), list(range(PROMPT, PROMPT + TOKENS)), dict[int, list[int]]()
    words = {token: " " + "".join(random.choices("abcdefghij", k=random.randint(1, 8))) for token in range(4000)}

    def predicted(at: int) -> list[tuple[int, float]]:
        shares = sorted((round(random.random() / 2, 4) for _ in range(CANDIDATES)), reverse=True)
        if at not in last or random.random() < CHANGE:
            last[at] = random.sample(range(4000), CANDIDATES)
        return list(zip(last[at], shares, strict=True))

    passes = []
    for number in range(PASSES):
        gone = sorted(random.sample(left, TOKENS // PASSES))
        soft = list(left) if number else []
        left = [at for at in left if at not in gone]
        lists, chosen = [predicted(at) for at in left], [predicted(at) for at in gone]
        tokens, doubt = [each[0][0] for each in chosen], [round(random.random() * 9, 3) for _ in range(TOKENS)]
        passes.append(Pass(gone, tokens, [each[0][1] for each in chosen], list(left), lists,
                           doubt[: len(left)], chosen, doubt[: len(gone)], soft))  # fmt: skip
    made = Trace(
        list(range(PROMPT)), PROMPT + TOKENS, 126_336, 4001, passes, "synthetic", prompt="A long one", eos_ids=[4001],
        method={"feedback": "slerp(k=3, lam=0.3)", "commit": "topn(4)"}, seconds=[0.05] * PASSES,
        mixture={"kind": "arc", "k": 3, "lam": 0.3},
    )  # fmt: skip
    return replace(made, pieces={**words, **dict.fromkeys(made.tokens() - words.keys(), "")})


def play(browser: Browser, folder: Path, methods: int) -> dict[str, Any]:
    traces = [long_trace(seed) for seed in range(methods)]
    file = folder / f"long-{methods}.html"
    file.write_text(saved_page(data_of([Method(f"Method {n}", each) for n, each in enumerate(traces, 1)])))
    browser.size(1600)
    browser.open(file.as_uri())
    browser.until(lambda: len(browser.all(".card")) == methods, "the page")
    browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    before = busy_seconds(browser)
    times = browser.run(PLAY)
    busy = busy_seconds(browser) - before
    gaps = sorted(after - before for before, after in pairwise(times))
    trace_bytes = len(json.dumps(traces[0].to_json(), separators=(",", ":")))
    return {
        "tokens": TOKENS, "passes": PASSES, "candidates": CANDIDATES, "methods": methods, "trace_bytes": trace_bytes,
        "seconds": (times[-1] - times[0]) / 1e3, "frames": len(gaps),
        "frames_a_second": round(len(gaps) / (times[-1] - times[0]) * 1e3, 1),
        "frame_ms": {"median": gaps[len(gaps) // 2], "p95": gaps[int(len(gaps) * 0.95)], "worst": gaps[-1]},
        "frames_over_33_ms": sum(gap > 1000 / 30 + 0.5 for gap in gaps),
        "cpu_ms_a_frame": round(busy / len(gaps) * 1e3, 2),
    }  # fmt: skip


def busy_seconds(browser: Browser) -> float:
    """CPU time of the page's main thread so far: other work on the machine is not in it."""
    found = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(each["value"] for each in found if each["name"] == "TaskDuration")


def stranger(browser: Browser) -> dict[str, Any]:
    """From `softdlm serve` to the pass in which vanilla goes wrong, and what it saw there."""
    trace = Trace.from_json(held_in(PROBLEM.read_text())["methods"][0]["trace"])
    moments, clicks = {"start": time.monotonic()}, 0
    server = subprocess.Popen(
        [sys.executable, "-m", "softdlm", "serve", "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        line = next(line for line in server.stderr if "ready at" in line)
        moments["server ready"] = time.monotonic()
        browser.open(line.split()[-1])
        browser.until(lambda: browser.all(".method"), "the form")
        browser.one("#prompt").send_keys(trace.prompt)
        moments["typed the problem"] = time.monotonic()
        browser.one("#run").click()
        clicks += 1
        browser.until(
            lambda: browser.one("#run").is_enabled() and len(browser.all(".card:not(.pending)")) == 3, "answers"
        )
        moments["three answers"] = time.monotonic()
        wrong = browser.one(".verdict.bad button")
        ActionChains(browser.driver).click(wrong).perform()
        clicks += 1
        seen = [browser.text("#at"), wrong.text, *browser.all(".look")[0].text.splitlines()]
        moments["the token that is wrong"] = time.monotonic()
    finally:
        server.terminate()
        server.wait(60)
    start = moments.pop("start")
    return {"problem": trace.prompt, "clicks": clicks, "seconds": {n: round(t - start, 2) for n, t in moments.items()},
            "told": seen}  # fmt: skip


def main() -> None:
    with TemporaryDirectory() as folder, chromium(Path(folder)) as browser:
        found = {"machine": platform.platform(), "browser": browser.driver.capabilities["browserVersion"]}
        found |= {"play": [play(browser, Path(folder), count) for count in (1, 3)], "stranger": stranger(browser)}
    print(json.dumps(found, indent=1, ensure_ascii=False))
    write_json(Path(__file__).parent / "results" / f"{date.today()}-page.json", found)


if __name__ == "__main__":
    main()
