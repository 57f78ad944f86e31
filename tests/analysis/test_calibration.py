"""Confidence against the share that is right: worked by hand."""

import pytest

from softdlm.analysis.calibration import Seen, calibration, joined, reliability_curve

HAND = Seen([0.05, 0.62, 0.68, 0.9, 0.95, 1.0], [False, True, False, True, True, False])


def test_numbers_worked_by_hand() -> None:
    found = calibration(HAND)
    assert found.predictions == 6
    assert found.confidence == pytest.approx(100 * 4.2 / 6)
    assert found.right == pytest.approx(50)
    assert found.gap == pytest.approx(70 - 50)
    assert found.ece == pytest.approx((1 * abs(5 - 0) + 2 * abs(65 - 50) + 3 * abs(95 - 200 / 3)) / 6)
    assert (found.sure, found.sure_right) == (3, pytest.approx(200 / 3))
    assert found.interval == pytest.approx([18.76, 81.24], abs=0.01)
    assert found.sure_interval == pytest.approx([20.77, 93.85], abs=0.01)


def test_a_bin_holds_its_lower_edge_and_the_last_one_both() -> None:
    curve = reliability_curve(HAND)
    assert [each.predictions for each in curve] == [1, 0, 0, 0, 0, 0, 2, 0, 0, 3]
    assert [(each.low, each.high) for each in curve] == [(10 * n, 10 * n + 10) for n in range(10)]
    assert (curve[6].confidence, curve[6].right) == (pytest.approx(65), 50)
    assert (curve[1].confidence, curve[1].right, curve[1].interval) == (None, None, None)
    assert curve[9].interval == pytest.approx([20.77, 93.85], abs=0.01)


def test_as_often_right_as_sure_has_no_error() -> None:
    """Twenty predictions of each confidence 0.05, 0.15, ..., of which this share is right."""
    parts = [
        Seen([(20 * n + 10) / 200] * 20, [index < 2 * n + 1 for index in range(20)]) for n in range(10)
    ]  # fmt: skip
    found = calibration(joined(parts))
    assert found.predictions == 200
    assert found.ece == pytest.approx(0, abs=1e-9)
    assert found.gap == pytest.approx(0, abs=1e-9)


def test_errors_of_both_signs_do_not_cancel() -> None:
    found = calibration(Seen([0.3] * 2 + [0.7] * 2, [True, True, False, False]))
    assert found.gap == pytest.approx(0)
    assert found.ece == pytest.approx(70)


def test_no_predictions_have_no_numbers() -> None:
    found = calibration(Seen([], []))
    assert (found.predictions, found.sure) == (0, 0)
    assert {found.confidence, found.right, found.gap, found.ece, found.sure_right} == {None}
    assert (found.interval, found.sure_interval) == (None, None)
