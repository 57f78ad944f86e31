"""The live canvas: what a pass looks like on terminals of any width, with and without Unicode."""

import io
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from softdlm.report.canvas import END, LiveCanvas, canvas_text, tokens_text
from softdlm.report.terminal import compared
from softdlm.report.words import for_screen
from tests.conftest import tiny


class Letters:
    """A tokenizer whose ids are code points."""

    @staticmethod
    def decode(ids: list[int]) -> str:
        return "".join(map(chr, ids))


EOS = 1
MODEL: Any = SimpleNamespace(eos_ids=(EOS,), tokenizer=Letters())


def step(ids: str, open: str, new: str, best: str, share: list[float]) -> Any:
    """A pass over one row; a digit in `open` and `new` says whether the position is so."""

    def flags(text: str) -> torch.Tensor:
        return torch.tensor([[each == "1" for each in text]])

    canvas = SimpleNamespace(ids=torch.tensor([[*map(ord, ids)]]), open=flags(open), free=flags("1" * len(ids)))
    prediction = SimpleNamespace(
        topk_ids=torch.tensor([[*map(ord, best)]])[:, :, None], topk_probs=torch.tensor([share])[:, :, None]
    )
    return SimpleNamespace(index=1, canvas=canvas, committed=flags(new), prediction=prediction)


PASS = step(
    "ab\n____\x01\x01\x01",
    "0001111000",
    "0010000111",
    "ab\nxyz\x01\x01\x01\x01",
    [0.9] * 4 + [0.4, 0.9, 0.9] + [0.9] * 3,
)


def test_committed_new_likely_and_open_tokens_are_told_apart() -> None:
    text = canvas_text(MODEL, PASS, 0)
    assert text.plain == "ab⏎ x·z∎∎\N{MULTIPLICATION SIGN}3 "
    assert [(text.plain[span.start : span.end], span.style) for span in text.spans] == [
        ("⏎ ", "bold green"), ("x", "dim yellow"), ("·", "dim"), ("z∎", "dim yellow"),
        ("∎\N{MULTIPLICATION SIGN}3 ", "bold green"),
    ]  # fmt: skip


def test_many_end_marks_are_one_sign() -> None:
    """An early pass that commits little else stays readable."""
    assert tokens_text(MODEL, [97, *[EOS] * 57]) == f"a{END}\N{MULTIPLICATION SIGN}57 "
    assert tokens_text(MODEL, [97, EOS]) == f"a{END}"
    assert tokens_text(MODEL, [97, *[EOS] * 57], "ascii") == "a#x57 "


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_nothing_steers_the_terminal_or_is_beyond_it(encoding: str) -> None:
    shown = for_screen("é\x1b[2J\u202e\r…", encoding)
    assert shown.encode(encoding).decode(encoding).isprintable()
    assert "\\x1b[2J\\u202e\\r" in shown


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int, encoding: str) -> None:
    model = tiny("llada")
    long = step("a" * 500, "0" * 500, "0" * 498 + "11", "a" * 500, [0.9] * 500)
    file = io.TextIOWrapper(io.BytesIO(), encoding)
    console = Console(file=file, width=width, height=12, force_terminal=True, color_system=None)
    with LiveCanvas(console, "loading a model with a long name, which is said " * 3) as screen:
        for name in ("vanilla " * 12, "slerp", "own"):
            screen.watch(model, name)(long, [0])
        while_running = console.render_lines(screen, console.options)
    file.seek(0)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.read())
    assert max(map(len, re.split(r"[\r\n]+", drawn))) <= width
    assert len(while_running) <= 12
    after = "".join(segment.text for line in console.render_lines(screen, console.options) for segment in line)
    assert after.count("97") == 1500  # once it is over, all of it


@pytest.mark.parametrize("panels", [1, 2])
def test_a_word_wider_than_its_panel_is_shown_whole(panels: int) -> None:
    console = Console(file=io.StringIO(), width=80, height=40, force_terminal=True)
    with LiveCanvas(console, "", transient=True) as screen:
        for number in range(panels):
            screen.watch(MODEL, str(number))(step("q" * 300, "0" * 300, "1" * 300, "q" * 300, [0.9] * 300), [0])
        lines = ["".join(part.text for part in line) for line in console.render_lines(screen, console.options)]
    assert "".join(lines).count("q") == 300 * panels


def test_the_part_of_a_long_canvas_that_changes_is_shown() -> None:
    console = Console(file=io.StringIO(), width=44, height=10, force_terminal=True)
    text = "".join(chr(97 + index // 100) for index in range(500))
    with LiveCanvas(console, "") as screen:
        for place, letter in ((5, "a"), (250, "c"), (495, "e")):
            new = "".join("01"[index == place] for index in range(500))
            screen.watch(MODEL, "m")(step(text, "0" * 500, new, text, [0.9] * 500), [0])
            lines = ["".join(part.text for part in line) for line in console.render_lines(screen, console.options)]
            assert letter * 20 in "".join(lines)
            assert len(lines) < 10


def test_a_sign_stands_where_an_answer_leaves_the_first() -> None:
    answer: Any = SimpleNamespace(ids=[*map(ord, "abcdef")])
    text = compared(MODEL, answer, [2, 3, 5], "utf-8")
    assert text.plain == "ab▸cdef"
    assert [(text.plain[span.start : span.end]) for span in text.spans] == ["▸", "cd", "f"]
    assert compared(MODEL, answer, [], "utf-8").plain == "abcdef"


def test_seconds_of_watching_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(
        "softdlm.report.canvas.time", SimpleNamespace(perf_counter=lambda: clock[0], sleep=clock_on(clock))
    )
    with LiveCanvas(Console(file=io.StringIO(), force_terminal=True), "", pause=2.0) as screen:
        show = screen.watch(MODEL, "m")
        for _ in range(3):
            show(PASS, [0])
            clock[0] += 0.5  # the next pass
        assert screen.paused == pytest.approx(2 * 1.5)
    assert clock[0] == pytest.approx(3 * 2.0)
    quiet = LiveCanvas(Console(file=io.StringIO(), force_terminal=True), "", pause=2.0, stopped=lambda: True)
    with quiet:
        quiet.watch(MODEL, "m")(PASS, [0])
    assert clock[0] == pytest.approx(3 * 2.0)  # nobody waits for a canvas that nobody wants to see


def clock_on(clock: list[float]) -> Any:
    def sleep(seconds: float) -> None:
        clock[0] += seconds

    return sleep
