"""A running server for the tests of compatibility."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.server import running


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of one server that tests share."""
    with running() as url:
        yield url
