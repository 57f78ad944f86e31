"""Problems about one person's things: how many at first, what happens to them, and how many in the end."""

from random import Random
from typing import NamedTuple

from softdlm.tasks import math_words as words
from softdlm.tasks.math_text import Equation, Slots, capital, cast, problem, pronoun_or_name

_STARTS = ("have", "have", "boxes", "kinds", "more", "fewer", "times")
_EVENTS = ("gain", "gain", "lose", "lose", "double", "triple", "half", "packs", "gifts")
_ASKS = ("now", "now", "share", "sell", "need", "compare", "together")
_TELLS_FRIEND = {"more", "fewer", "times", "compare", "together"}
"""Kinds that state how many the friend has; a problem has at most one of them."""
_ALONE = {kind: tuple(s for s in said if "{F}" not in s) for kind, said in words.STORY_SENTENCES.items()}
_STEPS_OF = {"have": 0, "now": 0, "packs": 2, "gifts": 2}


class Event(NamedTuple):
    """A start, an event or the question, with its numbers (0: none)."""

    kind: str
    n: int = 0
    k: int = 0
    m: int = 0


def plan(rng: Random, level: int) -> tuple[Event, ...]:
    """A story whose solution has exactly `level` equations."""
    while True:
        events = _attempt(rng, level)
        if events and all(step.sound() for step in solve(events, {})):
            return events


def _attempt(rng: Random, level: int) -> tuple[Event, ...] | None:
    first, ask = rng.choice(_STARTS), rng.choice(_ASKS)
    if {first, ask} <= _TELLS_FRIEND:
        return None
    room = level - _STEPS_OF.get(first, 1) - _STEPS_OF.get(ask, 1)
    kinds = [first]
    while room > 0:
        kind = rng.choice(_EVENTS)
        if _STEPS_OF.get(kind, 1) <= room:
            kinds.append(kind)
            room -= _STEPS_OF.get(kind, 1)
    return _with_numbers(rng, (*kinds, ask)) if room == 0 else None


def _with_numbers(rng: Random, kinds: tuple[str, ...]) -> tuple[Event, ...] | None:
    events: list[Event] = []
    value = 0
    for kind in kinds:
        event = _draw(rng, kind, value)
        if event is None:
            return None
        events.append(event)
        value = _after(event, value, _steps(event, value, {}))
    return tuple(events)


def _after(event: Event, value: int, steps: list[Equation]) -> int:
    """The number of things after an event: the result of its equations, the number it states, or as before."""
    return steps[-1].r if steps else event.n or value


def _draw(rng: Random, kind: str, value: int) -> Event | None:
    """Random numbers for this kind after `value` things, or None if the kind cannot follow."""
    between = rng.randint
    if kind in words.STORY_NUMBERS:
        return Event(kind, **{name: between(*ends) for name, ends in words.STORY_NUMBERS[kind].items()})
    if kind == "fewer":
        m = between(6, 50)
        return Event(kind, n=between(2, m - 2), m=m)
    if kind == "need":
        return Event(kind, n=value + between(2, 50))
    return _draw_bounded(rng, kind, value)


def _draw_bounded(rng: Random, kind: str, value: int) -> Event | None:
    between = rng.randint
    if kind in ("lose", "compare") and value >= 5:
        return Event(kind, n=between(2, min(value - 2, 60)))
    if (kind == "double" and value <= 120) or (kind == "triple" and value <= 60):
        return Event(kind, k=2 if kind == "double" else 3)
    if kind == "half" and value % 2 == 0 and value >= 4:
        return Event(kind, k=2)
    if kind == "sell" and 2 <= value <= 60:
        return Event(kind, k=between(2, 9))
    if kind == "gifts" and value >= 8:
        k = between(2, min(9, value // 3))
        return Event(kind, k=k, m=between(2, min(9, (value - 1) // k)))
    if kind == "share":
        divisors = [k for k in range(2, 10) if value % k == 0 and value // k >= 2]
        return Event(kind, k=rng.choice(divisors)) if divisors else None
    return None


def solve(events: tuple[Event, ...], slots: Slots) -> list[Equation]:
    """The equations of a story, in order."""
    value, steps = 0, []
    for event in events:
        new = _steps(event, value, slots)
        steps += new
        value = _after(event, value, new)
    return steps


def _steps(event: Event, value: int, slots: Slots) -> list[Equation]:
    """The equations of one event after `value` things."""
    kind, n, k, m = event
    numbers = {"n": n, "k": k, "m": m, "v": value}
    slots = slots | numbers
    if kind in ("packs", "gifts"):
        sign = "+" if kind == "packs" else "-"
        return [Equation(f"{kind}1", "*", k, m, slots), Equation(f"{kind}2", sign, value, k * m, slots)]
    if kind not in words.STORY_EQUATIONS:
        return []
    left, op, right = words.STORY_EQUATIONS[kind]
    return [Equation(kind, op, numbers[left], numbers[right], slots)]


def write(rng: Random, events: tuple[Event, ...]) -> tuple[str, str] | None:
    slots = cast(rng)
    slots["t"] = rng.choice(words.TIMES[events[0].k]) if events[0].kind == "times" else ""
    asked = _question(rng, events, slots)
    slots["S"] = pronoun_or_name(rng, str(slots["N"]))
    return problem(rng, asked, solve(events, slots), words.STORY_STEPS)


def _question(rng: Random, events: tuple[Event, ...], slots: Slots) -> str:
    first, *middle, ask = events
    alone = ask.kind in _TELLS_FRIEND
    text = capital(_sentence(rng, first, slots))
    for event in middle:
        who = {**slots, "S": pronoun_or_name(rng, str(slots["N"]))}
        sentence = _sentence(rng, event, who, alone)
        if event is not middle[0] and rng.random() < 0.3:
            text += f" and then {sentence}"
        else:
            text += f". {capital(rng.choice(words.EVENT_STARTS) + sentence)}"
    who = {**slots, **ask._asdict(), "S": pronoun_or_name(rng, str(slots["N"]))}
    if ask.kind == "now" and rng.random() < 0.2:
        asked = rng.choice(words.STORY_ASKS["now"]).format_map({**who, "S": slots["N"]})
        return f"{capital(asked)} {text}."
    return f"{text}. {capital(rng.choice(words.STORY_ASKS[ask.kind]).format_map(who))}"


def _sentence(rng: Random, event: Event, slots: Slots, alone: bool = False) -> str:
    """With `alone` the friend is not mentioned, because the friend's number is stated only later."""
    options = (_ALONE if alone else words.STORY_SENTENCES)[event.kind]
    return rng.choice(options).format_map({**slots, **event._asdict()})
