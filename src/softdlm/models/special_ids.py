"""[MASK] and the ids that end a text: found in config.json and the tokenizer, and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softdlm.errors import CheckpointError, TokenizerError, UsageError
from softdlm.models.config import TOKEN_ID, TOKEN_IDS, check_fields, setting
from softdlm.models.family import Family
from softdlm.models.tokenizer import token_id


def find_mask_id(config: Mapping[str, Any], family: Family, tokenizer: Any) -> int:
    check_fields(config, {"mask_token_id": TOKEN_ID})
    stated = [config.get("mask_token_id"), mask_of(tokenizer, family), family.mask_id]
    found = next((value for value in stated if value is not None), None)
    if found is None:
        raise CheckpointError(
            "no mask token: the configuration has no mask_token_id, the tokenizer declares no mask_token and has no "
            f"{family.mask_token}: pass mask_id="
        )
    return found


def mask_of(tokenizer: Any, family: Family) -> int | None:
    """[MASK] as the tokenizer declares it, else the id of the token that the family calls so."""
    declared = getattr(tokenizer, "mask_token_id", None)
    return token_id(tokenizer, family.mask_token) if declared is None else declared


def find_eos_ids(config: Mapping[str, Any], family: Family, tokenizer: Any) -> tuple[int, ...]:
    """EOS, then the other tokens that end a text, as far as they are inside this checkpoint's vocabulary."""
    check_fields(config, dict.fromkeys(("eos_token_id", "pad_token_id"), TOKEN_IDS))
    stated = [config.get(key) for key in ("eos_token_id", "pad_token_id")]
    stated += [getattr(tokenizer, "eos_token_id", None), family.eos_id]
    eos = next((value for value in stated if value is not None), None)
    if eos is None:
        raise CheckpointError(
            "no EOS: neither the configuration (eos_token_id) nor the tokenizer has it: pass eos_ids="
        )
    more = more_ends(family, tokenizer, setting(config, "embedding_size", "vocab_size"))
    return tuple(dict.fromkeys([*(eos if isinstance(eos, list) else [eos]), *more]))


def more_ends(family: Family, tokenizer: Any, vocabulary: int) -> list[int]:
    """The ids of the family's tokens that end a turn, or fill the canvas after the text."""
    turn, published = family.end_of_turn
    names = (turn, *family.other_ends)
    ids = [published] if tokenizer is None else [token_id(tokenizer, name) for name in names]
    return [each for each in ids if each is not None and each < vocabulary]


def check_special_ids(tokenizer: Any, family: Family, mask_id: int, eos_ids: Sequence[int]) -> None:
    """Refuse a tokenizer whose [MASK] or EOS id differs from the checkpoint's: it would decode to nonsense."""
    if mask_id in eos_ids:  # the tokenizer of LLaDA-2's autoregressive parent has its end of turn there
        raise TokenizerError(
            f"id {mask_id} is both [MASK] and one of the EOS ids {list(eos_ids)}: pass mask_id= or eos_ids="
        )
    theirs = mask_of(tokenizer, family)
    if theirs is not None and theirs != mask_id:
        name = tokenizer.convert_ids_to_tokens(theirs)
        raise TokenizerError(f"{name} is {theirs} in the tokenizer but {mask_id} in the checkpoint: pass mask_id=")
    eos = None if tokenizer is None else tokenizer.eos_token_id
    if eos is not None and eos not in eos_ids:
        raise TokenizerError(f"the tokenizer's EOS id {eos} is not among the EOS ids {list(eos_ids)}: pass eos_ids=")


def check_vocabulary(mask_id: int, eos_ids: Sequence[int], vocabulary: int) -> None:
    for name, value in [("mask_id", mask_id), *(("eos_ids", end) for end in eos_ids)]:
        if not 0 <= value < vocabulary:
            raise UsageError(f"{name} {value} lies outside the vocabulary of {vocabulary}: pass {name}=")
