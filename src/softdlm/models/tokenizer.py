"""Tokenizers, loaded by transformers without remote code and checked against the checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softdlm.errors import TokenizerError
from softdlm.models.family import Family
from softdlm.records.files import temporary_folder

FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")


def load_tokenizer(folder: Path, files: Mapping[str, bytes], family: Family) -> Any:
    """The tokenizer of these files with a chat template; None if none of them is one (prompts are then ids).

    transformers is given a folder with copies: what it reads are the bytes that were checked and digested.
    """
    if not any(name in files for name in FILES):
        return None
    with temporary_folder() as copy:
        for name, data in files.items():
            (copy / name).write_bytes(data)
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
    return tokenizer


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


def token_id(tokenizer: Any, token: str) -> int | None:
    """The id of a special token; None, never the id of <unk>, if the tokenizer lacks it."""
    return None if tokenizer is None else tokenizer.get_vocab().get(token)


def check_special_ids(tokenizer: Any, family: Family, mask_id: int, eos_ids: tuple[int, ...]) -> None:
    """Refuse a tokenizer whose [MASK] or EOS id differs from the checkpoint's: it would decode to nonsense."""
    if mask_id in eos_ids:  # the tokenizer of LLaDA-2's autoregressive parent has its end of turn there
        raise TokenizerError(
            f"id {mask_id} is both [MASK] and one of the EOS ids {list(eos_ids)}: pass mask_id= or eos_ids="
        )
    theirs = token_id(tokenizer, family.mask_token)
    if theirs is not None and theirs != mask_id:
        raise TokenizerError(
            f"{family.mask_token} is {theirs} in the tokenizer but {mask_id} in the checkpoint: pass mask_id="
        )
    eos = None if tokenizer is None else tokenizer.eos_token_id
    if eos is not None and eos not in eos_ids:
        raise TokenizerError(f"the tokenizer's EOS id {eos} is not among the EOS ids {list(eos_ids)}: pass eos_ids=")
