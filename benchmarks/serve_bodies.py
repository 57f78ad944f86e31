"""Requests for the server: a pool of valid ones in several cohorts, and mutations of them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from softdlm.tasks import load_task

JSON = "application/json"
COHORTS: tuple[dict[str, Any], ...] = (
    {},
    {"softdlm": {"commit": "topn(4)", "feedback": "slerp(k=3, lam=0.3)"}},
    {"softdlm": {"commit": "entropy(0.1)", "feedback": "vanilla"}},
    {"temperature": 0.7, "seed": 11},
    {"softdlm": {"block_length": 32}},
)
"""The model's own decoding, and four others."""
NUMBERS = (0, -1, 1, 2, 17, 2**31, 2**63, -(2**63), 10**30, 1e308, -1e308, 5e-324, 0.1)
STRANGE: tuple[Any, ...] = (
    None, True, False, "", "0", "none", "\x00", "a\x00b", "\ud800", "\udfff\ud800", "\u202e", "🙂" * 50, "x" * 5000,
    [], {}, [[]], [None], [1, "a", None], {"a": {"b": []}}, *NUMBERS,
)  # fmt: skip
SPELLINGS = (
    "topn", "topn()", "topn(0)", "topn(-1)", "topn(1e9)", "topn(10**9)", "topn('4')", "topn(n=1, n=2)", "topn(1,2,3,4)",
    "slerp(k=1000000, lam=0.3)", "slerp(k=3, lam=nan)", "slerp(lam=1e400)", "slerp(k=0, lam=-5)", "entropy(inf)",
    "entropy(-0.1)", "threshold(2)", "no_eos(" * 60 + "slerp" + ")" * 60, "alternate(alternate(alternate(slerp)))",
    "__import__('os').system('true')", "eval('1')", "lambda: 0", "topn(4); topn(5)", "topn(4)\ntopn(5)", "TOPN(4)",
    "steps(0)", "steps(999999)", "(", ")", "topn(", "topn(n=", "topn([[[[[[[[1]]]]]]]])", "(" * 400, "[" * 400,
    "x" * 501, "../x.py:Y", "/etc/passwd", "/etc/passwd:root", "x.py:Y", "a/../x.py:Y(k=3)", "alternate(../x.py:Y)",
    "x.PY:Y", "threshold(0.9, floor=x.py:Y)", "file:///x.py:Y", "x.py :Y", "~/x.py:Y", "..", "\x00", "topn(\x00)",
    "vanilla(vanilla)",
)  # fmt: skip
FIELDS = (
    "model", "messages", "prompt", "canvas", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed",
    "stop", "stream", "stream_options", "n", "softdlm", "ignore_eos", "min_tokens", "user", "frequency_penalty",
    "presence_penalty", "repetition_penalty", "logit_bias", "logprobs", "top_logprobs", "tools", "tool_choice",
    "response_format", "best_of", "echo", "suffix", "metadata", "store", "modalities", "audio", "prediction",
    "reasoning_effort", "service_tier", "functions", "function_call", "unknown_key", "__proto__", "",
)  # fmt: skip
OURS = (
    "commit", "feedback", "method", "cache", "k", "lam", "rank", "block_length", "max_new_tokens", "eos", "forbid",
    "last", "temperature", "top_p", "top_k", "min_p", "confidence", "last_candidates", "seed", "stop",
    "early_finish", "candidates", "trace", "diffusing", "order", "tokens_per_step", "threshold", "entropy_bound",
    "factor", "refresh", "renew", "unknown", "__class__",
)  # fmt: skip


class Sent(NamedTuple):
    """One request as it goes over the wire."""

    path: str
    body: bytes
    kind: str = JSON
    what: str = ""


def pool(size: int, longest: int = 64) -> list[tuple[str, dict[str, Any]]]:
    """Distinct valid requests that are deterministic, cohorts in turn, chat and completions, streamed and not."""
    made = []
    for number, item in enumerate(load_task("mini-math", seed=11, size=size)):
        how, stream = copy.deepcopy(COHORTS[number % len(COHORTS)]), number % 2 == 0
        body = {"max_tokens": longest, "stream": stream, **how}
        if stream:
            body["stream_options"] = {"include_usage": True}
        if number // len(COHORTS) % 2:
            made.append(("/v1/completions", {"prompt": item.prompt, **body}))
        else:
            made.append(("/v1/chat/completions", {"messages": [{"role": "user", "content": item.prompt}], **body}))
    return made


def text_of(path: str, body: dict[str, Any], answer: dict[str, Any]) -> str:
    """What a whole answer says."""
    one = answer["choices"][0]
    return one["message"]["content"] if path.endswith("chat/completions") else one["text"]


def piece_of(chunk: dict[str, Any]) -> str:
    """What a chunk of a stream adds."""
    return "".join(one.get("text") or one.get("delta", {}).get("content") or "" for one in chunk["choices"])


