"""The page in a real browser: served, and saved as one file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from softdlm.report.player.page import Method, data_of, saved_page
from softdlm.trace import Mark, Trace
from tests.page.browser import Browser, chromium
from tests.serve.server import QUESTION, SMALL, direct, running

EVIL = "<script>document.title='broken'</script><img src=x onerror=document.title='broken'>"
LENGTH = 24
TEXTS = (
    "return [...document.querySelectorAll('.card')].map((card) =>"
    " [...card.querySelectorAll('.line .token')].map((each) => each.textContent).join(''))"
)
STATES = "return [...document.querySelectorAll('.card')].map((card) => card.querySelectorAll('.token.open').length)"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one trace of every kind."""
    folder = tmp_path_factory.mktemp("traces")
    blocks = direct(QUESTION, record_candidates=True, max_new_tokens=32, block_length=16, tokens_per_step=4)
    blocks.trace.save(folder / "blocks.json")
    made = blocks.trace
    first = made.answer[0]
    evil = replace(made, prompt=EVIL, pieces={**made.pieces, first: EVIL}, target=EVIL, right=False, model=EVIL)
    direct(QUESTION, max_new_tokens=16, tokens_per_step=4, feedback="slerp(k=3, lam=0.5)").trace.save(
        folder / "bare.json"
    )
    replace(evil, marks=[Mark(len(made.prompt_ids), len(made.prompt_ids) + 1, False)]).save(folder / "evil.json")
    (folder / "old.json").write_text('{"softdlm_trace": 1}')
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, traces: Path) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def url(traces: Path) -> Iterator[str]:
    with running(SMALL, traces=traces) as address:
        yield address


@pytest.fixture(autouse=True)
def nothing_is_wrong(page: Browser) -> Iterator[None]:
    """No error on the console, no violation of the content security policy, nothing from elsewhere."""
    page.complaints()
    page.asked_for()
    yield
    assert page.complaints() == []
    elsewhere = [
        each for each in page.asked_for() if not each.startswith(("http://127.0.0.1:", "file:", "data:", "blob:"))
    ]
    assert elsewhere == []


def ask(page: Browser, url: str, prompt: str = QUESTION) -> None:
    """Run the three methods that the form proposes, on a short canvas."""
    page.open(url)
    page.until(lambda: page.all(".method"), "the form")
    page.one("#prompt").send_keys(prompt)
    page.run("document.getElementById('more').open = true")
    page.one("#length").send_keys(str(LENGTH))
    page.one("#run").click()
    page.until(lambda: page.one("#run").is_enabled() and len(page.all(".card:not(.pending)")) == 3, "the comparison")


@pytest.fixture(scope="module")
def asked(page: Browser, url: str) -> None:
    """The page after a comparison."""
    ask(page, url)


def go_to(page: Browser, number: int) -> None:
    page.run(f"const s = document.getElementById('pass'); s.value = {number}; s.dispatchEvent(new Event('input'))")


def test_three_methods_are_compared(page: Browser, asked: None) -> None:
    """What the cards show is what the library decodes; the counts are those of the traces."""
    names = page.run("return [...document.querySelectorAll('.card h3')].map((each) => each.textContent)")
    assert names == ["Vanilla", "SLERP", "The model's own"]
    words: list[dict[str, Any]] = [
        {"feedback": "vanilla", "tokens_per_step": 4},
        {"feedback": "slerp", "tokens_per_step": 4},
        {},
    ]
    made = [direct(QUESTION, max_new_tokens=LENGTH, **each) for each in words]
    texts = page.run(TEXTS)
    assert [text.replace("⏎", "\n").rstrip("∎") for text in texts] == [each.text for each in made]
    facts = page.run("return [...document.querySelectorAll('.stats')].map((each) => each.textContent)")
    for fact, each in zip(facts, made, strict=True):
        assert f"passes{each.forwards}" in fact
        assert f"tokens{len(each.ids)}" in fact
        assert f"tokens a pass{each.tokens_per_forward:.2f}" in fact
    same = len({each.text for each in made}) == 1
    assert ("are the same" in page.text("#parting")) == same
    assert len(page.all(".token.parts")) >= (0 if same else 2)


