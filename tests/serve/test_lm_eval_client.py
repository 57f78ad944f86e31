"""lm-eval's `local-chat-completions` against the running server: the answers of the direct path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import BENCHMARKS
from tests.serve.server import NAMES, direct

ITEMS = 3
HOW: dict[str, Any] = {"tokens_per_step": 4, "block_length": 16, "feedback": "slerp"}


def questions() -> list[str]:
    rows = (BENCHMARKS / "gsm8k_test.jsonl").read_text().splitlines()[:ITEMS]
    return [json.loads(row)["question"] for row in rows]


@pytest.fixture
def client(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """lm-eval's model, as its command line makes it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from lm_eval.models.openai_completions import LocalChatCompletion

    made: Any = LocalChatCompletion
    return lambda many: made(
        base_url=f"{server}/v1/chat/completions", model=NAMES[0], num_concurrent=many, max_retries=1, timeout=60
    )


def instances(model: Any, **options: Any) -> list[Any]:
    from lm_eval.api.instance import Instance

    chats = [model.apply_chat_template([{"role": "user", "content": each}]) for each in questions()]
    return [
        Instance("generate_until", {}, (chat, {"max_gen_toks": 48, "do_sample": False, **options}), number)
        for number, chat in enumerate(chats)
    ]


@pytest.mark.parametrize("many", [1, 3])
def test_the_answers_are_those_of_the_direct_path(client: Any, many: int) -> None:
    model, until = client(many), ["Question:", "</s>", "<|im_end|>"]
    answers = model.generate_until(instances(model, until=until, softdlm=HOW), disable_tqdm=True)
    made = [direct(each, **HOW, max_new_tokens=48, stop=tuple(until), seed=1234, temperature=0) for each in questions()]
    assert answers == [each.text for each in made]
    assert len(set(answers)) == ITEMS
    assert all(answers)


def test_its_stops_are_kept(client: Any) -> None:
    whole = [direct(each, **HOW, max_new_tokens=48).text for each in questions()]
    model = client(1)
    answers = model.generate_until(instances(model, until=["=", "\n"], softdlm=HOW), disable_tqdm=True)
    assert answers == [each.partition("\n")[0].partition("=")[0] for each in whole]
    assert answers != whole


def test_without_a_decoding_the_models_own_is_used(client: Any) -> None:
    model = client(1)
    answers = model.generate_until(instances(model, until=["\n\n"]), disable_tqdm=True)
    assert answers == [direct(each, max_new_tokens=48, stop=("\n\n",)).text for each in questions()]
