"""What runs inside Ray's HTTP proxy: errors of the proxy's own become OpenAI's error object.

Ray answers for a replica that is gone with plain text, or with nothing. Importing this file must stay cheap: the proxy
needs no torch.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from softdlm.serve.guards import refused
from softdlm.serve.refusals import Refusal

CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
"""The variable under which Ray's proxy looks for `middlewares`."""
RAY_PATHS = "/-/"
"""Start of the proxy's own routes."""
RAY_HEADERS = (b"x-request-timeout-seconds", b"x-request-disconnect-disabled")
"""With these a client could take its request out of our limits."""
LOST = "the replica that had this request is gone: send it again"
ABSENT = "no replica is there: the server is starting or shutting down"


def middlewares() -> list[Middleware]:
    return [Middleware(Front)]


class Front:
    """Pure ASGI, so that streams pass through untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(RAY_PATHS):
            await self.app(scope, receive, send)
            return
        scope["headers"] = [each for each in scope["headers"] if each[0].lower() not in RAY_HEADERS]
        await Passage(scope, receive, send).through(self.app)


class Passage:
    """One response on its way to the client."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive, self.send = scope, receive, send
        self.started = self.events = self.ended = self.dropped = False

    async def through(self, app: ASGIApp) -> None:
        await app(self.scope, self.receive, self.pass_on)
        if self.dropped or not self.started:
            message, code = (ABSENT, "server_draining") if self.dropped else (LOST, "replica_lost")
            await self._refuse(Refusal(503, message, code=code, retry_after=1))
        elif self.events and not self.ended:
            error = json.dumps(Refusal(503, LOST, code="replica_lost").to_json())
            body = f"data: {error}\n\ndata: [DONE]\n\n".encode()
            await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def pass_on(self, message: Message) -> None:
        """Hand a message to the client, except those of an error that the proxy made."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            kind = headers.get("content-type", "")
            self.dropped = message["status"] >= 400 and kind.startswith("text/plain")
            self.started, self.events = True, kind.startswith("text/event-stream")
            once(headers, "x-request-id")
        if message["type"] == "http.response.body":
            self.ended = not message.get("more_body", False)
        if not self.dropped:
            await self.send(message)

    async def _refuse(self, refusal: Refusal) -> None:
        answer = refused(refusal)
        if self.scope["path"] == "/health":
            answer = JSONResponse({"status": "draining", "reason": str(refusal)}, refusal.status)
        name = Headers(scope=self.scope).get("x-request-id")
        if name is not None:
            answer.headers["x-request-id"] = name
        await answer(self.scope, self.receive, self.send)


def once(headers: MutableHeaders, name: str) -> None:
    """Keep the first of several headers of a name: the application's, to which the proxy adds its own."""
    value: Any = headers.get(name)
    if value is not None:
        headers[name] = value
