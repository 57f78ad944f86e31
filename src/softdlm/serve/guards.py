"""What every request passes before it is read: its host, its key, its size; and the name under which it is logged."""

from __future__ import annotations

import asyncio
import hmac
import re
import uuid
from collections.abc import Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from softdlm.serve.page_routes import PAGE_PATHS
from softdlm.serve.refusals import Refusal
from softdlm.serve.settings import Limits

OPEN_PATHS = ("/health", *PAGE_PATHS)
"""Routes that need no key."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_NAME = re.compile(r"[\w.:-]{1,128}", re.ASCII)


class Guard:
    """Pure ASGI, so that streams pass through untouched."""

    def __init__(self, app: ASGIApp, limits: Limits, keys: Sequence[str] = (), local: bool = False) -> None:
        self.app, self.limits, self.local = app, limits, local
        self.keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        name = request_name(Headers(scope=scope))
        scope.setdefault("state", {})["name"] = name

        begun = False

        async def named(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                MutableHeaders(scope=message)["x-request-id"] = name
            await send(message)

        try:
            self._check(scope)
            receive = await self._body(scope, receive)
            await self.app(scope, receive, named)
        except Refusal as refusal:
            await refused(refusal)(scope, receive, named)
        except asyncio.CancelledError:  # the server ends, and this request is not done
            if not begun:
                await refused(Refusal(503, "the server is shutting down", code="server_draining"))(
                    scope, receive, named
                )

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self.local and not self.keys and _host(headers.get("host", "")) not in LOCAL_HOSTS:
            raise Refusal(403, "this server answers only under the name localhost: start it with --api-key for others")
        if self.keys and scope["path"] not in OPEN_PATHS and not self._known(headers.get("authorization", "")):
            raise Refusal(401, "the API key is missing or wrong", code="invalid_api_key")

    def _known(self, authorization: str) -> bool:
        word, _, given = authorization.partition(" ")
        sent = given.strip().encode("utf-8", "replace")
        fits = [hmac.compare_digest(sent, key) for key in self.keys]  # all of them: the time tells nothing
        return word.lower() == "bearer" and any(fits)

    async def _body(self, scope: Scope, receive: Receive) -> Receive:
        """The body, read whole, within its limits; then whatever the connection says next."""
        stated = Headers(scope=scope).get("content-length", "")
        if stated.isascii() and stated.isdigit() and len(stated) < 20 and int(stated) > self.limits.body_bytes:
            raise self._too_large()
        try:
            body = await asyncio.wait_for(self._read(receive), self.limits.body_seconds)
        except TimeoutError:
            message = f"the request did not arrive within {self.limits.body_seconds:g} s"
            raise Refusal(408, message, code="slow_request") from None
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Any:
            return first.pop() if first else await receive()

        return replay

    async def _read(self, receive: Receive) -> bytes:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Refusal(400, "the client is gone")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limits.body_bytes:
                raise self._too_large()
            if not message.get("more_body"):
                return b"".join(parts)

    def _too_large(self) -> Refusal:
        message = f"the request is larger than {self.limits.body_bytes} bytes"
        return Refusal(413, message, code="request_too_large")


def refused(refusal: Refusal) -> JSONResponse:
    return JSONResponse(refusal.to_json(), refusal.status, headers=refusal.headers)


def request_name(headers: Headers) -> str:
    """The client's name for its request, where it is a plain word, else one of ours."""
    asked = headers.get("x-request-id", "")
    return asked if _NAME.fullmatch(asked) else uuid.uuid4().hex


def _host(value: str) -> str:
    """A host without its port."""
    return value.rpartition(":")[0] if re.search(r":\d+$", value) else value
