"""From a request to answers: its prompts as ids, and the Decoding that it asks for, checked at the border."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.generation import encode
from softdlm.models.denoiser import Denoiser
from softdlm.serve.refusals import Refusal
from softdlm.serve.rules import check_rules, check_spelling
from softdlm.serve.settings import Limits
from softdlm.serve.wire import EXTRAS, ChatRequest, Common, CompletionRequest, DenoiseRequest

SPELLED = ("commit", "feedback", "method", "cache")
MOST_POLICIES = 1_000
"""Different sets of token ids (`forbid`, `last`) since the start: each keeps a little memory of the device."""
MOST_TOKEN_IDS = 1_000
MOST_STOPS, LONGEST_STOP = 16, 256


@dataclass(frozen=True)
class Wanted:
    """One answer that a request asks for."""

    prompt_ids: list[int]
    number: int
    """Of the sample among those of one prompt: with the seed it decides the random draws."""
    decoding: Decoding
    """Settled."""
    given: list[int] | None = None
    """A canvas with gaps."""


class Border:
    """Checks requests against the model and the operator's limits."""

    def __init__(self, model: Denoiser, limits: Limits) -> None:
        self.model, self.limits = model, limits
        self.policies: set[tuple[Any, ...]] = set()

    def chat(self, body: ChatRequest) -> list[Wanted]:
        messages = [{"role": _role(each.role), "content": each.text} for each in body.messages]
        return self._answers(body, [messages], chat=True)

    def completion(self, body: CompletionRequest) -> list[Wanted]:
        if body.best_of not in (None, body.n or 1):
            raise Refusal(400, f"best_of {body.best_of}: answers are not ranked; leave it out", param="best_of")
        return self._answers(body, _prompts(body.prompt), chat=False)

    def denoise(self, body: DenoiseRequest) -> Wanted:
        ids = self._canvas(body.canvas)
        first = ids.index(self.model.mask_id)
        words = _decoding_words(body)
        if clash := words.keys() & {"max_new_tokens", "stop"}:
            raise Refusal(400, f"{', '.join(sorted(clash))} has no meaning for a canvas: leave it out", param="softdlm")
        new = len(ids) - first
        decoding = self._settled({"early_finish": False, **words}, new, stated=new)
        return Wanted(ids[:first], 0, decoding, ids)

    def _answers(self, body: Common, prompts: Sequence[Any], chat: bool) -> list[Wanted]:
        samples = body.n or 1
        if samples * len(prompts) > self.limits.choices:
            raise Refusal(
                400, f"{samples * len(prompts)} answers are asked for; this server gives at most {self.limits.choices}",
                param="n",
            )  # fmt: skip
        if body.stream_options is not None and not body.stream:
            raise Refusal(400, "stream_options goes with stream: true", param="stream_options")
        if body.extras["diffusing"] and not body.stream:
            raise Refusal(400, "diffusing goes with stream: true", param="softdlm")
        decoding = self._settled(_words(body), body.limit)
        encoded = [encode(self.model, prompt, chat) for prompt in prompts]
        return [Wanted(ids, number, decoding) for ids in encoded for number in range(samples)]

    def _settled(self, words: Mapping[str, Any], limit: int | None, stated: int | None = None) -> Decoding:
        """The request's Decoding, filled from the model's own settings, within the server's limits.

        `limit` is the longest answer that the client takes: the canvas has that length, or the model's own where that
        is shorter. A sampled answer without a seed gets one at random.
        """
        asked = Decoding.of(**words)
        length = stated or asked.max_new_tokens or _least(limit, self.model.own.max_new_tokens)
        settled = replace(asked, max_new_tokens=length).settled(self.model.own)
        assert settled.max_new_tokens is not None
        if settled.max_new_tokens > self.limits.max_new_tokens:
            raise UsageError(
                f"an answer of {settled.max_new_tokens} tokens is asked for; this server allows at most "
                f"{self.limits.max_new_tokens}"
            )
        check_rules(settled)
        self._check_tokens(settled)
        if settled.temperature and asked.seed is None:
            settled = replace(settled, seed=secrets.randbits(63))
        return settled

    def _check_tokens(self, decoding: Decoding) -> None:
        policy = decoding.forbid, decoding.last
        if max(map(len, policy)) > MOST_TOKEN_IDS:
            raise UsageError(f"forbid and last may name {MOST_TOKEN_IDS} token ids each, not {max(map(len, policy))}")
        decoding.token_policy(self.model)
        if policy not in self.policies and len(self.policies) >= MOST_POLICIES:
            raise Refusal(400, "too many different sets of forbid and last since the server's start", param="softdlm")
        self.policies.add(policy)
        if len(decoding.stop) > MOST_STOPS or any(len(each) > LONGEST_STOP for each in decoding.stop):
            raise UsageError(f"stop may hold {MOST_STOPS} strings of up to {LONGEST_STOP} letters")

    def _canvas(self, parts: Sequence[int | str | None]) -> list[int]:
        """Texts become tokens, null an open position; the mask's own id is refused."""
        ids: list[int] = []
        for part in parts:
            ids += [self.model.mask_id] if part is None else self._piece(part)
        if self.model.mask_id not in ids:
            raise Refusal(400, "nothing is open: put null where a token is wanted", param="canvas")
        return ids

    def _piece(self, part: int | str) -> list[int]:
        text: Any = part if isinstance(part, str) else [part]
        return encode(self.model, text, chat=False, start=False)


