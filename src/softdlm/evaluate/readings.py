"""Readings of the paper: the questions that it leaves open, each with its answers by name; the first is the default.

A reading *applies* where another value of it would measure something else: another cell, or other rows of an analysis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from softdlm.errors import UsageError

LLADA, LLADA2, DREAM = "llada", "llada2_moe", "Dream"
"""Families, by their `model_type`: LLaDA and LLaDA-1.5, LLaDA-2.0-mini, Dream."""
Part = Literal["answers", "task", "reproduce"]


@dataclass(frozen=True)
class Reading:
    name: str
    values: tuple[str, ...]
    about: str
    """What is open, and what each value means."""
    where: str
    """What it is for, in words."""
    part: Part = "answers"
    """What it decides: how answers are decoded, how a task asks and scores, or what `reproduce` measures."""
    families: tuple[str, ...] = ()
    """Empty: all of them."""

    def check(self, value: Any) -> str:
        if str(value) not in self.values:
            raise UsageError(f"reading {self.name}={value}: the values are {', '.join(self.values)}")
        return str(value)

    def is_for(self, family: str) -> bool:
        return not self.families or family in self.families


READINGS = {
    each.name: each
    for each in (
        Reading(
            "dream", ("dream-dllm", "dream-eps", "dream-greedy"),
            "Dream's vanilla: exactly n a step, ranked by entropy at temperature 0.1 and top-p 0.9; the same with "
            "Dream's eps schedule (`topn-eps(n)`); or greedy, ranked by confidence, exactly n a step.",
            "Dream", families=(DREAM,),
        ),
        Reading(
            "adaptive", ("untempered", "tempered"),
            "What thresholds and entropy bounds read: the model's own distribution, or the tempered and filtered one.",
            "Dream with adaptive commit rules at a temperature above 0", families=(DREAM,),
        ),
        Reading(
            "adaptive-eos", ("allow", "last"), "EOS on GSM8K with adaptive commit rules.",
            "LLaDA families on gsm8k with adaptive commit rules", families=(LLADA, LLADA2),
        ),
        Reading(
            "llada2-eos", ("llada", "allow"), "EOS of LLaDA-2.0-mini: LLaDA's policy, or allowed everywhere.",
            "LLaDA-2.0-mini on the paper's benchmarks", families=(LLADA2,),
        ),
        Reading(
            "llada2-attention", ("full", "block-causal"), "The attention of LLaDA-2.0-mini, decoded in one block.",
            "LLaDA-2.0-mini where no attention is chosen", families=(LLADA2,),
        ),
        Reading(
            "last-candidates", ("yes", "no"), "Whether ids that commit last (EOS) may be candidates of feedback.",
            "LLaDA families where EOS commits last", families=(LLADA, LLADA2),
        ),
        Reading(
            "turns", ("one", "many"), "Few-shot examples inside the one user turn, or each as a turn.",
            "LLaDA families on gsm8k, math500 and mbpp", "task", (LLADA, LLADA2),
        ),
        Reading(
            "math500", ("exact-match", "math-verify"),
            "The headline score of MATH-500; both scores are recorded.", "math500", "task",
        ),
        Reading(
            "prompts", ("raw", "chat"), "Controlled prompts as raw text, or inside the chat template.",
            "figure1, table1 and table4 of softdlm reproduce", "reproduce",
        ),
        Reading(
            "chat-lead", ("none", "space"),
            "Whether alternatives keep their leading space inside the chat template; raw text always keeps it.",
            "figure1, table1 and table4 of softdlm reproduce with prompts=chat", "reproduce",
        ),
        Reading(
            "figure2-rate", ("2", "4"), "Tokens a step in Figure 2.", "figure2 of softdlm reproduce", "reproduce"
        ),
        Reading(
            "table6-items", ("first-500", "full"), "Items of GSM8K in Table 6.",
            "table6 and frontier of softdlm reproduce on gsm8k", "reproduce",
        ),
    )
}  # fmt: skip


def reading(name: str) -> Reading:
    if name not in READINGS:
        raise UsageError(f"unknown reading {name!r}: one of {', '.join(READINGS)}")
    return READINGS[name]


@dataclass(frozen=True)
class Readings:
    """How the paper is read: the readings that were given; every other one has its default. Make it with `of`."""

    given: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(said: Readings | Mapping[str, Any] | Iterable[str] = ()) -> Readings:
        """From `["name=value", ...]`, or from names and values."""
        if isinstance(said, Readings):
            return said
        pairs = list(said.items()) if isinstance(said, Mapping) else [_pair(each) for each in said]
        doubled = [name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number])]
        if doubled:
            raise UsageError(f"reading {doubled[0]} is given twice: give it once")
        return Readings(tuple((name, reading(name).check(value)) for name, value in pairs))

    def value(self, name: str) -> str:
        return dict(self.given).get(name, reading(name).values[0])

    def changed(self, name: str, value: str) -> Readings:
        return Readings.of({**dict(self.given), name: value})

    def record(self) -> dict[str, str]:
        """Every reading with its value, for JSON."""
        return {name: self.value(name) for name in READINGS}

    def applied(self, family: str, make: Callable[[Readings], Any], parts: Collection[Part]) -> dict[str, str]:
        """The readings of which another value would make something else of this model family."""
        now = make(self)
        return {
            each.name: self.value(each.name)
            for each in READINGS.values()
            if each.part in parts
            and each.is_for(family)
            and any(
                make(self.changed(each.name, other)) != now for other in each.values if other != self.value(each.name)
            )
        }

    def check_used(self, used: Collection[str]) -> None:
        """Refuse a reading that was given and applies to nothing."""
        for name, value in self.given:
            if name not in used:
                raise UsageError(
                    f"reading {name}={value} changes nothing here, it is for {reading(name).where}: leave it out"
                )


DEFAULT = Readings()


def words(applied: Mapping[str, str]) -> str:
    """`dream=dream-dllm, adaptive=untempered`."""
    return ", ".join(f"{name}={value}" for name, value in applied.items())


def note(applied: Mapping[str, str]) -> tuple[str, ...]:
    """A table's note on the readings that apply to it; none where none does."""
    return (f"Readings: {words(applied)}.",) if applied else ()


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"reading {text!r}: write name=value, with one of {', '.join(READINGS)}")
    return name.strip(), value.strip()