def test_it_plays_with_one_slider(page: Browser, asked: None) -> None:
    go_to(page, 0)
    start = page.run(STATES)
    assert start == [LENGTH] * 3
    page.run("document.getElementById('speed').value = '5'")
    page.run(
        "window.seen = []; new MutationObserver(() => window.seen.push(Number(document.getElementById('pass').value)))"
        ".observe(document.getElementById('at'), {childList: true, characterData: true, subtree: true})"
    )
    page.one("#play").click()
    most = int(page.one("#pass").get_attribute("max") or 0)
    page.until(lambda: page.run("return Number(document.getElementById('pass').value)") == most, "the end of the play")
    seen = page.run("return window.seen")
    assert seen == sorted(seen)
    assert len(set(seen)) > most // 2
    assert page.one("#play").get_attribute("aria-label") == "Play"
    assert max(page.run(STATES)) < LENGTH
    page.one("#back").click()
    assert page.text("#at") == f"pass {most - 1} of {most}"


def test_a_position_is_looked_at_in_all_methods(page: Browser, asked: None) -> None:
    """Its candidates are those of the trace, and so is what was fed back."""
    go_to(page, 2)
    target = page.all(".card .line .token")[1]
    ActionChains(page.driver).move_to_element(target).perform()
    looks = page.run("return [...document.querySelectorAll('.look')].map((each) => each.innerText)")
    assert all("Position 2" in each for each in looks)
    assert len(page.all(".token.here")) == 3
    made = direct(QUESTION, record_candidates=True, max_new_tokens=LENGTH, feedback="slerp", tokens_per_step=4).trace
    at, step = len(made.prompt_ids) + 1, made.passes[1]
    place = step.open.index(at)
    best, share = step.candidates[place][0]
    assert made.pieces[best].strip() in looks[1]
    assert f"Entropy {step.entropy[place]:.2f} nats" in looks[1]
    assert f"{share * 100:.{1 if share >= 0.0995 else 2}f} %" in looks[1]
    assert "Fed to pass 3: soft, 0.5 of the way along the arc from [MASK] to" in looks[1]
    assert "Fed to pass 3: [MASK]" in looks[0]


def test_the_keyboard_does_it_all(page: Browser, asked: None) -> None:
    go_to(page, 1)
    box = page.all(".text[role=listbox]")[1]
    page.run("document.querySelectorAll('.text[role=listbox]')[1].focus()")
    box.send_keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    active = box.get_attribute("aria-activedescendant") or ""
    assert active.endswith("-2")
    assert page.one(f"#{active}").get_attribute("aria-selected") == "true"
    assert page.text("#told").startswith("Position 3: ")
    box.send_keys(".")
    assert page.text("#at").startswith("pass 2 of")
    assert page.text("#told").startswith("Pass 2. Position 3")
    box.send_keys(",", Keys.END)
    assert page.text("#told").startswith(f"Position {LENGTH}: ")
    box.send_keys(Keys.ARROW_UP)
    assert not page.text("#told").startswith(f"Position {LENGTH}: ")


def test_the_heat_map_and_the_text_are_linked(page: Browser, asked: None) -> None:
    canvas = page.all(".heat canvas")[0]
    page.run("document.querySelector('.heat').scrollIntoView({block: 'center'})")  # not below the bar that stays
    wide, high = canvas.size["width"], canvas.size["height"]
    passes = int(page.text(".stats dd"))
    x, y = int(wide * 4.5 / LENGTH - wide / 2), int(high * 2.5 / passes - high / 2)
    ActionChains(page.driver).move_to_element_with_offset(canvas, x, y).perform()
    before = canvas.location
    ActionChains(page.driver).click().perform()
    assert canvas.location == before, "nothing moves while one points"
    assert page.text("#at").startswith("pass 3 of ")
    assert page.run("return document.querySelector('.token.here').dataset.index") == "4"
    assert "positions in" in (canvas.get_attribute("aria-label") or "")


