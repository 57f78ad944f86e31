"""The server keeps to its own /openapi.json, whatever is sent to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from softdlm.serve.settings import Limits
from tests.serve.server import CHAT, NAMES, running

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = {
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "POST /v1/denoise",
    "GET /v1/models",
    "GET /v1/models/{model}",
    "GET /health",
    "GET /metrics",
    "GET /version",
}
POSTS = sorted(each for each in OPERATIONS if each.startswith("POST"))
TINY = Limits(max_concurrency=8, queue=32, max_new_tokens=8, choices=4)
"""No generated number makes a long decode."""
PLAIN = {
    "model",
    "messages",
    "prompt",
    "canvas",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "stream",
    "user",
    "logprobs",
    "n",
}
EXAMPLES = 40
TOLERATED: Any = list(HealthCheck)


@pytest.fixture(scope="module")
def schema() -> Iterator[Any]:
    with running(TINY) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


def operations(schema: Any) -> dict[str, Any]:
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


def check(case: Case) -> int:
    """Send a request, check what comes back; its status.

    A stream's type is not in the document, so of a stream only its status, and that no event is a failure.
    """
    response = case.call(timeout=30)
    streamed = response.headers["content-type"][0].startswith("text/event-stream")
    case.validate_response(response, checks=CHECKS[:2] if streamed else CHECKS)
    if streamed:
        assert case.body["stream"] is True  # type: ignore[index, call-overload]
        assert response.content.endswith(b"data: [DONE]\n\n")
        assert b'"server_error"' not in response.content
    return response.status_code


def send_many(operation: Any, mode: GenerationMode, plain: bool = False) -> Counter[int]:
    """Generated requests to one route; how often each status came back.

    `plain` leaves out what is seldom right by chance: the Decoding's spellings, and fields that must ask for nothing.
    """
    found: Counter[int] = Counter()

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=TOLERATED)
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Case) -> None:
        if isinstance(case.body, dict) and mode is GenerationMode.POSITIVE:
            case.body["model"] = NAMES[0]
            if plain:
                case.body = {name: value for name, value in case.body.items() if name in PLAIN}
                case.body |= {} if "canvas" in case.body else {"max_tokens": 8}
        found[check(case)] += 1

    send()
    return found


def test_every_route_is_documented(schema: Any) -> None:
    assert set(operations(schema)) == OPERATIONS


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("label", POSTS)
def test_what_fits_the_document_is_answered_as_it_says(schema: Any, label: str, plain: bool) -> None:
    statuses = send_many(operations(schema)[label], GenerationMode.POSITIVE, plain)
    assert set(statuses) <= {200, 400}
    assert statuses[200] > 0 or not plain


@pytest.mark.parametrize("label", POSTS)
def test_what_does_not_fit_is_refused_as_it_says(schema: Any, label: str) -> None:
    statuses = send_many(operations(schema)[label], GenerationMode.NEGATIVE)
    assert statuses[400] > EXAMPLES // 2
    assert set(statuses) <= {200, 400, 404, 415}


@pytest.mark.parametrize("label", sorted(each for each in OPERATIONS if each.startswith("GET")))
def test_what_is_read_is_as_the_document_says(schema: Any, label: str) -> None:
    operation = operations(schema)[label]
    if "{model}" in label:
        assert set(send_many(operation, GenerationMode.POSITIVE)) == {404}
        assert {check(operation.Case(path_parameters={"model": name})) for name in NAMES} == {200}
    else:
        assert check(operation.Case()) == 200


BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/chat/completions": {"messages": CHAT, "max_tokens": 8, "logprobs": True, "softdlm": {"trace": True}},
    "POST /v1/completions": {
        "prompt": ["3 plus 4 is", "so"],
        "max_tokens": 8,
        "logprobs": 2,
        "softdlm": {"order": True},
    },
    "POST /v1/denoise": {"canvas": ["3 plus 4 is", None, None, "."], "softdlm": {"tokens_per_step": 1}},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("label", BODIES)
def test_answers_fit_the_document(schema: Any, label: str, stream: bool) -> None:
    """Generated requests seldom can be answered; these can."""
    operation = operations(schema)[label]
    assert check(operation.Case(body={**BODIES[label], "stream": stream}, media_type="application/json")) == 200
