"""Clients of the server in one event loop, and the engine alone with the same requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from serve_bodies import piece_of, text_of

from softdlm.decoding import settle
from softdlm.engine.answer import Answer
from softdlm.engine.queue import Engine
from softdlm.generation import encode

Asked = tuple[str, dict[str, Any]]
"""Route and body."""


class Reply(NamedTuple):
    """What a client got: status 0 where it left, first text and end in seconds since it asked."""

    number: int
    status: int
    text: str
    first: float
    whole: float
    at: float
    """When it ended, by the clock of this process."""
    retry_after: str = ""


async def ask(port: int, number: int, asked: Asked, leave: float | None = None) -> Reply:
    """One request on a connection of its own. After `leave` seconds the client closes it, whatever has come."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        body = json.dumps(asked[1])
        lines = [f"POST {asked[0]} HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close"]
        writer.write(("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]) + body).encode())
        status, headers, text, first = await asyncio.wait_for(_read(reader, asked, began), leave)
    except TimeoutError:
        status, headers, text, first = 0, {}, "", 0.0
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    end = time.monotonic()
    return Reply(number, status, text, first, end - began, end, headers.get("retry-after", ""))


async def _read(reader: asyncio.StreamReader, asked: Asked, began: float) -> tuple[int, dict[str, str], str, float]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    status = int(head[0].split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    if status == 200 and asked[1]["stream"]:
        return status, headers, *await _events(reader, began)
    body = (await reader.read()).decode()
    text = text_of(*asked, json.loads(body)) if status == 200 else body
    return status, headers, text, time.monotonic() - began


async def _events(reader: asyncio.StreamReader, began: float) -> tuple[str, float]:
    """The text of a stream and when the first of it came. A stream that does not end as it should says so."""
    text, first, done = "", 0.0, False
    async for line in reader:
        if line.startswith(b"data: {"):
            chunk = json.loads(line[6:])
            text += piece_of(chunk) if "error" not in chunk else f"<error {chunk['error']['code']}>"
            first = first or (time.monotonic() - began if text else 0.0)
        done = done or line.startswith(b"data: [DONE]")
    return text if done else text + "<no end>", first


async def all_of(port: int, asked: Sequence[Asked], clients: int) -> list[Reply]:
    """Every request once, as many at a time as there are clients."""
    waiting, replies = iter(list(enumerate(asked))), []

    async def client() -> None:
        for number, each in waiting:
            replies.append(await ask(port, number, each))

    await asyncio.gather(*(client() for _ in range(clients)))
    return sorted(replies)


def alone(model: Any, asked: Iterable[Asked], rows: int) -> tuple[float, list[str], int]:
    """Seconds of the engine for these requests, unheard; their texts, and their tokens together."""
    answers = [_answer(model, *each) for each in asked]
    seconds = decode(model, answers, rows)
    made = [answer.generation for answer in answers if answer.generation]
    return seconds, [each.text for each in made], sum(len(each.ids) for each in made)


def decode(model: Any, answers: Sequence[Answer], rows: int, kind: Any = "auto") -> float:
    """Seconds of the engine alone, which knows all requests from the start."""
    began = time.perf_counter()
    with Engine(model, batch_size=rows, engine=kind) as queue:
        for answer in answers:
            queue.submit(answer)
        while queue.busy:
            for answer in queue.step():
                if answer.error:
                    raise answer.error
    return time.perf_counter() - began


def _answer(model: Any, path: str, body: dict[str, Any]) -> Answer:
    words = {**body.get("softdlm", {}), **{name: body[name] for name in ("temperature", "seed") if name in body}}
    decoding = settle(model, None, {**words, "max_new_tokens": min(body["max_tokens"], model.own.max_new_tokens)})
    chat = "messages" in body
    return Answer(model, 0, encode(model, body["messages"] if chat else body["prompt"], chat), decoding)
