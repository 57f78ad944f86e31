"""Every body and every chunk fits OpenAI's own schemas (tests/data/openai/schemas.json, from its OpenAPI document)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator, ValidationError
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from softdlm.serve.settings import Limits
from tests.conftest import DATA
from tests.serve.server import CHAT, NAMES, running

Body = dict[str, Any]
CHAT_ROUTE, TEXT_ROUTE = "/v1/chat/completions", "/v1/completions"
SHORT: Body = {"max_tokens": 16, "softdlm": {"tokens_per_step": 4, "block_length": 8}}
ASKED: dict[str, tuple[str, Body]] = {
    "chat": (CHAT_ROUTE, {}),
    "chat of three": (CHAT_ROUTE, {"n": 3, "temperature": 1.0}),
    "chat with log-probabilities": (CHAT_ROUTE, {"logprobs": True, "top_logprobs": 5, "seed": 1, "temperature": 1.5}),
    "chat with extras": (CHAT_ROUTE, {"softdlm": {"trace": True, "order": True, "tokens_per_step": 8}}),
    "chat cut off": (CHAT_ROUTE, {"max_tokens": 2}),
    "text": (TEXT_ROUTE, {}),
    "text with log-probabilities": (TEXT_ROUTE, {"logprobs": 5}),
    "texts": (TEXT_ROUTE, {"prompt": ["What is 3 plus 4?", "Name a colour."], "n": 2, "temperature": 1.0}),
}
STREAMED: dict[str, tuple[str, Body]] = {
    **ASKED,
    "chat that diffuses": (CHAT_ROUTE, {"softdlm": {"diffusing": True, "tokens_per_step": 8}}),
    "text that diffuses": (TEXT_ROUTE, {"softdlm": {"diffusing": True, "tokens_per_step": 8}}),
}
OPTIONS: list[Body] = [{}, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}]


def nullable(schema: Any) -> Any:
    """OpenAPI 3.0's `nullable: true`, which OpenAI still writes, as JSON Schema says it."""
    if isinstance(schema, list):
        return [nullable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: nullable(value) for name, value in schema.items() if name != "nullable"}
    return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") is True else made


@cache
def document() -> Body:
    return nullable(json.loads((DATA / "openai" / "schemas.json").read_text()))


def check(body: Any, name: str) -> None:
    """Raises where a body does not fit the schema of this name."""
    whole = Resource.from_contents(document(), default_specification=DRAFT202012)
    registry = Registry().with_resource("openai", whole)
    Draft202012Validator({"$ref": f"openai#/components/schemas/{name}"}, registry=registry).validate(body)


def check_text_chunk(chunk: Body) -> None:
    """The chunks of a text have the schema of its whole body.

    OpenAI's service sends null where that schema has no word for it: the finish reason before the end, and with
    `include_usage` the usage before its chunk.
    """
    chunk = copy.deepcopy(chunk)
    for choice in chunk["choices"]:
        if choice["finish_reason"] is None:
            choice["finish_reason"] = "stop"
    if "usage" in chunk and chunk["usage"] is None:
        del chunk["usage"]
    check(chunk, "CreateCompletionResponse")


def check_chunk(path: str, chunk: Body) -> None:
    check(chunk, "CreateChatCompletionStreamResponse") if path == CHAT_ROUTE else check_text_chunk(chunk)


def check_body(path: str, body: Body) -> None:
    check(body, "CreateChatCompletionResponse" if path == CHAT_ROUTE else "CreateCompletionResponse")


def request_of(path: str, more: Body) -> Body:
    asks = {"messages": CHAT} if path == CHAT_ROUTE else {"prompt": "What is 3 plus 4?"}
    return {"model": NAMES[0], **asks, **SHORT, **more}


def chunks_of(client: httpx.Client, path: str, request: Body) -> list[Body]:
    """The objects of a stream, which ends with its mark."""
    response = client.post(path, json=request)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: ") and "\n" not in event for event in events[:-1])
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, timeout=30) as made:
        yield made


@pytest.mark.parametrize("name", ASKED)
def test_bodies(client: httpx.Client, name: str) -> None:
    path, more = ASKED[name]
    response = client.post(path, json=request_of(path, more))
    assert response.status_code == 200, response.text
    check_body(path, response.json())
    assert response.json()["choices"]


@pytest.mark.parametrize("name", STREAMED)
def test_chunks(client: httpx.Client, name: str) -> None:
    path, more = STREAMED[name]
    for options in OPTIONS:
        chunks = chunks_of(client, path, {**request_of(path, more), "stream": True, "stream_options": options})
        for chunk in chunks:
            check_chunk(path, chunk)
        usages = [chunk["usage"] for chunk in chunks if chunk.get("usage") is not None]
        assert len(usages) == (0 if not options else 1 if len(options) == 1 else len(chunks))
        ends = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
        assert len(ends) == len({choice["index"] for chunk in chunks for choice in chunk["choices"]})