def test_a_token_is_changed_and_decoding_goes_on(page: Browser, asked: None) -> None:
    go_to(page, 3)
    before = page.run("return [...document.querySelectorAll('.card')][1].querySelectorAll('.token.open').length")
    page.run("document.querySelectorAll('.text[role=listbox]')[1].focus()")
    page.all(".text[role=listbox]")[1].send_keys(Keys.HOME, Keys.ENTER)
    page.until(lambda: page.one("#edit").is_displayed(), "the dialog")
    assert "position 1, after pass 3" in page.text("#editwhere")
    page.one("#other").send_keys(" Then")
    page.one("#replace").click()
    page.until(lambda: len(page.all(".card:not(.pending)")) == 4 and page.one("#run").is_enabled(), "the branch")
    added = page.all(".card")[3]
    assert "position 1 “Then” after pass 3" in added.text
    assert page.run(TEXTS)[3].startswith(" Then")
    given = page.run("return [...document.querySelectorAll('.card')][3].querySelectorAll('.token.given').length")
    assert given == LENGTH - before + 1
    added.find_element("css selector", "button[title=Remove]").click()
    assert len(page.all(".card")) == 3


def test_a_saved_page_opens_without_the_server(page: Browser, asked: None, url: str) -> None:
    go_to(page, 99)
    texts = page.run(TEXTS)
    page.one("#save").click()
    file = page.downloads / "softdlm.html"
    page.until(file.exists, "the download")
    page.one("#savedata").click()
    data = page.downloads / "softdlm-trace.json"
    page.until(data.exists, "the download of the data")
    page.open(file.as_uri())
    page.until(lambda: len(page.all(".card")) == 3, "the saved page")
    assert page.run(TEXTS) == texts
    assert not page.one("#ask").is_displayed()
    go_to(page, 1)
    assert page.run(STATES) != [0, 0, 0]
    page.run("document.querySelector('.text[role=listbox]').focus()")
    page.one(".text[role=listbox]").send_keys(Keys.ENTER)
    assert not page.one("#edit").is_displayed(), "a saved page cannot decode"
    assert [each for each in page.asked_for() if each.startswith("http")][-1].startswith(url), (
        "nothing since the server"
    )
    page.one("#file").send_keys(str(data))
    page.until(lambda: page.text("#question") == QUESTION and len(page.all(".card")) == 3, "the opened data")
    assert page.run(TEXTS) == texts


def test_markup_stays_text(page: Browser, url: str, traces: Path, tmp_path: Path) -> None:
    """In a prompt, in tokens, in labels and names: served, linked to, and saved."""
    ask(page, url, EVIL)
    assert page.text("#question") == EVIL
    evil = Trace.load(traces / "evil.json")
    file = tmp_path / "evil.html"
    file.write_text(saved_page(data_of([Method(EVIL, evil)], EVIL, EVIL)))
    for address in (f"{url}/?trace=traces/evil.json", file.as_uri()):
        page.open(address)
        page.until(lambda: page.all(".card"), "the card")
        assert EVIL in page.text(".line")
        assert EVIL in page.text(".facts")
        assert page.text("#question") == EVIL
        assert page.run("return document.querySelectorAll('main script, main img').length") == 0
        assert page.driver.title != "broken"
    assert page.text("h3") == page.text("#note") == EVIL


def test_links_lead_to_traces_of_the_same_server(page: Browser, url: str, traces: Path) -> None:
    page.open(f"{url}/?trace=traces/blocks.json")
    page.until(lambda: page.all(".card"), "the linked trace")
    assert page.text("#question") == QUESTION
    for address, words in (
        ("traces/old.json", "trace of version 1; this page reads version 2"),
        ("https://example.org/x.json", "lies on another server"),
        ("data:application/json,{}", "lies on another server"),
        ("health", "is not a trace saved by softdlm"),
    ):
        page.open(f"{url}/?trace={address}")
        page.until(lambda: page.one("#trouble").is_displayed(), "the refusal")
        assert words in page.text("#trouble")
        assert not page.all(".card")


