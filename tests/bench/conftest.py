"""Benches of tests measure small ceilings."""

import pytest

from softdlm.bench import ceilings


@pytest.fixture(autouse=True)
def small_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ceilings.COPY_BYTES, "cpu", 2**20)
    monkeypatch.setitem(ceilings.SQUARE, "cpu", 128)
