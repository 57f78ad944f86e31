"""Statistics against values that can be computed by hand or are published."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softdlm import UsageError
from softdlm.evaluate.metrics import Z95, Mean, Share, holm, mcnemar, recovery

verdicts = st.lists(st.booleans(), min_size=1, max_size=60)


@given(verdicts)
def test_the_interval_solves_wilsons_equation(values: list[bool]) -> None:
    """At both ends p0, the observed share lies exactly z standard errors (of p0) away."""
    share = Share.of(values)
    n, p = len(values), sum(values) / len(values)
    for end in (share.low / 100, share.high / 100):
        assert abs(p - end) == pytest.approx(Z95 * math.sqrt(end * (1 - end) / n), abs=1e-6)
    slack = 1e-9
    assert -slack <= share.low <= share.percent + slack
    assert share.percent - slack <= share.high <= 100 + slack


def test_no_items_is_an_error() -> None:
    with pytest.raises(UsageError, match="no items"):
        Share.of([])


@pytest.mark.parametrize(
    ("b", "c", "p"), [(0, 0, 1.0), (5, 5, 1.0), (0, 5, 0.0625), (1, 9, 0.021484375), (10, 2, 0.03857421875)]
)
def test_mcnemar_is_the_exact_binomial(b: int, c: int, p: float) -> None:
    first = [True] * b + [False] * c + [True, False]
    second = [False] * b + [True] * c + [True, False]
    assert mcnemar(first, second) == pytest.approx(p)
    assert mcnemar(second, first) == pytest.approx(p)


def test_recovery_counts_only_what_single_token_decoding_solved() -> None:
    assert recovery([True, True, False, True], [True, False, True, True]) == pytest.approx(200 / 3)
    assert recovery([False, False], [True, True]) is None
    with pytest.raises(ValueError, match="zip"):
        recovery([True], [True, False])


def test_a_mean_and_its_bootstrap_interval() -> None:
    """For many values the percentiles are those of the normal distribution of the mean."""
    values = [float(value) for value in range(400)]
    mean = Mean.of(values)
    spread = Z95 * statistics.pstdev(values) / math.sqrt(400)
    assert mean.value == pytest.approx(199.5)
    assert (mean.low, mean.high) == (pytest.approx(199.5 - spread, abs=1.5), pytest.approx(199.5 + spread, abs=1.5))
    assert Mean.of(values) == mean
    assert Mean.of([2.0]) == (2.0, None, None, 1)
    assert Mean.of([1.0, 1.0, 1.0])[:3] == (1.0, 1.0, 1.0)
    with pytest.raises(UsageError, match="at least one"):
        Mean.of([])


def test_a_weighted_mean_counts_positions() -> None:
    assert Mean.of([1.0, 4.0], [3.0, 1.0]).value == pytest.approx(7 / 4)
    heavy = Mean.of([1.0, 4.0], [3.0, 1.0])
    assert (heavy.low, heavy.high) == (1.0, 4.0)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_weights_count_in_the_interval_too() -> None:
    mean = Mean.of([0.0] * 10 + [1.0] * 10, [9.0] * 10 + [1.0] * 10)
    assert mean.value == pytest.approx(0.1)
    assert mean.low is not None
    assert mean.high is not None
    assert mean.low < 0.1 < mean.high < 0.3
