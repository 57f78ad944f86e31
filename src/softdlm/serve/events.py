"""Streams: server-sent events of what can no longer change, or of drafts that replace the text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.responses import StreamingResponse

from softdlm.serve.bodies import Call, denoised, ending, logprobs_of, made_by, usage
from softdlm.serve.refusals import Refusal
from softdlm.serve.tickets import News, Ticket

QUIET_SECONDS = 15.0
"""After which a comment is sent, so that nothing between server and client takes the connection for dead."""
QUIET = b": still decoding\n\n"
DONE = b"data: [DONE]\n\n"


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Server-sent events that nothing on the way keeps back."""
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, headers=headers, media_type="text/event-stream")


async def events(call: Call) -> AsyncIterator[bytes]:
    """The events of a request, to its end; an error is an event of its own."""
    if call.chat:
        for index in range(len(call.tickets)):
            yield _event(chunk(call, index, {"role": "assistant", "content": ""}))
    try:
        async for found in changes(call):
            if found is None:
                yield QUIET
                continue
            for each in parts(call, *found):
                yield _event(each)
    except Refusal as refusal:
        yield _event(refusal.to_json())
    else:
        if call.usage_at_end and call.prefix != "denoise":
            kind = "chat.completion.chunk" if call.chat else "text_completion"
            yield _event({**call.head(kind), "choices": [], "usage": usage(call)})
    yield DONE


async def changes(call: Call) -> AsyncIterator[tuple[int, Ticket, News] | None]:
    """The news of each answer as they come; None where it was quiet for long."""
    waiting = dict(enumerate(call.tickets))
    bell = call.tickets[0].bell
    while waiting:
        try:
            await asyncio.wait_for(bell.wait(), QUIET_SECONDS)
        except TimeoutError:
            yield None
        bell.clear()
        for index, ticket in list(waiting.items()):
            news = ticket.take()
            if news.over:
                del waiting[index]
            if news.over or news.text or news.draft is not None:
                yield index, ticket, news


def parts(call: Call, index: int, ticket: Ticket, news: News) -> Iterator[dict[str, Any]]:
    """The chunks that news are told in."""
    if call.prefix == "denoise":
        yield denoise_part(call, ticket, news)
        return
    if call.extras.get("diffusing"):
        yield from drafts(call, index, ticket, news)
        return
    if news.text:
        yield chunk(call, index, {"content": news.text})
    if news.over:
        made = made_by(ticket)
        last = chunk(call, index, {}, **ending(call, ticket))
        if call.logprobs is not None:
            last["choices"][0]["logprobs"] = logprobs_of(call, ticket.answer, made)
        yield last


def drafts(call: Call, index: int, ticket: Ticket, news: News) -> Iterator[dict[str, Any]]:
    """The text as it stands replaces what was sent before; the last one is the answer."""
    if not news.over:
        yield {**chunk(call, index, {"content": news.draft}), "diffusion_meta": {"diffusion_progress": news.progress}}
        return
    made = made_by(ticket)
    last = chunk(call, index, {"content": made.text}, **ending(call, ticket))
    yield {**last, "diffusion_meta": {"diffusion_progress": 1.0}}


def denoise_part(call: Call, ticket: Ticket, news: News) -> dict[str, Any]:
    if news.over:
        return denoised(call)
    meta = {"diffusion_progress": news.progress}
    return {**call.head("denoise.draft"), "text": news.draft, "diffusion_meta": meta, "usage": usage(call)}


def chunk(call: Call, index: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One event of a completion; a chat's has a delta, the other a text."""
    said: dict[str, Any] = {"delta": delta} if call.chat else {"text": delta.get("content", "")}
    kind = "chat.completion.chunk" if call.chat else "text_completion"
    one = {"index": index, **said, "logprobs": None, "finish_reason": None, **more}
    made = {**call.head(kind), "choices": [one]}
    if call.usage_always:
        return {**made, "usage": usage(call)}
    return {**made, "usage": None} if call.usage_at_end else made


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n".encode("utf-8", "replace")
