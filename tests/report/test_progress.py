"""A line of progress fits, and Ctrl-C is heeded even where Python drops it."""

import os
import signal

import pytest

from softdlm.evaluate.run import Progress
from softdlm.report.progress import Screen, clock, progress_line


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # the handler runs between two instructions
        pass


class Finalised:
    """Interrupted while it goes: Python prints "Exception ignored" and goes on."""

    def __del__(self) -> None:
        interrupt()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_was_dropped_comes_back_with_the_next_line() -> None:
    before, screen = signal.getsignal(signal.SIGINT), Screen()
    with screen.heeding():
        screen.show("as yet undisturbed")
        Finalised()
        with pytest.raises(KeyboardInterrupt):
            screen.show("too late")
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_is_heeded_at_once_where_it_can_be() -> None:
    screen = Screen()
    with screen.heeding(), pytest.raises(KeyboardInterrupt):
        interrupt()


LABEL = "inclusionAI/LLaDA2.0-mini · mini-math · slerp k=3 lam=0.5 · entropy bound 0.1"


@pytest.mark.parametrize("width", [39, 70, 79, 120])
def test_a_narrow_line_keeps_the_time_left(width: int) -> None:
    line = Progress(LABEL, 34, 54, 500, 1319, 400, 0.42, 3723).line(width)
    assert len(line) <= width
    assert line.endswith("  1:02:03 left")
    assert "500/1319" in line


def test_a_label_loses_its_front_first() -> None:
    facts = "2/2", "0:05 left"
    assert progress_line(0.5, LABEL, *facts, width=70) == (
        "█████░░░░░ slerp k=3 lam=0.5 · entropy bound 0.1  2/2  0:05 left"
    )
    assert progress_line(0.5, LABEL, *facts, width=60) == "█████░░░░░ slerp k=3 la… · entropy bound 0.1  2/2  0:05 left"
    assert LABEL in progress_line(1, LABEL, *facts)


def test_the_clock() -> None:
    assert [clock(seconds) for seconds in (0, 59.6, 3723)] == ["0:00", "1:00", "1:02:03"]
