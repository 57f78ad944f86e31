"""Ctrl-C is heeded even where Python drops it."""

import os
import signal

import pytest

from softdlm.report.progress import Screen


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
