"""Errors as a client sees them: OpenAI's error object with its four keys, and nothing of the server's inside."""

from __future__ import annotations

from typing import Any

from softdlm.errors import CapacityError, PassError, SoftDLMError, one_line

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
"""HTTP status -> the error's type; 500 and what is not listed is a `server_error`."""


class Refusal(Exception):
    """A request that ends with an error."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, param: str | None = None, retry_after: int = 0
    ) -> None:
        super().__init__(one_line(message))
        self.status, self.code, self.param, self.retry_after = status, code, param, retry_after

    def to_json(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "server_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after)} if self.retry_after else {}


def refusal_of(error: Exception, request_id: str = "") -> Refusal:
    """What a client is told of an error. Of an unexpected one it learns nothing but where the operator finds it."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, PassError):
        return Refusal(500, str(error), code="pass_failed")
    if isinstance(error, CapacityError):
        return Refusal(400, str(error), code="too_large")
    if isinstance(error, SoftDLMError):
        return Refusal(400, str(error))
    named = f"; the server's log has the request {request_id}" if request_id else ""
    return Refusal(500, f"the request failed in the server{named}", code="internal_error")
