"""Divergences against their definitions, and at the ends of their range."""

import math

import pytest
import torch

from softdlm.analysis.divergence import conditional_reverse_kl, jensen_shannon, kl
from tests.analysis import exact

P = {0: 0.7, 1: 0.2, 2: 0.1}
Q = {0: 0.1, 1: 0.3, 2: 0.6}


def logs(distribution: dict[int, float]) -> torch.Tensor:
    return torch.tensor(list(distribution.values()), dtype=torch.float64).log()


def test_definitions() -> None:
    assert float(kl(logs(P), logs(Q))) == pytest.approx(exact.kl(P, Q), abs=1e-12)
    assert float(jensen_shannon(logs(P), logs(Q))) == pytest.approx(exact.js(P, Q), abs=1e-12)


def test_js_is_symmetric_nothing_for_equals_and_log_2_for_strangers() -> None:
    apart = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64).log()
    assert float(jensen_shannon(apart[0], apart[1])) == pytest.approx(math.log(2), abs=1e-12)
    assert float(jensen_shannon(logs(P), logs(P))) == 0
    assert float(jensen_shannon(logs(P), logs(Q))) == pytest.approx(float(jensen_shannon(logs(Q), logs(P))), abs=1e-15)


def test_conditional_reverse_kl_normalises_both_sides_by_themselves() -> None:
    expected = exact.reverse_kl(P, Q)
    assert conditional_reverse_kl(logs(P) - 3.0, logs(Q) + 11.0) == pytest.approx(expected, abs=1e-12)
    assert expected != pytest.approx(exact.reverse_kl(Q, P), abs=1e-3)
