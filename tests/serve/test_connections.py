"""Clients that are too slow are disconnected; those that are slow and go on are not."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from softdlm.serve.settings import Limits
from tests.serve.server import running

SECONDS = 1.0
AHEAD = 4096
PAGE = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """A server with little patience."""
    with running(Limits(body_seconds=SECONDS, write_seconds=SECONDS), sent_ahead=AHEAD) as url:
        yield "127.0.0.1", int(url.rpartition(":")[2])


@pytest.fixture
def line(address: tuple[str, int]) -> Iterator[socket.socket]:
    """A client for which the kernel keeps little, so that an answer stays in the server until it is read."""
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, AHEAD)
        made.settimeout(20)
        made.connect(address)
        yield made


def read(line: socket.socket, pause: float = 0.0) -> bytes:
    """What comes until the other side ends the connection."""
    text = b""
    with contextlib.suppress(ConnectionError):
        while piece := line.recv(AHEAD):
            text += piece
            time.sleep(pause)
    return text


def test_a_reader_that_takes_nothing_is_disconnected(line: socket.socket) -> None:
    line.sendall(PAGE)
    time.sleep(3 * SECONDS)
    text = read(line)
    assert text.startswith(b"HTTP/1.1 200 OK")
    assert not text.endswith(b"}}")


def test_a_slow_reader_gets_everything(line: socket.socket) -> None:
    line.sendall(PAGE)
    began = time.monotonic()
    assert read(line, SECONDS / 4).endswith(b"}}")
    assert time.monotonic() - began > 1.5 * SECONDS


def test_a_request_that_does_not_come_is_not_waited_for(line: socket.socket) -> None:
    began = time.monotonic()
    assert read(line) == b""
    assert time.monotonic() - began < 10 * SECONDS


def test_the_head_of_a_request_has_a_time_limit(line: socket.socket) -> None:
    """Even where a letter comes now and then."""
    line.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while time.monotonic() - began < 10 * SECONDS:
            line.sendall(b"a")
            time.sleep(SECONDS / 10)
    assert time.monotonic() - began < 8 * SECONDS


def test_what_is_no_http_gets_the_error_object(line: socket.socket) -> None:
    line.sendall(b"nonsense\r\n\r\n")
    head, _, body = read(line).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert body.startswith(b'{"error": {"message": "Invalid HTTP request received."')
