"""Connections whose other end is too slow: to say what it wants, or to take what it was sent.

uvicorn has no limit on either. Such connections would pile up, each with its memory and its file.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from softdlm.serve.refusals import Refusal
from softdlm.serve.settings import Limits

Protocol: Any = AutoHTTPProtocol


def patient(limits: Limits) -> type[asyncio.Protocol]:
    """uvicorn's protocol with the limits of this server."""
    return type("Patient", (_Patient,), {"limits": limits})


class _Patient(Protocol):
    limits: Limits
    head: Any = None
    """The timer that runs while the head of a request is awaited."""
    unread: Any = None
    """The one that runs while the client leaves something unread."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # what the kernel does not take is unread
        self._await_head()

    def data_received(self, data: bytes) -> None:
        self._await_head()
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self.head = _ended(self.head)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread = _ended(self.unread)

    def connection_lost(self, exc: Exception | None) -> None:
        self.head, self.unread = _ended(self.head), _ended(self.unread)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets the error object, too."""
        body = json.dumps(Refusal(400, msg).to_json()).encode()
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: "
        self.transport.write(head + b"%d\r\n\r\n" % len(body) + body)
        self.transport.close()

    def _await_head(self) -> None:
        if self.head is None:
            self.head = self.loop.call_later(self.limits.body_seconds, self.transport.abort)

    def _await_reading(self) -> None:
        """Look again later: a client that has read something until then is slow, but there."""
        left = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < left:
                self._await_reading()
            else:
                self.transport.abort()

        self.unread = self.loop.call_later(self.limits.write_seconds, look)


def _ended(timer: Any) -> None:
    if timer is not None:
        timer.cancel()
