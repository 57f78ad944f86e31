"""How the next question is decoded: the options of the command line, changed by what is said in the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from softdlm import registry
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.feedback import FeedbackRule
from softdlm.models.denoiser import Denoiser
from softdlm.parsing import words_of
from softdlm.shortcuts import RATES

OWN = "own"
"""Stands for the model's own rules."""
FEEDBACK, COMMIT, STRENGTH = ("feedback", "method"), ("commit", "rank", *RATES), ("k", "lam")


@dataclass(frozen=True)
class Method:
    """Fields of a Decoding that were given."""

    words: Mapping[str, Any]
    strength: Mapping[str, Any] = field(default_factory=dict)
    """k and lam for rules that leave them out; a rule that has none ignores them."""

    def settled(self, model: Denoiser) -> Decoding:
        return Decoding.of(**self.words).settled(self.strength, model.own)

    def using(self, text: str) -> Method:
        """With other rules: a feedback rule, a commit rule, or both, in any order."""
        found: dict[str, str] = {}
        for word in words_of(text):
            kind = _kind(word, taken=found)
            if kind in found:
                raise UsageError(f"{text!r} names two {kind} rules: give one feedback rule, one commit rule, or both")
            found[kind] = word
        if not found:
            raise UsageError("no rule was given: name a feedback rule, a commit rule, or both")
        made = self
        for kind, word in found.items():
            made = made._with(kind, word)
        return made

    def at(self, rate: str) -> Method:
        """With another commit rule: its spelling, or a number of tokens a pass."""
        return self._with("commit", f"topn({rate})" if rate.isdigit() else rate)

    def own(self) -> Method:
        """With the model's own rules."""
        return self._without(*FEEDBACK, *COMMIT, *STRENGTH)

    def _with(self, kind: str, spelling: str) -> Method:
        """k and lam of the command line fill what another feedback rule leaves out."""
        kept = self._without(*(FEEDBACK + STRENGTH if kind == "feedback" else COMMIT))
        strength = {name: self.words[name] for name in STRENGTH if name in self.words and kind == "feedback"}
        return replace(kept, words={**kept.words, kind: spelling}, strength={**self.strength, **strength})

    def _without(self, *names: str) -> Method:
        return replace(self, words={name: value for name, value in self.words.items() if name not in names})


def described(decoding: Decoding) -> str:
    """The rules of a settled Decoding, as they are spelled."""
    commit, feedback = decoding.rules
    return f"{registry.spell(feedback)} {registry.spell(commit)}"


def _kind(word: str, taken: Mapping[str, str]) -> str:
    """Of a spelled rule; a name of both kinds is a feedback rule's first."""
    name = word.partition("(")[0]
    if registry.is_from_file(word):
        return "feedback" if isinstance(registry.build("feedback", word), FeedbackRule) else "commit"
    if name in registry.names("feedback") and not (name in registry.names("commit") and "feedback" in taken):
        return "feedback"
    if name in registry.names("commit"):
        return "commit"
    raise UsageError(
        f"unknown rule {name!r}; feedback rules are {', '.join(registry.names('feedback'))}; "
        f"commit rules are {', '.join(registry.names('commit'))}"
    )