def test_models(client: httpx.Client) -> None:
    listed = client.get("/v1/models").json()
    check(listed, "ListModelsResponse")
    assert [card["id"] for card in listed["data"]] == list(NAMES)
    for name in NAMES:
        check(client.get(f"/v1/models/{name}").json(), "Model")


WRONG: dict[str, tuple[int, Callable[[httpx.Client], httpx.Response]]] = {
    "no JSON": (400, lambda client: client.post(CHAT_ROUTE, content=b"{")),
    "no UTF-8": (400, lambda client: client.post(CHAT_ROUTE, content=b'{"model": "\xff"}')),
    "no object": (400, lambda client: client.post(TEXT_ROUTE, json=[1])),
    "no body": (400, lambda client: client.post(CHAT_ROUTE)),
    "no messages": (400, lambda client: client.post(CHAT_ROUTE, json={"model": NAMES[0]})),
    "tools": (400, lambda client: client.post(CHAT_ROUTE, json=request_of(CHAT_ROUTE, {"tools": [{}]}))),
    "id outside": (400, lambda client: client.post(TEXT_ROUTE, json=request_of(TEXT_ROUTE, {"prompt": [10**6]}))),
    "bad rule": (
        400,
        lambda client: client.post(CHAT_ROUTE, json=request_of(CHAT_ROUTE, {"softdlm": {"commit": "("}})),
    ),
    "too long": (400, lambda client: client.post(TEXT_ROUTE, json=request_of(TEXT_ROUTE, {"prompt": "a b " * 900}))),
    "closed canvas": (400, lambda client: client.post("/v1/denoise", json={"canvas": [1]})),
    "unknown model": (404, lambda client: client.post(CHAT_ROUTE, json=request_of(CHAT_ROUTE, {"model": "x"}))),
    "unknown card": (404, lambda client: client.get("/v1/models/x")),
    "unknown route": (404, lambda client: client.get("/v1/nothing")),
    "wrong method": (405, lambda client: client.get(CHAT_ROUTE)),
    "wrong host": (403, lambda client: client.get("/v1/models", headers={"host": "example.org"})),
    "large": (413, lambda client: client.post(CHAT_ROUTE, content=b" " * (5 << 20))),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(client: httpx.Client, name: str) -> None:
    status, call = WRONG[name]
    check_error(call(client), status)


def check_error(response: httpx.Response, status: int) -> None:
    assert response.status_code == status, response.text
    check(response.json(), "ErrorResponse")
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_errors_of_a_server_with_keys_that_holds_little() -> None:
    """A wrong key, more answers than there are places, and a deadline that has passed while others were decoded."""
    limits = Limits(max_concurrency=1, queue=1, max_new_tokens=64, choices=4)
    with running(limits, keys=["key"]) as url, httpx.Client(base_url=url, timeout=30) as client:
        check_error(client.get("/v1/models"), 401)
        client.headers["authorization"] = "Bearer key"
        check_error(client.post(CHAT_ROUTE, json=request_of(CHAT_ROUTE, {"n": 3})), 400)
        slow = request_of(CHAT_ROUTE, {"n": 2, "max_tokens": 64, "softdlm": {"commit": "topn(1)"}, "stream": True})
        with client.stream("POST", CHAT_ROUTE, json=slow):
            check_error(client.post(CHAT_ROUTE, json=request_of(CHAT_ROUTE, {})), 429)


def damaged(body: Body) -> Iterator[Body]:
    """The body with one mistake each."""
    for name in ("id", "object", "created", "model", "choices"):
        yield {each: value for each, value in body.items() if each != name}
    yield {**body, "object": "chat"}
    yield {**body, "created": "now"}
    yield {**body, "usage": {"prompt_tokens": 1, "completion_tokens": None, "total_tokens": 1}}
    for name in ("index", "finish_reason"):
        yield {**body, "choices": [{each: value for each, value in body["choices"][0].items() if each != name}]}
    yield {**body, "choices": [{**body["choices"][0], "finish_reason": "eos"}]}
    yield {**body, "choices": [{**body["choices"][0], "logprobs": []}]}


@pytest.mark.parametrize("path", [CHAT_ROUTE, TEXT_ROUTE])
def test_a_damaged_body_is_refused(client: httpx.Client, path: str) -> None:
    whole = client.post(path, json=request_of(path, {})).json()
    chunk = chunks_of(client, path, {**request_of(path, {}), "stream": True})[-1]
    for sound, checks in ((whole, check_body), (chunk, check_chunk)):
        checks(path, sound)
        for body in damaged(sound):
            with pytest.raises((ValidationError, KeyError)):
                checks(path, body)
    with pytest.raises(ValidationError):
        check_body(path, {**whole, "choices": [{**whole["choices"][0], "finish_reason": None}]})


@pytest.mark.parametrize("name", ["message", "type", "param", "code"])
def test_an_error_without_one_of_its_keys_is_refused(client: httpx.Client, name: str) -> None:
    error = client.get("/v1/nothing").json()["error"]
    with pytest.raises(ValidationError):
        check({"error": {each: value for each, value in error.items() if each != name}}, "ErrorResponse")
