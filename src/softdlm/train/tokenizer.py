"""The built-in tokenizer: byte-level BPE with the words of the built-in tasks as its vocabulary.

Text is split into pretokens (softdlm.tasks.pretokens). A pretoken in the vocabulary is one token, any other is spelled
with merges and bytes, so every text can be encoded and decoded without loss. The vocabulary depends on the task
generators only: building it twice gives the same files.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from softdlm.models.chat_templates import chat_template
from softdlm.records.files import write_text
from softdlm.tasks import TASKS, load_task, training_stream
from softdlm.tasks.either_or import figure1_item
from softdlm.tasks.pretokens import PATTERN, pieces

VOCABULARY = 2048
START, END, TURN = "<|startoftext|>", "<|endoftext|>", "<|eot_id|>"
OPEN_ROLE, CLOSE_ROLE, MASK = "<|start_header_id|>", "<|end_header_id|>", "<|mdm_mask|>"
SPECIALS = (START, END, TURN, OPEN_ROLE, CLOSE_ROLE, MASK)
ROLES = ("user", "assistant", "system")
MERGES = 256
"""Entries for spelling words that no task uses."""
SAMPLES = 25_000
"""Training items per task from which words are collected; every word of the tasks occurs in many of them."""

CHAT_TEMPLATE = chat_template("builtin")
"""LLaDA's template without its blank lines. Content is not trimmed, because spaces in it can matter."""


def build(folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    size = tokenizer.get_vocab_size()
    if size > VOCABULARY:
        raise ValueError(f"the vocabulary has {size} entries, more than {VOCABULARY}: use fewer words in the tasks")
    write_text(folder / "tokenizer.json", tokenizer.to_str(pretty=True))
    write_text(folder / "tokenizer_config.json", json.dumps(_config(), indent=2, ensure_ascii=False) + "\n")


def build_tokenizer() -> Tokenizer:
    words = task_words()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    whole = [word for word in map(to_bytes, words) if len(word) > 1]
    merges = _merges(words)
    entries = dict.fromkeys([*SPECIALS, *alphabet, *("".join(merge) for merge in merges), *whole])
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = _pre_tokenizer()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIALS])
    return tokenizer


def task_words() -> list[str]:
    """Every pretoken of the tasks and the roles; sorted, so that ids do not depend on frequencies."""
    return sorted({piece for text in _texts() for piece in pieces(text)} | set(ROLES))


def _texts() -> Iterator[str]:
    for name in TASKS:
        for prompt, response in islice(training_stream(name, seed="vocabulary"), SAMPLES):
            yield prompt
            yield response
    for item in (*load_task("either-or"), figure1_item()):
        yield f"{item.prompt} {item.meta['a']} {item.meta['b']}"


def to_bytes(piece: str) -> str:
    """The pretoken in the alphabet of byte-level BPE, where a space is written as \u0120 (G with a dot)."""
    ((text, _),) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(piece)
    return text


def _merges(words: list[str]) -> list[tuple[str, str]]:
    """Frequent byte pairs of the words, so that other words need fewer tokens than bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer()  # pyright: ignore[reportAttributeAccessIssue]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + MERGES, initial_alphabet=alphabet, show_progress=False, max_token_length=8
    )
    tokenizer.train_from_iterator(words, trainer)
    return [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


def _pre_tokenizer() -> pre_tokenizers.Sequence:
    """Splits text by PATTERN, which makes every digit a pretoken of its own."""
    split = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": START,
        "eos_token": END,
        "pad_token": END,
        "mask_token": MASK,
        "additional_special_tokens": [TURN, OPEN_ROLE, CLOSE_ROLE],
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


if __name__ == "__main__":
    build(Path(__file__).parent.parent / "builtin")
