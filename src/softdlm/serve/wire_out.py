"""The shapes of answers, for /openapi.json: OpenAI's objects and what softdlm adds to them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    error: ErrorBody


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    passes: int
    tokens_per_pass: float


class Ours(BaseModel):
    """What softdlm says of an answer."""

    finish_reason: Literal["eos", "stop", "length", "deadline", "cancelled"]
    passes: int
    canvas_length: int
    seed: int | None = None
    order: list[int] | None = None
    trace: dict[str, Any] | None = None


class ChatMessage(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(BaseModel):
    index: int
    message: ChatMessage
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]
    softdlm: Ours


class Head(BaseModel):
    id: str
    created: int
    model: str
    usage: Usage


class ChatCompletion(Head):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class TextChoice(BaseModel):
    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]
    softdlm: Ours


class Completion(Head):
    object: Literal["text_completion"]
    choices: list[TextChoice]


class Denoised(Head):
    """A closed canvas."""

    object: Literal["denoise"]
    canvas: list[int]
    pieces: list[str] | None
    """Each token as text."""
    text: str | None
    order: list[int]
    """The pass that committed each position, from 1; 0 where a token was given."""
    finish_reason: Literal["stop", "length"]
    softdlm: Ours


class ModelCard(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int | None
    permission: list[Any]


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[ModelCard]


class Health(BaseModel):
    status: Literal["ready", "loading", "draining", "failed"]
    reason: str | None


class Version(BaseModel):
    version: str