def _words(body: Common) -> dict[str, Any]:
    """The fields of a Decoding that a request names, by OpenAI's names and inside `softdlm`."""
    openai: dict[str, Any] = {"temperature": body.temperature, "seed": body.seed, "stop": body.stop or None}
    if body.temperature:
        openai["top_p"] = None if body.top_p == 1 else body.top_p
    if body.ignore_eos:
        openai["eos"] = "forbid"
    elif body.min_tokens:
        raise Refusal(400, "min_tokens needs ignore_eos: true", param="min_tokens")
    named, words = {name: value for name, value in openai.items() if value is not None}, _decoding_words(body)
    if body.limit is not None and "max_new_tokens" in words:
        raise Refusal(400, "give max_tokens, or softdlm.max_new_tokens, not both", param="max_tokens")
    if twice := named.keys() & words.keys():
        raise Refusal(400, f"{', '.join(sorted(twice))} is given twice: once is enough", param="softdlm")
    if (wanted := logprobs_asked(body) or 0) > (words.get("candidates") or 3):
        words["candidates"] = wanted
    return {**named, **words}


def _decoding_words(body: Common | DenoiseRequest) -> dict[str, Any]:
    given = {} if body.softdlm is None else body.softdlm.model_dump(exclude_none=True, exclude=set(EXTRAS))
    for name in SPELLED:
        if name in given:
            check_spelling(name, given[name])
    return given


def logprobs_asked(body: Common) -> int | None:
    """How many candidates of each committed token are wanted beside its log-probability; None: not even that."""
    if isinstance(body, CompletionRequest):
        return body.logprobs
    if not isinstance(body, ChatRequest) or not body.logprobs:
        if isinstance(body, ChatRequest) and body.top_logprobs:
            raise Refusal(400, "top_logprobs goes with logprobs: true", param="top_logprobs")
        return None
    return body.top_logprobs or 0


def _prompts(prompt: str | list[str] | list[int] | list[list[int]]) -> list[Any]:
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise Refusal(400, "prompt is an empty list", param="prompt")
    return [prompt] if isinstance(prompt[0], int) else list(prompt)


def _role(role: str) -> str:
    """Chat templates know `system`, which newer clients call `developer`."""
    return "system" if role == "developer" else role


def _least(*numbers: int | None) -> int | None:
    return min((each for each in numbers if each is not None), default=None)
