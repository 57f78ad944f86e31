"""Rows on threads: in order, one core each, and nothing left changed behind."""

from threading import Thread

import pytest
import torch

from softdlm.threads import map_parts


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_the_rows_order(two_threads: None) -> None:
    rows = [5, 3, 8, 0, 1]
    assert map_parts(lambda row: row, rows) == rows


def test_each_row_has_one_core_and_a_row_alone_has_all(two_threads: None) -> None:
    assert map_parts(lambda row: torch.get_num_threads(), range(4)) == [1] * 4
    assert map_parts(lambda row: torch.get_num_threads(), range(1)) == [2]


def test_other_threads_keep_their_cores(two_threads: None) -> None:
    map_parts(lambda row: None, range(4))
    assert torch.get_num_threads() == 2
    seen = []
    thread = Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [2]


def test_no_row_builds_a_graph(two_threads: None) -> None:
    weight = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not any(map_parts(lambda row: (weight * 2).requires_grad, range(3)))


def test_an_error_in_a_row_is_raised(two_threads: None) -> None:
    with pytest.raises(ZeroDivisionError):
        map_parts(lambda row: 1 / row, range(3))
