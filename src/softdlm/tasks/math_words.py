"""The words of mini-math, from math_words.json: names, things, and the sentences of questions and solutions.

In the sentences {S} is a person (name or pronoun), {N} the same person by name, {F} a friend, {o} the things, {c} their
containers, {n}, {k}, {m} numbers, {t} a factor in words, {e} an equation such as 12+5=17 and {r} its result. First
letters are capitalised later. Entries are drawn with equal probability, so one that is repeated is drawn more often.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from softdlm.tasks.data import read_table

Sentences = Mapping[str, Sequence[str]]
"""Kind of event, question or equation -> its wordings."""

_WORDS: dict[str, Any] = read_table("math_words")

SHE: list[str] = _WORDS["names"]["she"]
HE: list[str] = _WORDS["names"]["he"]
NAMES = SHE + HE
PRONOUNS = dict.fromkeys(SHE, "she") | dict.fromkeys(HE, "he")
THINGS: list[str] = _WORDS["things"]
CONTAINERS: list[str] = _WORDS["containers"]
COLOURS: list[str] = _WORDS["colours"]
TIMES: dict[int, list[str]] = {int(factor): said for factor, said in _WORDS["times"].items()}

EVENT_STARTS: list[str] = _WORDS["event_starts"]
STARTS: list[tuple[str, str]] = [(first, later) for first, later in _WORDS["starts"]]
ENDINGS: list[str] = _WORDS["endings"]

STORY_SENTENCES: Sentences = _WORDS["story"]["sentences"]
STORY_ASKS: Sentences = _WORDS["story"]["asks"]
STORY_NUMBERS: Mapping[str, Mapping[str, tuple[int, int]]] = _WORDS["story"]["numbers"]
"""Kind -> the least and the greatest value of each of its numbers, for kinds that do not depend on what was before."""
STORY_EQUATIONS: Mapping[str, str] = _WORDS["story"]["equations"]
"""Kind -> its equation; v is the number of things before the event, n, k and m are the event's own numbers."""
PEOPLE_SENTENCES: Sentences = _WORDS["people"]["sentences"]
PEOPLE_ASKS: Sentences = _WORDS["people"]["asks"]
SHOP_SENTENCES: Sentences = _WORDS["shop"]["sentences"]
SHOP_ASKS: Sentences = _WORDS["shop"]["asks"]

ANY_STEP: list[str] = _WORDS["any_step"]
"""Wordings that suit every equation."""
STORY_STEPS: Sentences = {
    kind: [*said, *(_WORDS["count_step"] if kind in _WORDS["count_kinds"] else ())]
    for kind, said in _WORDS["story"]["steps"].items()
}
PEOPLE_STEPS: Sentences = _WORDS["people"]["steps"]
SHOP_STEPS: Sentences = _WORDS["shop"]["steps"]
