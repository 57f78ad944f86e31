"""The built-in tokenizer: small, lossless, one token per word of the tasks, and made by this code."""

import subprocess
import sys
from importlib.resources import files
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from softdlm.tasks import TASKS, load_task, training_stream
from softdlm.tasks.either_or import figure1_item
from softdlm.tasks.pretokens import pieces
from softdlm.tasks.task import PROMPT_TOKENS, RESPONSE_TOKENS, TEMPLATE_TOKENS
from softdlm.train.tokenizer import MASK, SPECIALS, VOCABULARY

FOLDER = Path(str(files("softdlm"))) / "builtin"
TOKENIZER = AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=False)


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def chat(prompt: str) -> list[int]:
    messages = [{"role": "user", "content": prompt}]
    return TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


def test_size_and_special_tokens():
    assert len(TOKENIZER) <= VOCABULARY
    assert TOKENIZER.eos_token == TOKENIZER.pad_token == "<|endoftext|>"
    assert TOKENIZER.mask_token == MASK
    for text in SPECIALS:
        assert len(encode(text)) == 1


@settings(max_examples=400)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_unchanged(text):
    assert TOKENIZER.decode(encode(text)) == text


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n", "\r\n\t", "  two  spaces ", "Ünïcödé 日本 🎈", "a_b'c\u00a0d", "\x00"]
)
def test_awkward_text_comes_back_unchanged(text):
    assert TOKENIZER.decode(encode(text)) == text


@given(st.text("0123456789 ,.-+=x"))
def test_digits_stand_alone(text):
    tokens = [TOKENIZER.decode([number]) for number in encode(text)]
    assert all(len(token) == 1 for token in tokens if any(c.isdigit() for c in token))


def test_no_entry_holds_a_digit_and_something_else():
    entries = [entry for entry in TOKENIZER.get_vocab() if set(entry) & set("0123456789")]
    assert sorted(entries) == list("0123456789")


def test_alternatives_take_one_token_a_word():
    for item in (*load_task("either-or"), figure1_item()):
        for name in (item.meta["a"], item.meta["b"]):
            assert len(encode(f" {name}")) == len(name.split())
            assert encode(f"{item.prompt} {name}") == encode(item.prompt) + encode(f" {name}")


@pytest.mark.parametrize("name", TASKS)
def test_every_piece_of_a_task_is_one_token_and_fits(name):
    held_out = [(item.prompt, item.target) for item in load_task(name)]
    pairs = [*islice(training_stream(name, seed="lengths"), 400), *held_out]
    limits = (PROMPT_TOKENS - TEMPLATE_TOKENS, RESPONSE_TOKENS - 1)
    for limit, texts in zip(limits, zip(*pairs, strict=True), strict=True):
        for text, ids in zip(texts, TOKENIZER(list(texts), add_special_tokens=False)["input_ids"], strict=True):
            assert len(ids) == len(pieces(text)) <= limit, text


def test_template_costs_eight_tokens_and_changes_no_word():
    prompt = "Ava has 3 pens."
    assert len(chat(prompt)) == len(encode(prompt)) + TEMPLATE_TOKENS
    text = TOKENIZER.decode(chat(prompt))
    assert text == (
        "<|startoftext|><|start_header_id|>user<|end_header_id|>Ava has 3 pens.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>"
    )


def test_template_carries_several_turns():
    turns = [("system", "Be brief."), ("user", "Hi"), ("assistant", " New York"), ("user", "Go")]
    messages = [{"role": role, "content": content} for role, content in turns]
    ids = TOKENIZER.apply_chat_template(messages, return_dict=False)
    assert len(ids) == 1 + sum(4 + len(encode(content)) for _, content in turns)


def test_the_shipped_files_are_what_the_code_builds(tmp_path):
    """In a process of its own, where no test hook slows the generators down."""
    code = "import sys, pathlib; from softdlm.train.tokenizer import build; build(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
