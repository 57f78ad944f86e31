"""OpenAI's own client against the running server: what it receives is what the library makes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from softdlm.engine.answer import Generation
from softdlm.serve.settings import Limits
from softdlm.trace import Trace
from tests.serve.server import CHAT, FAST, NAMES, QUESTION, direct, model, running

MODEL = NAMES[0]
SAMPLED: dict[str, Any] = {"temperature": 1.2, "top_p": 0.95}
TALK: list[Any] = [
    {"role": "user", "content": "Ann has 9 pens."},
    {"role": "assistant", "content": "Ann has 9 pens."},
    {"role": "user", "content": "She gives 2 away. How many pens does Ann have?"},
]
RAW = "Question: What is 12 plus 30?\nAnswer:"


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[OpenAI]:
    with client_of(server) as made:
        yield made


def client_of(url: str, key: str = "none") -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=30)


def extra(**softdlm: Any) -> dict[str, Any]:
    return {"softdlm": {**FAST, **softdlm}}


def ask(client: Any, messages: list[Any] = CHAT, **options: Any) -> Any:
    """A chat completion of 32 tokens in few passes, unless `options` say otherwise."""
    said = {"model": MODEL, "messages": messages, "max_tokens": 32, "extra_body": extra(), **options}
    return client.chat.completions.create(**said)


def go_on(client: Any, prompt: Any = RAW, **options: Any) -> Any:
    """The same of a text completion."""
    said = {"model": MODEL, "prompt": prompt, "max_tokens": 32, "extra_body": extra(), **options}
    return client.completions.create(**said)


def expected(prompt: Any = CHAT, chat: bool = True, **words: Any) -> Generation:
    return direct(prompt, chat, **{"max_new_tokens": 32, **FAST, **words})


def ours(value: Any) -> dict[str, Any]:
    """What the server adds to a choice."""
    return value.model_extra["softdlm"]


def check_usage(usage: Any, prompt_tokens: int, made: list[Generation]) -> None:
    tokens, passes = sum(len(each.ids) for each in made), sum(each.forwards for each in made)
    assert (usage.prompt_tokens, usage.completion_tokens) == (prompt_tokens, tokens)
    assert usage.total_tokens == prompt_tokens + tokens
    assert usage.model_extra["passes"] == passes
    assert usage.model_extra["tokens_per_pass"] == pytest.approx(tokens / passes, abs=1e-4)


def texts(chunks: list[Any], index: int = 0) -> list[str]:
    """The pieces of text of one choice."""
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    pieces = [choice.text if hasattr(choice, "text") else choice.delta.content for choice in choices]
    return [piece for piece in pieces if piece]


def test_a_chat_is_answered_as_the_library_answers_it(client: OpenAI) -> None:
    for messages in (CHAT, TALK):
        answer, made = ask(client, messages), expected(messages)
        (choice,) = answer.choices
        assert choice.message.content == made.text != ""
        assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
        assert (ours(choice)["finish_reason"], ours(choice)["passes"]) == (made.finish_reason, made.forwards)
        assert ours(choice)["canvas_length"] == 32
        assert (answer.model, answer.object) == (MODEL, "chat.completion")
        assert abs(answer.created - time.time()) < 60
        check_usage(answer.usage, len(made.trace.prompt_ids), [made])


def test_what_is_left_out_is_the_models_own(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=CHAT)
    assert answer.choices[0].message.content == direct(CHAT).text
    assert ours(answer.choices[0])["canvas_length"] == 64


def test_text_in_parts_and_a_developer_are_a_system_and_its_text(client: OpenAI) -> None:
    parts = [{"type": "text", "text": QUESTION[:20]}, {"type": "text", "text": QUESTION[20:]}]
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    said = ask(client, messages, extra_body=extra(trace=True))
    made = expected([{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}])
    assert said.choices[0].message.content == made.text
    assert ours(said.choices[0])["trace"]["prompt_ids"] == made.trace.prompt_ids
    assert said.usage.prompt_tokens == len(made.trace.prompt_ids) > len(expected().trace.prompt_ids)


def test_an_answer_that_fills_its_canvas_ends_by_length(client: OpenAI) -> None:
    answer = ask(client, max_tokens=openai.omit, max_completion_tokens=5)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 5)
    assert answer.choices[0].message.content == expected(max_new_tokens=5).text


def test_raw_text_and_ids_are_continued_without_a_template(client: OpenAI) -> None:
    made = expected(RAW, False)
    ids = made.trace.prompt_ids
    assert go_on(client).choices[0].text == go_on(client, ids).choices[0].text == made.text != ""
    assert ids == model().tokenizer(RAW, add_special_tokens=False)["input_ids"]
    check_usage(go_on(client).usage, len(ids), [made])


def test_many_prompts_are_answered_in_their_order(client: OpenAI) -> None:
    prompts = [RAW, "What is 7 minus 5?", "What is 7 minus 5?"]
    made = [expected(prompt, False, number=number, temperature=1.2, seed=3) for prompt in prompts for number in (0, 1)]
    answer = go_on(client, prompts, n=2, temperature=1.2, seed=3)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert [choice.text for choice in answer.choices] == [each.text for each in made]
    ids = go_on(client, [each.trace.prompt_ids for each in made[::2]], n=2, temperature=1.2, seed=3)
    assert [choice.text for choice in ids.choices] == [each.text for each in made]


def test_the_pieces_of_a_stream_are_the_text(client: OpenAI) -> None:
    made = expected()
    chunks = list(ask(client, stream=True))
    pieces = texts(chunks)
    assert "".join(pieces) == made.text
    assert len(pieces) > 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [*[None] * (len(chunks) - 1), "stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)
    assert ours(chunks[-1].choices[0])["passes"] == made.forwards


def test_the_pieces_of_a_completions_stream_are_the_text(client: OpenAI) -> None:
    made = expected(RAW, False)
    chunks = list(go_on(client, stream=True))
    assert "".join(texts(chunks)) == made.text
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [*[None] * (len(chunks) - 1), "stop"]
    assert {chunk.object for chunk in chunks} == {"text_completion"}


def test_choices_of_one_stream_do_not_mix(client: OpenAI) -> None:
    made = [expected(number=number, temperature=1.2, seed=7) for number in range(3)]
    chunks = list(ask(client, stream=True, n=3, temperature=1.2, seed=7))
    assert ["".join(texts(chunks, index)) for index in range(3)] == [each.text for each in made]
    assert len({each.text for each in made}) > 1
    ends = [choice for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert sorted(choice.index for choice in ends) == [0, 1, 2]


def test_the_stream_helper_builds_the_whole_answer(client: OpenAI) -> None:
    said: Any = {"model": MODEL, "messages": CHAT, "max_tokens": 32, "extra_body": extra()}
    with client.chat.completions.stream(**said, stream_options={"include_usage": True}) as stream:
        found = list(stream)
        final = stream.get_final_completion()
    made = expected()
    assert "".join(event.delta for event in found if event.type == "content.delta") == made.text
    assert [event.content for event in found if event.type == "content.done"] == [made.text]
    assert (final.choices[0].message.content, final.choices[0].finish_reason) == (made.text, "stop")
    check_usage(final.usage, len(made.trace.prompt_ids), [made])


def test_the_async_client_gets_the_same_answers_at_once(server: str) -> None:
    """Eight requests of different decodings share the engine; each is what it would be alone."""
    ways = [
        {**FAST, "feedback": feedback, "max_new_tokens": new} for feedback in ("vanilla", "slerp") for new in (12, 24)
    ]

    async def streamed(client: AsyncOpenAI, way: dict[str, Any]) -> str:
        stream = await ask(client, stream=True, max_tokens=openai.omit, extra_body={"softdlm": way})
        return "".join(texts([chunk async for chunk in stream]))

    async def whole(client: AsyncOpenAI, way: dict[str, Any]) -> str:
        answer = await go_on(client, max_tokens=openai.omit, extra_body={"softdlm": way})
        return answer.choices[0].text

    async def run() -> list[str]:
        async with AsyncOpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0, timeout=30) as client:
            return await asyncio.gather(*(ask_(client, way) for way in ways for ask_ in (streamed, whole)))

    made = [each for way in ways for each in (direct(CHAT, **way), direct(RAW, False, **way))]
    assert asyncio.run(run()) == [each.text for each in made]
    assert len({each.text for each in made}) > 4


def test_a_stop_string_ends_the_text_before_it(client: OpenAI) -> None:
    stop = expected().text[8:11]
    for stops in (stop, [stop, "never said"]):
        made = expected(stop=(stops,) if isinstance(stops, str) else tuple(stops))
        answer = ask(client, stop=stops)
        assert answer.choices[0].message.content == made.text == expected().text.partition(stop)[0]
        assert (answer.choices[0].finish_reason, ours(answer.choices[0])["finish_reason"]) == ("stop", "stop")
        assert "".join(texts(list(ask(client, stop=stops, stream=True)))) == made.text
    assert "".join(texts(list(go_on(client, stop="4", stream=True)))) == go_on(client, stop="4").choices[0].text


def test_equal_seeds_draw_equal_texts(client: OpenAI) -> None:
    once, again, other = (ask(client, n=2, seed=seed, **SAMPLED) for seed in (11, 11, 12))
    said = [[choice.message.content for choice in answer.choices] for answer in (once, again, other)]
    assert said[0] == said[1] != said[2]
    assert said[0][0] != said[0][1]
    assert said[0] == [expected(number=number, seed=11, **SAMPLED).text for number in range(2)]
    assert [ours(choice)["seed"] for choice in once.choices] == [11, 11]


def test_a_sample_without_a_seed_tells_the_one_it_drew(client: OpenAI) -> None:
    first, second = (ask(client, **SAMPLED).choices[0] for _ in range(2))
    assert ours(first)["seed"] != ours(second)["seed"]
    assert first.message.content == ask(client, seed=ours(first)["seed"], **SAMPLED).choices[0].message.content
    assert "seed" not in ours(ask(client).choices[0])


def test_usage_comes_in_a_chunk_of_its_own(client: OpenAI) -> None:
    for stream, made in ((ask, expected()), (go_on, expected(RAW, False))):
        *chunks, last = stream(client, stream=True, stream_options={"include_usage": True})
        assert last.choices == []
        assert all(chunk.choices and chunk.usage is None and "usage" in chunk.model_fields_set for chunk in chunks)
        check_usage(last.usage, len(made.trace.prompt_ids), [made])


def test_usage_so_far_comes_with_every_chunk(client: OpenAI) -> None:
    options: Any = {"continuous_usage_stats": True, "include_usage": True}
    chunks = list(ask(client, stream=True, stream_options=options))
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    passes = [chunk.usage.model_extra["passes"] for chunk in chunks]
    made = expected()
    assert counts == sorted(counts)
    assert passes == sorted(passes)
    assert len(set(counts)) > 2
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {len(made.trace.prompt_ids)}
    check_usage(chunks[-1].usage, len(made.trace.prompt_ids), [made])
    alone = list(ask(client, stream=True, extra_body={**extra(), "stream_options": {"continuous_usage_stats": True}}))
    assert alone[-1].choices
    check_usage(alone[-1].usage, len(made.trace.prompt_ids), [made])


def confidence_of(made: Generation) -> list[float]:
    """Of each token of an answer, at its commit."""
    begun = len(made.trace.prompt_ids)
    known = {at: sure for step in made.trace.passes for at, sure in zip(step.positions, step.confidence, strict=True)}
    return [known[begun + place] for place in range(len(made.ids))]


def test_a_chats_log_probabilities_are_those_of_the_commits(client: OpenAI) -> None:
    made = expected()
    whole = ask(client, logprobs=True, top_logprobs=2).choices[0].logprobs
    assert "".join(token.token for token in whole.content) == made.text
    assert [math.exp(token.logprob) for token in whole.content] == pytest.approx(confidence_of(made), abs=1e-5)
    for token in whole.content:
        assert bytes(token.bytes).decode() == token.token
        best, second = token.top_logprobs
        assert best.token == token.token
        assert best.logprob == pytest.approx(token.logprob, abs=1e-4)
        assert second.logprob <= best.logprob
    chunks = list(ask(client, stream=True, logprobs=True, top_logprobs=2))
    told = [token for chunk in chunks if (found := chunk.choices[0].logprobs) for token in found.content]
    assert [token.model_dump() for token in told] == [token.model_dump() for token in whole.content]


def test_a_completions_log_probabilities_are_those_of_the_commits(client: OpenAI) -> None:
    made = expected(RAW, False)
    found = go_on(client, logprobs=2).choices[0].logprobs
    assert "".join(found.tokens) == made.text
    assert [math.exp(each) for each in found.token_logprobs] == pytest.approx(confidence_of(made), abs=1e-5)
    for start, token, sure, top in zip(
        found.text_offset, found.tokens, found.token_logprobs, found.top_logprobs, strict=True
    ):
        assert made.text[start:].startswith(token)
        assert top[token] == pytest.approx(sure, abs=1e-4)
        assert len(top) == 2
    assert go_on(client).choices[0].logprobs is None


def test_a_requests_trace_is_the_librarys(client: OpenAI) -> None:
    made = expected(record_candidates=True)
    told = ours(ask(client, extra_body=extra(trace=True)).choices[0])["trace"]
    own = Trace.from_json(told)
    assert replace(own, marks=[]) == made.trace
    assert any(step.candidates for step in own.passes)
    assert len(own.seconds) == made.forwards


def test_order_is_the_pass_of_each_token(client: OpenAI) -> None:
    made = expected()
    begun = len(made.trace.prompt_ids)
    passes = {at: number for number, step in enumerate(made.trace.passes, 1) for at in step.positions}
    order = [passes[begun + place] for place in range(len(made.ids))]
    assert order != sorted(order)
    assert ours(ask(client, extra_body=extra(order=True)).choices[0])["order"] == order
    *_, last = ask(client, stream=True, extra_body=extra(order=True))
    assert ours(last.choices[0])["order"] == order
    assert "order" not in ours(ask(client).choices[0])


def test_diffusing_replaces_the_text_until_it_is_the_answer(client: OpenAI) -> None:
    made = expected(block_length=None)
    body = {"softdlm": {"tokens_per_step": 4, "diffusing": True}}
    chunks = [chunk for chunk in ask(client, stream=True, extra_body=body) if chunk.choices[0].delta.content]
    progress = [chunk.model_extra["diffusion_meta"]["diffusion_progress"] for chunk in chunks]
    said = [chunk.choices[0].delta.content for chunk in chunks]
    assert said[-1] == made.text
    assert progress == sorted(progress)
    assert (progress[-1], len(set(said)) > 2) == (1.0, True)
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [*[None] * (len(chunks) - 1), "stop"]


def test_a_decoding_is_the_requests_own(client: OpenAI) -> None:
    ways: list[dict[str, Any]] = [
        {"feedback": "vanilla", "commit": "topn(8)"},
        {"feedback": "slerp", "k": 2, "lam": 0.3, "threshold": 0.7, "block_length": 8, "cache": "dual"},
        {"method": "vanilla", "tokens_per_step": 2, "eos": "last"},
    ]
    for way in ways:
        choice, made = ask(client, extra_body={"softdlm": way}).choices[0], direct(CHAT, max_new_tokens=32, **way)
        assert (choice.message.content, ours(choice)["passes"]) == (made.text, made.forwards)


def test_ignore_eos_fills_the_canvas(client: OpenAI) -> None:
    answer = ask(client, extra_body={**extra(), "ignore_eos": True, "min_tokens": 32, "repetition_penalty": 1.0})
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (32, "length")
    assert answer.choices[0].message.content == expected(eos="forbid").text


def test_the_models_are_listed_and_found(client: OpenAI) -> None:
    found = client.models.list().data
    assert tuple(card.id for card in found) == NAMES
    for name in NAMES:
        card = client.models.retrieve(name)
        assert card in found
        assert (card.id, card.object, card.owned_by) == (name, "model", "softdlm")
        assert (card.model_extra or {})["max_model_len"] == model().max_length
        assert ask(client, model=name).model == name


REFUSED: dict[str, dict[str, Any]] = {
    "tools": {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
    "response_format": {"response_format": {"type": "json_object"}},
    "presence_penalty": {"presence_penalty": 1.0},
    "logit_bias": {"logit_bias": {"5": 1}},
    "best_of_all": {"extra_body": {"best_of_all": 3}},
    "softdlm.colour": {"extra_body": extra(colour="red")},
    "temperature": {"temperature": 3.0},
    "messages": {"messages": []},
    "n": {"n": 9},
    "top_logprobs": {"top_logprobs": 2},
    "max_tokens": {"extra_body": extra(max_new_tokens=8)},
    "stream_options": {"stream_options": {"include_usage": True}},
}
"""The field that is named -> a request that cannot be answered for its sake."""


@pytest.mark.parametrize("param", REFUSED)
def test_what_cannot_be_done_is_a_bad_request(client: OpenAI, param: str) -> None:
    for stream in (False, True)[: 1 if param == "stream_options" else 2]:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, stream=stream, **REFUSED[param])
        check_error(caught.value, 400, "invalid_request_error", param)


def check_error(error: openai.APIStatusError, status: int, kind: str, param: str | None = None) -> None:
    assert (error.status_code, error.type, error.param) == (status, kind, param)
    assert isinstance(error.body, dict)
    assert set(error.body) == {"message", "type", "param", "code"}
    assert error.body["message"]
    assert "Traceback" not in error.body["message"]


@pytest.mark.parametrize("name", ["commit", "feedback", "method", "cache"])
def test_a_rule_from_a_file_is_a_bad_request(client: OpenAI, name: str, tmp_path: Any) -> None:
    read = tmp_path / "read"
    (tmp_path / "rule.py").write_text(f"open({str(read)!r}, 'w').close()\ndef rule(a, b, c): return b")
    with pytest.raises(openai.BadRequestError, match="file"):
        ask(client, extra_body={"softdlm": {name: f"{tmp_path / 'rule.py'}:rule"}})
    assert not read.exists()


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    for call in (
        lambda: ask(client, model="gpt-4o"),
        lambda: go_on(client, model="gpt-4o", stream=True),
        lambda: client.models.retrieve("gpt-4o"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            call()
        check_error(caught.value, 404, "not_found_error", "model")
        assert caught.value.code == "model_not_found"


def test_only_those_with_a_key_are_answered() -> None:
    with running(keys=["one", "two"]) as url:
        for key in ("one", "two"):
            with client_of(url, key) as client:
                assert ask(client).choices[0].message.content == expected().text
        with client_of(url, "three") as client:
            for call in (ask, go_on, lambda client: client.models.list(), lambda client: client.models.retrieve(MODEL)):
                with pytest.raises(openai.AuthenticationError) as caught:
                    call(client)
                check_error(caught.value, 401, "authentication_error")
                assert caught.value.code == "invalid_api_key"


def test_a_full_server_says_when_to_come_again() -> None:
    """Its only place is held by a stream that nobody reads to its end; closing that one frees the place."""
    slow: dict[str, Any] = {"commit": "topn(1)", "max_new_tokens": 256, "early_finish": False}
    with running(Limits(max_concurrency=1, queue=0, max_new_tokens=256)) as url, client_of(url) as client:
        with ask(client, stream=True, max_tokens=openai.omit, extra_body={"softdlm": slow}) as stream:
            assert next(stream).choices[0].delta.role == "assistant"
            with pytest.raises(openai.RateLimitError) as caught:
                ask(client)
            check_error(caught.value, 429, "rate_limit_error")
            assert 1 <= int(caught.value.response.headers["Retry-After"]) <= 60
            assert caught.value.code == "queue_full"
        with client.with_options(max_retries=5) as patient:
            assert ask(patient).choices[0].message.content == expected().text