def test_the_page_reads_a_trace_as_python_does(page: Browser, url: str, traces: Path) -> None:
    """Candidates, entropies, soft inputs and commits of every pass and position, with blocks."""
    page.open(url)
    made = Trace.load(traces / "blocks.json")
    read = page.run(
        "const { readTrace, predicted } = await import('/page/trace.js');"
        "const trace = readTrace(await (await fetch('/traces/blocks.json')).json());"
        "return trace.seen.map((seen, index) => ({ soft: [...seen.soft].flatMap((x, at) => x ? [at] : []),"
        " rows: [...seen.row].flatMap((row, at) => { if (row < 0) return []; const p = predicted(trace, index + 1, at);"
        " return [[at, p.candidates.map((c) => [trace.ids[c.token], c.share]), p.entropy]]; }) }))"
    )
    own = []
    for step in made.passes:
        where, options = [*step.open, *step.positions], [*step.candidates, *step.chosen]
        doubts = [*step.entropy, *step.chosen_entropy]
        own.append({"soft": step.soft, "rows": sorted(zip(where, options, doubts, strict=True))})
    assert read == json.loads(json.dumps(own))
    assert any(step.soft for step in made.passes)


def test_what_was_not_recorded_is_not_told(page: Browser, url: str) -> None:
    """The trace of an answer that recorded no candidates does not know what was fed back."""
    page.open(f"{url}/?trace=traces/bare.json")
    page.until(lambda: page.all(".card"), "the linked trace")
    page.one(".line .token").click()
    page.until(lambda: page.all(".look h4"), "the position")
    assert "were not recorded" in page.text(".look")
    assert "[MASK]" not in page.text(".look")


def test_a_server_with_keys_gives_the_page_and_nothing_else(page: Browser) -> None:
    with running(SMALL, keys=["secret-key"]) as address:
        assert httpx.get(f"{address}/page/settings.json").status_code == 401
        assert httpx.get(f"{address}/traces/x.json").status_code == 401
        page.open(address)
        for key in ("wrong", "secret-key"):
            page.until(lambda: page.one("#ask-key").is_displayed(), "the question for a key")
            page.one("#key").send_keys(key, Keys.ENTER)
            page.until(lambda: not page.text("#trouble"), "no trouble")
        page.until(lambda: page.all(".method"), "the form")
        assert "secret-key" not in page.run(
            "return JSON.stringify({...localStorage, ...sessionStorage}) + document.cookie + location.href"
        )
        refused = [each for each in page.complaints() if "401" not in each]
        assert refused == []


@pytest.mark.parametrize("dark", [False, True])
def test_everybody_can_use_it(page: Browser, asked: None, url: str, dark: bool) -> None:
    """Axe has nothing serious to say, with the form and with answers, and nothing is wider than a small screen."""
    page.size(360, dark=dark, calm=True)
    ask(page, url)
    go_to(page, 4)
    assert page.axe() == []
    assert page.run("return document.documentElement.scrollWidth") == 360
    page.run("document.querySelector('input[value=confidence]').click()")
    go_to(page, 99)
    assert page.axe() == []
    assert page.run("return getComputedStyle(document.getElementById('run')).transitionDuration") == "0s"
    assert page.run("return matchMedia('(prefers-color-scheme: dark)').matches") == dark
    page.size(1000)


def test_what_breaks_the_policy_is_seen(page: Browser, url: str) -> None:
    """The watch over the console of all tests here would notice an inline script, and markup made from text."""
    page.open(url)
    page.until(lambda: page.all(".method"), "the form")
    page.complaints()
    page.run("try { document.body.innerHTML = '<b>x</b>'; } catch { return 1; }")
    assert any("TrustedHTML" in each for each in page.complaints())
    page.run("try { await fetch('https://example.org/'); } catch { return 1; }")
    assert any("Content Security Policy" in each for each in page.complaints())
    assert page.driver.title == "softdlm"
    page.asked_for()
