"""Tokenizers, loaded by transformers without remote code and checked against the checkpoint."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softdlm.errors import TokenizerError
from softdlm.models.family import Family
from softdlm.models.folder import CONFIG
from softdlm.records.files import parse_json, temporary_folder

_ROLE = re.compile(r"^\s*(user|assistant|system|human)\s*(\n|$)", re.IGNORECASE)
FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")


def load_tokenizer(folder: Path, files: Mapping[str, bytes], family: Family) -> Any:
    """The tokenizer of these files with a chat template; None if none of them is one (prompts are then ids).

    transformers is given a folder with copies: what it reads are the bytes that were checked and digested.
    """
    if not any(name in files for name in FILES):
        return None
    with temporary_folder() as copy:
        for name, data in files.items():
            (copy / name).write_bytes(_about_tokenizer(data) if name == CONFIG else data)
        try:
            tokenizer = _read(str(copy), family)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise  # all else is its verdict on the files: its Rust part raises what is no Exception
            reason = " ".join(str(error).split()).replace(str(copy), str(folder))[:300]
            raise TokenizerError(f"the tokenizer in {folder} cannot be loaded: {reason}") from error
    tokenizer.name_or_path = str(folder)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = family.chat_template
    elif isinstance(tokenizer.chat_template, str):
        tokenizer.chat_template = family.template_start + tokenizer.chat_template
    return tokenizer


def _about_tokenizer(config: bytes) -> bytes:
    """What a tokenizer is chosen by: transformers cannot read all of the config.json of a family that it lacks."""
    values = parse_json(config)
    return json.dumps({key: values[key] for key in ("model_type", "tokenizer_class") if key in values}).encode()


def _read(copy: str, family: Family) -> Any:
    import transformers

    loader = getattr(transformers, family.tokenizer_class)
    # left unset, trust_remote_code prompts on the terminal and blocks
    extra = {"trust_remote_code": False} if family.tokenizer_class == "AutoTokenizer" else {}
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # it would warn about an unknown model_type
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return loader.from_pretrained(copy, **extra)
    finally:
        transformers.logging.set_verbosity(verbosity)


def words_of(tokenizer: Any, ids: Sequence[int]) -> str:
    """What people said in a prompt: its text without special tokens and without the names of roles between them."""
    runs: list[list[int]] = [[]]
    for token in ids:
        if tokenizer.decode([token], skip_special_tokens=True) or not tokenizer.decode([token]):
            runs[-1].append(token)
        else:
            runs.append([])
    texts = [_ROLE.sub("", tokenizer.decode(run)).strip() for run in runs]
    return "\n\n".join(filter(None, texts))


def token_id(tokenizer: Any, token: str) -> int | None:
    """The id of a special token; None, never the id of <unk>, if the tokenizer lacks it."""
    return None if tokenizer is None else tokenizer.get_vocab().get(token)
