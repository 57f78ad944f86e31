"""The words of --model_args and of task files, checked once and turned into rules.

What --model_args says goes before what the task says, which goes before the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from softdlm.cache import CacheKind, check_cache
from softdlm.commit import CommitRule, Rank, Steps, TopN
from softdlm.decode import DecodeOptions
from softdlm.errors import UsageError
from softdlm.evaluate.cell import EosWord, eos_options
from softdlm.feedback import FeedbackRule
from softdlm.methods import commit_rule, feedback_rule
from softdlm.models.denoiser import Denoiser
from softdlm.predict import Sampling

Schedule = Literal["top", "even", "eps"]
"""How a number of tokens per step is kept: exactly, as LLaDA spreads it, or as Dream does."""
DEFAULT_NEW_TOKENS = 256
"""lm-eval's own, for a task that does not say."""
_NO_DRAW: dict[str, Any] = {"temperature": 0.0, "top_p": None, "top_k": None}


@dataclass(frozen=True)
class Settings:
    """What --model_args may say; None leaves it to the task, then to the default."""

    pretrained: str = "builtin"
    revision: str | None = None
    dtype: str | None = None
    device: str | None = None
    attention: str = "auto"
    mask_id: int | None = None
    eos_ids: tuple[int, ...] | None = None
    max_length: int | None = None
    method: str = "slerp"
    k: int = 3
    lam: float = 0.3
    tokens_per_step: int | None = None
    threshold: float | None = None
    entropy_bound: float | None = None
    factor: float | None = None
    ranking: str | None = None
    schedule: str | None = None
    block_length: int | None = None
    cache: CacheKind | None = None
    refresh: int | None = None
    renew: int = 1
    max_new_tokens: int | None = None
    eos: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int = 0
    mc_samples: int = 128
    """Draws behind one log-likelihood."""
    check_greedy: bool = False
    """Whether a log-likelihood request also decodes, to say whether its continuation is the model's own."""
    batch_size: int = 1

    @staticmethod
    def parse(arguments: Mapping[str, Any]) -> Settings:
        """From --model_args, whose values may be strings, numbers or lists."""
        given = {name: value for name, value in arguments.items() if name != "max_batch_size"}
        unknown = given.keys() - _CONVERTERS.keys()
        if unknown:
            raise UsageError(f"unknown model_args {', '.join(sorted(unknown))}; known are {', '.join(_CONVERTERS)}")
        values = {name: _CONVERTERS[name](name, value) for name, value in given.items() if not _is_none(value)}
        settings = Settings(**values)
        settings.for_request({})  # what the rules refuse is refused now
        return settings

    def for_request(self, task: Mapping[str, Any]) -> Decoding:
        """With what a task file says (its generation_kwargs)."""
        limit = self._either("max_new_tokens", task, DEFAULT_NEW_TOKENS)
        if limit < 1:
            raise UsageError(f"max_new_tokens must be at least 1, not {limit}")
        drawn = {name: self._either(name, task, none) for name, none in _NO_DRAW.items()}
        Sampling(mask_id=0, **drawn)  # refuses what cannot be meant
        check_cache(self.cache, self.refresh, self.renew)
        return Decoding(
            feedback_rule(self.method, self.k, self.lam),
            self._commit(task, limit),
            self.block_length,
            limit,
            _choice(EosWord)("eos", self._either("eos", task, "allow")),
            seed=self.seed,
            cache=self.cache,
            refresh=self.refresh,
            renew=self.renew,
            **drawn,
        )

    def _either(self, name: str, task: Mapping[str, Any], default: Any) -> Any:
        own = getattr(self, name)
        return own if own is not None else task.get(name, default)

    def _commit(self, task: Mapping[str, Any], limit: int) -> CommitRule:
        adaptive = [name for name in ("threshold", "entropy_bound", "factor") if getattr(self, name) is not None]
        if not adaptive:
            return self._fixed_rate(task, limit)
        own = [name for name in ("schedule", "ranking") if getattr(self, name) is not None]
        if own and (adaptive, own) != (["entropy_bound"], ["ranking"]):
            raise UsageError(
                f"{own[0]} says how tokens_per_step is kept and means nothing with {adaptive[0]}: leave it out"
            )
        rank: Any = self.ranking
        return commit_rule(self.tokens_per_step, self.threshold, self.entropy_bound, self.factor, rank=rank)

    def _fixed_rate(self, task: Mapping[str, Any], limit: int) -> CommitRule:
        n = 1 if self.tokens_per_step is None else self.tokens_per_step
        rank = _choice(Rank)("ranking", self._either("ranking", task, "confidence"))
        schedule = _choice(Schedule)("schedule", self._either("schedule", task, "top"))
        exact = TopN(n, rank)
        if schedule == "top":
            return exact
        return Steps(-(-(self.block_length or limit) // exact.n), schedule, rank=rank)


@dataclass(frozen=True)
class Decoding:
    """How one request is decoded."""

    feedback: FeedbackRule
    commit: CommitRule
    block_length: int | None
    max_new_tokens: int
    eos: EosWord
    temperature: float
    top_p: float | None
    top_k: int | None
    seed: int
    cache: CacheKind | None = None
    refresh: int | None = None
    renew: int = 1

    def options(self, model: Denoiser) -> DecodeOptions:
        return {
            "feedback": self.feedback,
            "commit": self.commit,
            "block_length": self.block_length,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "seed": self.seed,
            "cache": self.cache,
            "refresh": self.refresh,
            "renew": self.renew,
            **eos_options(self.eos, model.eos_ids),
        }


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.lower() in ("none", "null", ""))


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text, not {value!r}: lm-eval reads a bare number as one, write it as JSON")
    return value


def _integer(name: str, value: Any) -> int:
    number = _number(name, value)
    if number != int(number):
        raise UsageError(f"{name} must be a whole number, not {value!r}")
    return int(number)


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must be a number, not {value!r}") from error


def _flag(name: str, value: Any) -> bool:
    words = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in words:
        raise UsageError(f"{name} must be true or false, not {value!r}")
    return words[str(value).lower()]


def _ids(name: str, value: Any) -> tuple[int, ...]:
    """Token ids as a list, or as text with semicolons between, because lm-eval splits at commas."""
    parts = value.strip("[]").replace(",", ";").split(";") if isinstance(value, str) else value
    parts = [parts] if isinstance(parts, int | float) else parts
    return tuple(_integer(name, part) for part in parts)


def _choice(allowed: Any) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        if value not in get_args(allowed):
            raise UsageError(f"{name} must be one of {', '.join(get_args(allowed))}, not {value!r}")
        return value

    return check


def _positive(name: str, value: Any) -> int:
    if str(value).startswith("auto"):
        raise UsageError(f"{name} {value!r} is not supported: give a number")
    number = _integer(name, value)
    if number < 1:
        raise UsageError(f"{name} must be at least 1, not {number}")
    return number


_CONVERTERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(["pretrained", "revision", "dtype", "device", "attention", "method"], _text),
    **dict.fromkeys(["mask_id", "k", "seed", "top_k", "tokens_per_step"], _integer),
    **dict.fromkeys(["max_length", "block_length", "refresh", "renew"], _positive),
    **dict.fromkeys(["max_new_tokens", "mc_samples", "batch_size"], _positive),
    **dict.fromkeys(["lam", "threshold", "entropy_bound", "factor", "temperature", "top_p"], _number),
    "cache": _choice(CacheKind),
    "eos_ids": _ids,
    "eos": _choice(EosWord),
    "ranking": _choice(Rank),
    "schedule": _choice(Schedule),
    "check_greedy": _flag,
}
