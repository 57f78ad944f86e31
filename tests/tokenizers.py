"""Tokenizers in the layout of each family's checkpoint, small enough for the tiny vocabularies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.conftest import DATA

QWEN = {"<|endoftext|>": 193, "<|im_start|>": 194, "<|im_end|>": 195, "<think>": 196, "</think>": 197, "<|mask|>": 201}
# special token -> id, inside the tiny checkpoints' vocabularies
SPECIAL: dict[str, dict[str, int]] = {
    "llada": {
        "<|startoftext|>": 180,
        "<|endoftext|>": 181,
        "<|mdm_mask|>": 187,
        "<|start_header_id|>": 188,
        "<|end_header_id|>": 189,
        "<|eot_id|>": 190,
    },
    "dream": {"<|endoftext|>": 193, "<|im_start|>": 194, "<|im_end|>": 195, "<|mask|>": 201},
    "llada2": {
        "<|startoftext|>": 151,
        "<|endoftext|>": 152,
        "<role>": 153,
        "</role>": 154,
        "<|mask|>": 155,
        "<|role_end|>": 156,
    },
    "a2d-qwen3": QWEN,
    "a2d-qwen2": QWEN,
    "a2d-llama": {
        "<|begin_of_text|>": 190,
        "<|end_of_text|>": 191,
        "<|start_header_id|>": 192,
        "<|end_header_id|>": 193,
        "<|eot_id|>": 194,
        "<|mask|>": 201,
    },
    "modernbert": {"[UNK]": 190, "[CLS]": 191, "[SEP]": 192, "[PAD]": 193, "[MASK]": 194},
}
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'()+-=#ĠĊ"


def vocabulary(family: str) -> dict[str, int]:
    """Bytes that our texts use, two halves of a two-byte letter (é is Ã ©), one merge, and the special tokens."""
    words = {letter: index + 3 for index, letter in enumerate(LETTERS)}
    words |= {"Ã": 100, "©": 101, "th": 102}
    unused = set(range(max(SPECIAL[family].values()))) - {*words.values(), *SPECIAL[family].values()}
    return words | SPECIAL[family] | {f"<unused{index}>": index for index in unused}


def write_fast(folder: Path, family: str, **config: Any) -> None:
    """tokenizer.json as LLaDA and LLaDA-2 ship it."""
    special = SPECIAL[family]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary(family), merges=[("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
    }
    if "<|startoftext|>" in special:
        settings["bos_token"] = "<|startoftext|>"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | config))


def write_slow(folder: Path, family: str) -> None:
    """vocab.json and merges.txt with a class of the checkpoint's own, as Dream ships it."""
    special = SPECIAL[family]
    first = min(special.values())
    words = vocabulary(family)
    (folder / "vocab.json").write_text(json.dumps({word: index for word, index in words.items() if index < first}))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\n")
    flags = dict.fromkeys(["lstrip", "rstrip", "normalized", "single_word"], False) | {"special": True}
    added = {str(index): {"content": word, **flags} for word, index in words.items() if index >= first}
    settings = {
        "tokenizer_class": "DreamTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "added_tokens_decoder": added,
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def checkpoint(folder: Path, family: str, **config: Any) -> Path:
    """The tiny checkpoint of a family with a tokenizer beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(DATA / family / name, folder / name)
    write_slow(folder, family) if family == "dream" else write_fast(folder, family, **config)
    return folder
