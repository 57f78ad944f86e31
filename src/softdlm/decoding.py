"""Decoding: one frozen value that says how an answer is decoded.

It checks itself, records itself as JSON and reads itself back. A field that is None was left out: `settled` fills it
from the checkpoint's own settings and then from DEFAULTS, the same way at every entry point. How passes are run
(engine, batch size, dtype, device) is no part of it and never changes a token beyond rounding.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast

from softdlm import parsing, registry, rival_commit, rival_feedback, wrapped_commit, wrapped_feedback  # noqa: F401
from softdlm.blocks import check_block_length
from softdlm.cache import CachePolicy
from softdlm.commit import CommitRule, Rank, TopN
from softdlm.errors import UsageError
from softdlm.feedback import FeedbackRule, Mask
from softdlm.models.denoiser import Denoiser
from softdlm.models.own_settings import OwnSettings
from softdlm.predict import Confidence, Sampling
from softdlm.records.canonical import canonical
from softdlm.rule_files import source_digest
from softdlm.shortcuts import SHORTCUTS, expand

EosPolicy = Literal["allow", "last", "forbid", "forbid-first"]
"""EOS ids as a whole, or `forbid-first`: EOS itself is forbidden, end of turn allowed (the paper's HumanEval)."""
EarlyFinish = bool | Literal["block"]
DEFAULTS: Mapping[str, Any] = {
    "commit": TopN(1),
    "feedback": Mask(),
    "max_new_tokens": 128,
    "eos": "allow",
    "temperature": 0.0,
    "confidence": "tempered",
    "last_candidates": True,
    "seed": 0,
    "early_finish": True,
    "candidates": 3,
}
"""What a field becomes that neither the user nor the checkpoint names."""
PARAMETERS = ("k", "lam", "rank")
"""Fields that become parameters of a spelled rule; a settled Decoding has them inside its rules."""
_PROBE = {"k": 10**6, "lam": 0.123456789, "rank": "margin"}
"""Unlikely parameters: a spelling whose rule takes none of them leaves nothing to fill."""
PER_ROW = ("max_new_tokens", "seed", "stop")
"""Fields in which requests that share passes may differ."""
UNRECORDED_DEFAULTS = ("confidence", "last_candidates")
"""Fields that a record leaves out at their defaults: it stays the record of results made before they existed."""
NOT_IN_RECORD = ("early_finish", "candidates", "stop")
"""Fields that cannot change the tokens of an answer, or that a task records by itself."""


@dataclass(frozen=True)
class Decoding:
    """How an answer is decoded. None: left out, to be filled from the checkpoint's own settings, then from DEFAULTS.

    Rules may be given as values or spelled: `Slerp(k=3, lam=0.3)` or "slerp(k=3, lam=0.3)". A spelled rule without a
    strength takes `k` and `lam`, then the checkpoint's own.
    """

    commit: CommitRule | str | None = None
    """Which open positions harden in a pass; one token a step by default."""
    feedback: FeedbackRule | str | None = None
    """What an open position is fed as in the next pass; [MASK] by default, which is vanilla decoding."""
    k: int | None = None
    """Candidates in a soft token, for a spelled feedback rule that leaves it out."""
    lam: float | None = None
    """Interpolation strength, for a spelled feedback rule that leaves it out."""
    rank: Rank | None = None
    """The order of commits (confidence, margin or entropy), for a spelled commit rule that leaves it out."""
    block_length: int | None = None
    """Blocks are closed from left to right; None is one block over the whole canvas (the paper's setting)."""
    cache: CachePolicy | str | None = None
    """`prefix` or `dual`: reuse keys and values outside the block; None computes everything in every pass."""
    max_new_tokens: int | None = None
    """Length of the answer's canvas."""
    eos: EosPolicy | None = None
    """Whether EOS ids may be predicted: allow, last (they commit last), forbid, or forbid-first."""
    forbid: tuple[int, ...] = ()
    """Token ids that are never predicted and never candidates."""
    last: tuple[int, ...] = ()
    """Token ids that may be predicted but commit last."""
    temperature: float | None = None
    """0 is greedy."""
    top_p: float | None = None
    """Nucleus sampling."""
    top_k: int | None = None
    """Sampling among the k most likely tokens."""
    min_p: float | None = None
    """Sampling among tokens that are at least this many times as likely as the likeliest."""
    confidence: Confidence | None = None
    """What ranks positions: the distribution that tokens are drawn from (tempered), or the model's own (untempered)."""
    last_candidates: bool | None = None
    """Whether ids that commit last, such as EOS with eos="last", may be candidates of feedback; they may by default."""
    seed: int | None = None
    """Random seed for sampling; draws depend on (seed, request, pass, position) only."""
    stop: tuple[str, ...] = ()
    """The text ends before the first of these strings."""
    early_finish: EarlyFinish | None = None
    """Stop once nothing is open before the first EOS; "block" looks only when a block closes (LLaDA-2's reference)."""
    candidates: int | None = None
    """Candidates kept in each Step, at least as many as the feedback rule needs."""

    @staticmethod
    def of(**words: Any) -> Decoding:
        """From fields and the short words for them: method, tokens_per_step, threshold, entropy_bound, factor,
        refresh and renew. Numbers may be given as text; None and "none" leave a field out.
        """
        known = [each.name for each in fields(Decoding)]
        if unknown := words.keys() - {*known, *SHORTCUTS}:
            raise UsageError(
                f"unknown decoding field {', '.join(sorted(unknown))}; known are {', '.join((*known, *SHORTCUTS))}"
            )
        given = {name: _converted(name, value) for name, value in words.items() if not parsing.is_none(value)}
        return Decoding(**expand(given))

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                object.__setattr__(self, each.name, _converted(each.name, value))
        check_block_length(self.block_length)
        Sampling(0, **self.sampling)  # checks them
        for kind in ("commit", "feedback"):
            self._check_rule(kind, getattr(self, kind))

    def _check_rule(self, kind: Literal["commit", "feedback"], rule: Any) -> None:
        """A spelled rule that leaves nothing to fill becomes a value at once."""
        if isinstance(rule, str):
            made = registry.build(kind, rule)
            if registry.build(kind, rule, asked=_PROBE) == made:
                object.__setattr__(self, kind, made)
        elif rule is not None and not callable(rule):
            raise UsageError(f"{kind} must be a rule or its spelling, not {rule!r}")
        elif kind == "feedback" and rule is not None and not isinstance(rule, FeedbackRule):
            raise UsageError(f"the feedback rule {rule!r} must say how many candidates it needs: give it a k")

    def settled(self, *sources: Mapping[str, Any] | OwnSettings) -> Decoding:
        """Every field filled, from the first source that names it; spelled rules become values."""
        named = [asdict(each) if isinstance(each, OwnSettings) else each for each in sources]
        found = ChainMap(*({n: v for n, v in each.items() if v is not None} for each in named), dict(DEFAULTS))
        left_out = [each.name for each in fields(self) if getattr(self, each.name) is None]
        filled = replace(self, **{n: found[n] for n in left_out if n in found and n not in PARAMETERS})
        fill = {name: found.get(name) for name in PARAMETERS}
        commit = filled._built("commit", {"rank": self.rank}, fill)
        feedback = filled._built("feedback", {"k": self.k, "lam": self.lam}, fill)
        return replace(filled, commit=commit, feedback=feedback, k=None, lam=None, rank=None)

    def _built(
        self, kind: Literal["commit", "feedback"], asked: Mapping[str, Any], fill: Mapping[str, Any]
    ) -> CommitRule | FeedbackRule:
        """The rule as a value, with the parameters that were asked for, else those that a source has."""
        rule = getattr(self, kind)
        asked = {name: value for name, value in asked.items() if value is not None}
        made = registry.build(kind, rule, fill, asked) if isinstance(rule, str) else rule
        for name, value in asked.items():
            if all(getattr(each, name, None) != value for each in registry.inside(made)):
                raise UsageError(f"{name} {value} has no effect on the {kind} rule {registry.spell(made)}: drop it")
        return made

    @property
    def cohort(self) -> tuple[Any, ...]:
        """What two requests must share to take part in the same passes: everything but seed, lengths and stops."""
        return tuple(getattr(self, each.name) for each in fields(self) if each.name not in PER_ROW)

    @property
    def sampling(self) -> dict[str, Any]:
        """The fields that say how a token is drawn."""
        shared = {each.name for each in fields(Sampling)} & {each.name for each in fields(self)}
        named = shared - {*PARAMETERS, "forbid", "last"}
        return {name: value for name in named if (value := getattr(self, name)) is not None}

    @property
    def rules(self) -> tuple[CommitRule, FeedbackRule]:
        """The rules of a settled Decoding."""
        for rule in (self.commit, self.feedback):
            if rule is None or isinstance(rule, str):
                raise UsageError("this Decoding is not settled: call settled() to fill what was left out")
        return cast("tuple[CommitRule, FeedbackRule]", (self.commit, self.feedback))

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` reads back; rules are spelled."""
        return {
            each.name: registry.spell(value, full=True) if _is_rule(value) else _plain(value)
            for each in fields(self)
            if (value := getattr(self, each.name)) not in (None, ())
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Decoding:
        if not isinstance(values, Mapping):
            raise UsageError(f"a Decoding is an object with fields such as commit and feedback, not {values!r}")
        return Decoding.of(**values)

    def record(self) -> dict[str, Any]:
        """What a result's protocol holds: all that can change a token, and a digest of the file of a user's rule."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in NOT_IN_RECORD}
        written = {
            name: registry.spell(value) if _is_rule(value) else value
            for name, value in values.items()
            if value not in (None, ()) and not (name in UNRECORDED_DEFAULTS and value == DEFAULTS[name])
        }
        for kind in ("commit", "feedback"):
            rule = getattr(self, kind)
            rule = registry.build(kind, rule) if isinstance(rule, str) else rule
            if rule is not None and (source := source_digest(rule)) is not None:
                written |= {kind: _without_folder(written[kind]), f"{kind}_source": source}
        return canonical(written)

    def token_policy(self, model: Denoiser) -> dict[str, tuple[int, ...]]:
        """The ids that are forbidden and those that commit last, EOS ids included."""
        forbidden = {"forbid": model.eos_ids, "forbid-first": model.eos_ids[:1]}.get(self.eos or "allow", ())
        last = model.eos_ids if self.eos == "last" else ()
        found = {"forbid": _token_ids(model, self.forbid, forbidden), "last": _token_ids(model, self.last, last)}
        if len({model.mask_id, *found["forbid"]}) >= len(model.embedding):
            raise UsageError("every token of the vocabulary is forbidden: leave one")
        return found


def settle(
    model: Denoiser, decoding: Decoding | None, words: Mapping[str, Any], *sources: Mapping[str, Any]
) -> Decoding:
    """The Decoding of a call that may give one, or fields of one, or neither.

    It is filled from `sources`, then from the model's own settings.
    """
    if decoding is not None and words:
        raise UsageError(f"give decoding, or fields such as {next(iter(words))}, not both")
    return (decoding or Decoding.of(**words)).settled(*sources, model.own)


def _converted(name: str, value: Any) -> Any:
    return _CONVERTERS[name](name, value) if name in _CONVERTERS else value


def _strength(name: str, value: Any) -> float:
    found = parsing.number(name, value)
    if not 0 <= found <= 1:
        raise UsageError(f"interpolation strength {name} must lie in [0, 1], not {found}")
    return found


def _policy(name: str, value: Any) -> CachePolicy:
    if not isinstance(value, str | CachePolicy):
        raise UsageError(f"{name} must be a cache policy or its spelling, such as dual, not {value!r}")
    return registry.build("cache", value) if isinstance(value, str) else value


def _is_rule(value: Any) -> bool:
    return callable(value) or isinstance(value, CachePolicy)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _without_folder(spelled: str) -> str:
    """`folder/rules.py:Mine(k=3)` as `rules.py:Mine(k=3)`: where the file lies changes no answer."""
    return re.sub(r"(^|[(=]|, )[^(=,]*[/\\](?=[^/\\]+\.py:)", r"\1", spelled)


def _token_ids(model: Denoiser, ids: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    chosen = tuple(dict.fromkeys([*ids, *more]))
    for token in chosen:
        if not 0 <= token < len(model.embedding):
            raise UsageError(f"token id {token} lies outside the vocabulary of {len(model.embedding)}")
    return chosen


def _finish(name: str, value: Any) -> EarlyFinish:
    words = {"true": True, "false": False, "block": "block"}
    if str(value).lower() not in words:
        raise UsageError(f"{name} must be true, false or block, not {value!r}")
    return cast(EarlyFinish, words[str(value).lower()])


_CONVERTERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(["k", "max_new_tokens", "candidates"], parsing.from_one),
    **dict.fromkeys(["block_length", "top_k", "seed"], parsing.whole),
    **dict.fromkeys(["temperature", "top_p", "min_p"], parsing.number),
    "lam": _strength,
    **dict.fromkeys(["forbid", "last"], parsing.token_ids),
    "cache": _policy,
    "rank": parsing.one_of(Rank),
    "eos": parsing.one_of(EosPolicy),
    "confidence": parsing.one_of(Confidence),
    "last_candidates": parsing.flag,
    "stop": parsing.texts,
    "early_finish": _finish,
}
