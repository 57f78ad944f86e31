"""Problems about several people, each compared with the previous one: "Ben has twice as many as Ava"."""

from random import Random
from typing import NamedTuple

from softdlm.tasks import math_words as words
from softdlm.tasks.math_text import Equation, Slots, capital, cast, problem

_ASKS = ("last", "sum", "gap", "total")
_RELATIONS = {"more": "+", "fewer": "-", "times": "*", "half": "/"}


class People(NamedTuple):
    """The first person's number, the relations (kind, number) of the following people, and the question."""

    first: int
    relations: tuple[tuple[str, int], ...]
    ask: str


def plan(rng: Random, level: int) -> People:
    while True:
        ask = rng.choice(_ASKS)
        others = {"last": level, "sum": level - 1, "gap": level - 1, "total": level // 2}[ask]
        people = People(rng.randint(4, 40), tuple(_relation(rng) for _ in range(others)), ask)
        if _allowed(people, level):
            return people


def _relation(rng: Random) -> tuple[str, int]:
    kind = rng.choice(list(_RELATIONS))
    if kind == "half":
        return kind, 2
    return kind, rng.randint(2, 4) if kind == "times" else rng.randint(2, 30)


def _allowed(people: People, level: int) -> bool:
    """Whether all numbers are whole and from 2 to 300, and a gap is neither 0 nor stated in the question."""
    values = _values(people)
    told = len(people.relations) == 1 and people.relations[0][0] in ("more", "fewer")
    if people.ask == "gap" and (values[0] == values[-1] or told):
        return False
    steps = solve(people, ["?"] * len(values), {})
    return len(steps) == level and all(2 <= v <= 300 for v in values) and all(step.sound() for step in steps)


def _values(people: People) -> list[int]:
    values = [people.first]
    for kind, number in people.relations:
        values.append(_step(kind, number, values[-1], {}).r)
    return values


def _step(kind: str, number: int, value: int, slots: Slots) -> Equation:
    return Equation("person", _RELATIONS[kind], value, number, slots)


def solve(people: People, names: list[str], slots: Slots) -> list[Equation]:
    values = _values(people)
    steps = [
        _step(kind, number, value, {**slots, "S": name, "N": name})
        for (kind, number), value, name in zip(people.relations, values, names[1:], strict=False)
    ]
    return steps + _asked(people, values, names, slots)


def _asked(people: People, values: list[int], names: list[str], slots: Slots) -> list[Equation]:
    if people.ask == "sum":
        return [Equation("sum", "+", values[0], values[-1], slots)]
    if people.ask == "gap":
        ahead = names[-1] if values[-1] > values[0] else names[0]
        top, low = max(values[0], values[-1]), min(values[0], values[-1])
        return [Equation("gap", "-", top, low, {**slots, "S": ahead, "N": ahead})]
    if people.ask == "total":
        return [Equation("sum", "+", sum(values[:i]), values[i], slots) for i in range(1, len(values))]
    return []


def write(rng: Random, people: People) -> tuple[str, str] | None:
    slots = cast(rng)
    names = rng.sample(words.NAMES, len(people.relations) + 1)
    asked = _question(rng, people, names, slots)
    return problem(rng, asked, solve(people, names, slots), words.PEOPLE_STEPS)


def _question(rng: Random, people: People, names: list[str], slots: Slots) -> str:
    told = [_sentence(rng, "have", people.first, {**slots, "S": names[0], "N": names[0]})]
    for (kind, number), name, before in zip(people.relations, names[1:], names, strict=False):
        told.append(_sentence(rng, kind, number, {**slots, "S": name, "N": name, "F": before}))
    values = _values(people)
    last, first = (names[-1], names[0]) if values[-1] >= values[0] or people.ask != "gap" else (names[0], names[-1])
    ask = rng.choice(words.PEOPLE_ASKS[people.ask]).format_map({**slots, "S": last, "N": last, "F": first})
    return f"{' '.join(told)} {capital(ask)}"


def _sentence(rng: Random, kind: str, number: int, slots: Slots) -> str:
    said = {**slots, "n": number, "t": rng.choice(words.TIMES[number]) if kind == "times" else ""}
    return capital(rng.choice(words.PEOPLE_SENTENCES[kind]).format_map(said)) + "."