def valid(source: random.Random, mark: str) -> tuple[str, dict[str, Any]]:
    words = f"{mark} Tom has {source.randrange(9)} apples and buys {source.randrange(9)} more. How many?"
    path = source.choice(["/v1/chat/completions", "/v1/completions", "/v1/denoise"])
    body: dict[str, Any] = {"stream": source.random() < 0.3, "softdlm": {"commit": "topn(8)"}}
    if path.endswith("denoise"):
        return path, {"canvas": [words, *[None] * 12, " apples", None], **body}
    asked = {"messages": [{"role": "user", "content": words}]} if "chat" in path else {"prompt": words}
    return path, {**asked, "max_tokens": 16, **body}


UNUSUAL: dict[str, tuple[Any, ...]] = {
    "max_tokens": (1, 2, 7, 33), "temperature": (0, 0.0, 1e-6, 0.3, 1, 2), "top_p": (0.01, 1), "seed": (0, 2**63 - 1),
    "stop": ("\n", ["a", "."], [], "\u202e"), "n": (1, 3), "user": ("", "🙂" * 50), "ignore_eos": (True, False),
    "logit_bias": ({}, None), "tools": ([], None), "response_format": ({"type": "text"},),
    "frequency_penalty": (0, 0.0), "stream": (True, False), "metadata": ({}, {"a": "b"}),
    "service_tier": ("auto",), "store": (False,),
}  # fmt: skip
"""Values that are allowed, though few clients send them."""


def _fine(source: random.Random, body: dict[str, Any]) -> None:
    name = source.choice(list(UNUSUAL))
    body[name] = copy.deepcopy(source.choice(UNUSUAL[name]))


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _type(source: random.Random, body: dict[str, Any]) -> None:
    body[source.choice(FIELDS)] = copy.deepcopy(source.choice(STRANGE))


def _ours(source: random.Random, body: dict[str, Any]) -> None:
    ours = body["softdlm"]
    if not isinstance(ours, dict):
        ours = body["softdlm"] = {}
    ours[source.choice(OURS)] = copy.deepcopy(source.choice(STRANGE))


def _spelling(source: random.Random, body: dict[str, Any]) -> None:
    body["softdlm"] = {source.choice(["commit", "feedback", "method", "cache"]): source.choice(SPELLINGS)}


def _deep(source: random.Random, body: dict[str, Any]) -> None:
    body[source.choice(FIELDS)] = nested(source.choice([50, 200, 900]))


def _part(source: random.Random, body: dict[str, Any]) -> None:
    """A strange value inside a message, a prompt or a canvas."""
    for key in ("messages", "prompt", "canvas"):
        if key in body:
            strange = copy.deepcopy(source.choice(STRANGE))
            body[key] = source.choice([[strange], [body[key], strange], [{"role": "user", "content": strange}],
                                       [{"role": strange, "content": "a"}]])  # fmt: skip


def _absurd(source: random.Random, body: dict[str, Any]) -> None:
    name = source.choice(
        ["max_tokens", "n", "temperature", "top_p", "seed", "logprobs", "top_logprobs", "stop", "user"]
    )
    body[name] = source.choice([*NUMBERS, ["a"] * 500, "z" * 100_000])


CHANGES: tuple[Callable[[random.Random, dict[str, Any]], None], ...] = (_type, _ours, _spelling, _deep, _part, _absurd)


def _raw(source: random.Random, text: bytes) -> tuple[bytes, str]:
    """Damage below JSON."""
    place = source.randrange(len(text))
    return source.choice([
        (text[:place], "truncated"),
        (text[:place] + bytes([source.randrange(256)]) + text[place + 1 :], "a byte changed"),
        (text[:place] + b"\xff\xfe\x80" + text[place:], "invalid UTF-8"),
        (text[:place] + b"\x00" + text[place:], "NUL"),
        (text.decode().encode("utf-16"), "UTF-16"),
        (text[:-1] + b', "temperature": NaN}', "NaN"),
        (text[:-1] + b', "top_p": -Infinity}', "Infinity"),
        (text[:-1] + b', "seed": ' + b"9" * 5000 + b"}", "5,000 digits"),
        (b"[" * 100_000, "100,000 brackets"),
        (text[:-1] + b', "user": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", "50,000 levels"),
        (b"", "empty"), (b"null", "null"), (b"[]", "a list"), (b'"text"', "a string"), (text + text, "twice"),
        (text[:-1] + b', "user": "\\ud800"}', "lone surrogate"),
    ])  # fmt: skip


def mutated(source: random.Random, mark: str) -> Sent:
    """A valid body, with unusual values or up to three changes, on the right route or another one."""
    path, body = valid(source, mark)
    if source.random() < 0.05:
        path = source.choice(["/v1/chat/completions", "/v1/completions", "/v1/denoise"])
    chosen = source.choices(CHANGES, k=source.choice([1, 1, 2, 3])) if source.random() < 0.6 else []
    chosen += [_fine] * source.randrange(3)
    for change in chosen:
        change(source, body)
    text, what = json.dumps(body).encode(), "+".join(each.__name__.strip("_") for each in chosen)
    if source.random() < 0.3:
        text, what = _raw(source, json.dumps(valid(source, mark)[1]).encode())
    kind = source.choice([JSON] * 12 + ["text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data",
                                        "application/json; charset=utf-16", "application/xml"])  # fmt: skip
    return Sent(path, text, kind, what)
