"""The words of lm-eval's --model_args and of task files, checked once and turned into a Decoding.

What --model_args says goes before the recipe, then come the task's file and the checkpoint's own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from softdlm import parsing
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.evaluate.cell import read_own
from softdlm.evaluate.paper import Recipe, benchmark
from softdlm.evaluate.readings import DEFAULT, READINGS, Readings
from softdlm.models.own_settings import OwnSettings
from softdlm.shortcuts import SHORTCUTS

LOADING = ("revision", "dtype", "device", "attention", "mask_id", "eos_ids", "max_length", "settings")
"""The settings that `load` takes."""
DEFAULT_NEW_TOKENS = 256
"""lm-eval's own, where neither the task nor the checkpoint names a length."""
_OF_ANSWERS = tuple(each.name for each in READINGS.values() if each.part == "answers")
"""Readings that --model_args may give."""
_ELSEWHERE = {
    "math500": "give --metadata math500=math-verify or math500=exact-match",
    "turns": "choose the task, such as softdlm_gsm8k or softdlm_gsm8k_turns",
}
_READ = ("temperature", "top_p", "rank")
"""What our tasks' files say for the default reading of Dream."""


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
    settings: OwnSettings | None = None
    """Decoding settings instead of the checkpoint's own, out of a file that `softdlm tune` wrote."""
    mc_samples: int = 128
    """Random masks behind one log-likelihood."""
    check_greedy: bool = False
    """Whether a log-likelihood request also decodes, to say whether its continuation is the model's own."""
    batch_size: int = 1
    recipe: str | None = None
    """`paper`: k, lambda, EOS policy, lengths and Dream's sampling by the model's family and each request's task."""
    readings: Readings = DEFAULT
    """How the paper is read, with the recipe."""
    decoding: Decoding = field(default_factory=Decoding)

    @staticmethod
    def parse(arguments: Mapping[str, Any]) -> Settings:
        """From --model_args, whose values may be strings, numbers or lists."""
        given = {name: value for name, value in arguments.items() if name != "max_batch_size"}
        words = [*(each.name for each in fields(Decoding)), *SHORTCUTS]
        if unknown := given.keys() - {*_CONVERTERS, *words, *READINGS}:
            known = ", ".join((*_CONVERTERS, *words, *_OF_ANSWERS))
            raise UsageError(f"unknown model_args {', '.join(sorted(unknown))}; known are {known}")
        for name in ("feedback", "commit", "cache"):
            if str(given.get(name)).count("(") > str(given.get(name)).count(")"):
                raise UsageError(
                    f"{name} is {given[name]!r}: lm-eval splits --model_args at commas; write "
                    'feedback=slerp,k=2,lam=0.3, or give all arguments as JSON: {"feedback": "slerp(k=2, lam=0.3)"}'
                )
        own = {name: given[name] for name in _CONVERTERS if name in given and not parsing.is_none(given[name])}
        decoding = Decoding.of(**{name: given[name] for name in words if name in given})
        made = {name: _CONVERTERS[name](name, value) for name, value in own.items()}
        return Settings(**made, readings=_readings(given), decoding=decoding)

    def recipe_for(self, family: str) -> Recipe:
        """The recipe for a model family; a reading that is not for it is refused."""
        self.readings.check_used([each.name for each in READINGS.values() if each.is_for(family)])
        return Recipe(family, self.readings, used=self.recipe is not None)

    def for_request(
        self, said: Mapping[str, Any], own: OwnSettings = OwnSettings(), family: str = "", task: str = ""
    ) -> Decoding:
        """The Decoding of a request: with the recipe, what its task's file says (generation_kwargs), the checkpoint.

        `task` is the name of one of our tasks, such as gsm8k or gsm8k-dream. Their files hold the default reading of
        how tokens are drawn, which a recipe replaces.
        """
        recipe, words = self.recipe_for(family), dict(said)
        stops = tuple(filter(None, words.pop("until", ())))
        filed = Decoding.of(**words)
        left_out = ("commit", *(_READ if recipe.used and benchmark(task) else ()))
        filled = {each.name: getattr(filed, each.name) for each in fields(filed) if each.name not in left_out}
        settled = recipe.settled(self.decoding, task, [filled, own, {"max_new_tokens": DEFAULT_NEW_TOKENS}])
        return replace(settled, stop=(*self.decoding.stop, *stops))


def _readings(given: Mapping[str, Any]) -> Readings:
    """The readings among --model_args: those that decide how answers are decoded, with the recipe."""
    said = {name: value for name, value in given.items() if name in READINGS}
    for name in said:
        if name not in _OF_ANSWERS:
            where = _ELSEWHERE.get(name, f"it is for {READINGS[name].where}")
            raise UsageError(f"the reading {name} is none of the model_args: {where}")
        if parsing.is_none(given.get("recipe")):
            raise UsageError(f"the reading {name} needs the recipe: add recipe=paper to --model_args")
    return Readings.of(said)


def _recipe(name: str, value: Any) -> str:
    if value != "paper":
        raise UsageError(f"unknown {name} {value!r}: the only one is paper")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text, not {value!r}: lm-eval reads a bare number as one, write it as JSON")
    return value


def _own(name: str, value: Any) -> OwnSettings:
    return read_own(_text(name, value))


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
    "recipe": _recipe,
    "settings": _own,
}
