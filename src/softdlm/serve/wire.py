"""What a request may say: OpenAI's fields, ours, and those that clients send by habit.

Unknown fields are errors. What softdlm cannot do is an error too (`Neutral`); a field whose value asks for nothing is
accepted.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from softdlm.decoding import Decoding
from softdlm.shortcuts import RATES, SHORTCUTS

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
JSON_TYPES = (str, int, float, bool)


def neutral(*allowed: Any, remedy: str = "leave it out") -> AfterValidator:
    """For a field that is accepted only where it asks for nothing: None, or one of these values."""

    def check(value: Any) -> Any:
        if value is not None and value not in allowed:
            raise ValueError(f"softdlm cannot do this: {remedy}")
        return value

    return AfterValidator(check)


def wire_type(hint: Any) -> Any:
    """A field's type in JSON: rules and policies are spelled, tuples are lists."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [wire_type(each) for each in get_args(hint)]
        return Union[tuple(each for each in parts if each is not None)]  # noqa: UP007
    if get_origin(hint) is tuple:
        return list[get_args(hint)[0]] | None
    return hint if hint in JSON_TYPES or hint is type(None) or get_origin(hint) is Literal else None


def decoding_fields() -> dict[str, Any]:
    """The fields of a Decoding, and the short words for them, as JSON."""
    hints = get_type_hints(Decoding)
    made = {each.name: (wire_type(hints[each.name]), None) for each in fields(Decoding)}
    short = {name: (float | None if name in RATES else str | None if name == "method" else int | None, None)
             for name in SHORTCUTS}  # fmt: skip
    return {**made, **short}


class Extras(BaseModel):
    """What the object `softdlm` may say besides a Decoding."""

    model_config = STRICT
    trace: bool = Field(False, description="Return what happened in every pass, with candidates.")
    diffusing: bool = Field(False, description="With stream: every event replaces the text by the current draft.")
    order: bool = Field(False, description="Return the pass that committed each token.")


SoftDLM: Any = create_model("SoftDLM", __base__=Extras, **decoding_fields())
SoftDLM.__doc__ = "How this request is decoded: any field of a Decoding, rules by their spelling."
EXTRAS = tuple(Extras.model_fields)


class StreamOptions(BaseModel):
    model_config = STRICT
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = Field(None, description="Usage so far on every event, as vLLM has it.")
    include_obfuscation: Annotated[Any, neutral(False)] = None


class TextPart(BaseModel):
    model_config = STRICT
    type: Literal["text"]
    text: str


class Message(BaseModel):
    model_config = STRICT
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None
    refusal: None = None
    tool_calls: Annotated[Any, neutral([])] = None
    function_call: Annotated[Any, neutral()] = None
    audio: Annotated[Any, neutral()] = None
    annotations: Annotated[Any, neutral([])] = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class Common(BaseModel):
    """Fields of both routes that answer prompts."""

    model_config = STRICT
    model: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = Field(None, max_length=256)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1)
    softdlm: SoftDLM | None = None  # type: ignore[valid-type]
    ignore_eos: bool | None = Field(None, description="Forbid the end of the answer, for fixed lengths.")
    min_tokens: int | None = Field(None, ge=0)
    user: str | None = None
    frequency_penalty: Annotated[Any, neutral(0)] = None
    presence_penalty: Annotated[Any, neutral(0)] = None
    repetition_penalty: Annotated[Any, neutral(1)] = None
    logit_bias: Annotated[Any, neutral({})] = None

    @property
    def extras(self) -> Mapping[str, bool]:
        return {name: bool(self.softdlm and getattr(self.softdlm, name)) for name in EXTRAS}

    @property
    def limit(self) -> int | None:
        """The longest answer that the client wants."""
        return self.max_tokens


class ChatRequest(Common):
    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    metadata: dict[str, str] | None = None
    store: Annotated[Any, neutral(False)] = None
    service_tier: Annotated[Any, neutral("auto", "default")] = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    tools: Annotated[Any, neutral([], remedy="this model calls no tools; leave them out")] = None
    tool_choice: Annotated[Any, neutral("none", "auto")] = None
    functions: Annotated[Any, neutral([])] = None
    function_call: Annotated[Any, neutral("none", "auto")] = None
    response_format: Annotated[
        Any, neutral({"type": "text"}, remedy="tokens are not decoded from left to right; leave it out")
    ] = None
    modalities: Annotated[Any, neutral(["text"])] = None
    audio: Annotated[Any, neutral()] = None
    prediction: Annotated[Any, neutral()] = None
    reasoning_effort: Annotated[Any, neutral()] = None
    verbosity: Annotated[Any, neutral()] = None
    web_search_options: Annotated[Any, neutral()] = None
    moderation: Annotated[Any, neutral()] = None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class CompletionRequest(Common):
    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = Field(None, ge=0, le=20)
    best_of: int | None = Field(None, ge=1)
    echo: Annotated[Any, neutral(False)] = None
    suffix: Annotated[Any, neutral("", remedy="fill gaps with /v1/denoise")] = None


class DenoiseRequest(BaseModel):
    """A canvas with gaps: token ids, texts, and null for each open position."""

    model_config = STRICT
    canvas: list[int | str | None] = Field(min_length=1)
    model: str | None = None
    stream: bool | None = None
    softdlm: SoftDLM | None = None  # type: ignore[valid-type]

    @property
    def extras(self) -> Mapping[str, bool]:
        return {name: bool(self.softdlm and getattr(self.softdlm, name)) for name in EXTRAS}
