"""The words of lm-eval's --model_args and of task files, checked once and turned into a Decoding.

What --model_args says goes before what the task says, which goes before the checkpoint's own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from softdlm import parsing
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.models.own_settings import OwnSettings
from softdlm.shortcuts import SHORTCUTS

LOADING = ("revision", "dtype", "device", "attention", "mask_id", "eos_ids", "max_length")
"""The settings that `load` takes."""
DEFAULT_NEW_TOKENS = 256
"""lm-eval's own, where neither the task nor the checkpoint names a length."""


@dataclass(frozen=True)
class Settings:
    """What --model_args may say: how the model is loaded, how answers are decoded, how the adapter works."""

    pretrained: str = "builtin"
    revision: str | None = None
    dtype: str | None = None
    device: str | None = None
    attention: str = "auto"
    mask_id: int | None = None
    eos_ids: tuple[int, ...] | None = None
    max_length: int | None = None
    mc_samples: int = 128
    """Random masks behind one log-likelihood."""
    check_greedy: bool = False
    """Whether a log-likelihood request also decodes, to say whether its continuation is the model's own."""
    batch_size: int = 1
    decoding: Decoding = field(default_factory=Decoding)

    @staticmethod
    def parse(arguments: Mapping[str, Any]) -> Settings:
        """From --model_args, whose values may be strings, numbers or lists."""
        given = {name: value for name, value in arguments.items() if name != "max_batch_size"}
        words = [*(each.name for each in fields(Decoding)), *SHORTCUTS]
        if unknown := given.keys() - {*_CONVERTERS, *words}:
            known = ", ".join((*_CONVERTERS, *words))
            raise UsageError(f"unknown model_args {', '.join(sorted(unknown))}; known are {known}")
        for name in ("feedback", "commit", "cache"):
            if str(given.get(name)).count("(") > str(given.get(name)).count(")"):
                raise UsageError(
                    f"{name} is {given[name]!r}: lm-eval splits --model_args at commas; write "
                    'feedback=slerp,k=2,lam=0.3, or give all arguments as JSON: {"feedback": "slerp(k=2, lam=0.3)"}'
                )
        own = {name: given[name] for name in _CONVERTERS if name in given and not parsing.is_none(given[name])}
        decoding = Decoding.of(**{name: given[name] for name in words if name in given})
        return Settings(**{name: _CONVERTERS[name](name, value) for name, value in own.items()}, decoding=decoding)

    def for_request(self, task: Mapping[str, Any], own: OwnSettings = OwnSettings()) -> Decoding:
        """The Decoding of a request: with what its task file says (generation_kwargs), then the checkpoint."""
        words = dict(task)
        stops = tuple(filter(None, words.pop("until", ())))
        said = Decoding.of(**words)
        filled = {each.name: getattr(said, each.name) for each in fields(said) if each.name != "commit"}
        settled = self.decoding.settled(filled, own, {"commit": "topn(1)", "max_new_tokens": DEFAULT_NEW_TOKENS})
        return replace(settled, stop=(*self.decoding.stop, *stops))


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text, not {value!r}: lm-eval reads a bare number as one, write it as JSON")
    return value


def _positive(name: str, value: Any) -> int:
    if str(value).startswith("auto"):
        raise UsageError(f"{name} {value!r} is not supported: give a number")
    return parsing.from_one(name, value)


_CONVERTERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(["pretrained", "revision", "dtype", "device", "attention"], _text),
    **dict.fromkeys(["max_length", "mc_samples", "batch_size"], _positive),
    "mask_id": parsing.whole,
    "eos_ids": parsing.token_ids,
    "check_greedy": parsing.flag,
}
