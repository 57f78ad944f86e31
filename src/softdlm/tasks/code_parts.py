"""The parts that mini-code functions are made of: conditions, changes of a number, constants and identifiers.

Each part has one way to be said and several ways to be written. {x} is what it applies to, {q} its constant.
"""

from random import Random
from typing import NamedTuple


class Part(NamedTuple):
    """What the specification says and the equivalent codes for it."""

    says: str
    codes: tuple[str, ...]

    @property
    def constants(self) -> tuple[int, ...]:
        return tuple(range(2, 16)) if "{q}" in self.says else (0,)


CONDITIONS = (
    Part("greater than {q}", ("{x} > {q}", "{q} < {x}")),
    Part("less than {q}", ("{x} < {q}", "{q} > {x}")),
    Part("at least {q}", ("{x} >= {q}", "{q} <= {x}")),
    Part("at most {q}", ("{x} <= {q}", "{q} >= {x}")),
    Part("divisible by {q}", ("{x} % {q} == 0", "not {x} % {q}")),
    Part("not divisible by {q}", ("{x} % {q} != 0", "{x} % {q} > 0")),
    Part("equal to {q}", ("{x} == {q}", "{q} == {x}")),
    Part("different from {q}", ("{x} != {q}", "not {x} == {q}")),
    Part("even", ("{x} % 2 == 0", "not {x} % 2")),
    Part("odd", ("{x} % 2 == 1", "{x} % 2 != 0")),
    Part("positive", ("{x} > 0", "0 < {x}")),
    Part("negative", ("{x} < 0", "0 > {x}")),
)
CHANGES = (
    Part("plus {q}", ("{x} + {q}", "{q} + {x}")),
    Part("minus {q}", ("{x} - {q}", "-{q} + {x}")),
    Part("times {q}", ("{x} * {q}", "{q} * {x}")),
    Part("modulo {q}", ("{x} % {q}",)),
    Part("squared", ("{x} * {x}", "{x} ** 2")),
    Part("cubed", ("{x} ** 3", "{x} * {x} * {x}")),
    Part("doubled", ("{x} * 2", "2 * {x}", "{x} + {x}")),
    Part("negated", ("-{x}", "0 - {x}")),
)
SMALL = tuple(range(2, 25))
LARGE = tuple(range(2, 41))
LETTERS = tuple("abcdefghijklmnopqrtuvwxyz")
LABELS = (
    "yes",
    "no",
    "big",
    "small",
    "hot",
    "cold",
    "up",
    "down",
    "on",
    "off",
    "good",
    "bad",
    "left",
    "right",
)

FUNCTIONS = ("f", "solve", "compute", "run", "answer", "func", "work", "get", "calc", "go")
VERBS = ("Return", "Find", "Compute")
ARGUMENTS = {
    "ints": ("xs", "nums", "values", "data", "seq"),
    "int": ("n", "m", "number"),
    "int2": ("p", "other", "y"),
    "str": ("s", "text", "string"),
    "strs": ("words", "names", "parts"),
}
LOCALS = {"x": ("x", "v", "item", "e"), "t": ("total", "result", "out", "res"), "i": ("i", "j", "idx")}


def draw_part(rng: Random, kind: str) -> tuple[str, ...]:
    """A part in the form that stands in a problem's key: what it is and its constant."""
    if kind in ("test", "expr"):
        part = rng.choice(CONDITIONS if kind == "test" else CHANGES)
        return part.says, str(rng.choice(part.constants))
    if kind in ("k", "big"):
        return (str(rng.choice(SMALL if kind == "k" else LARGE)),)
    if kind == "range":
        low = rng.randint(1, 12)
        return str(low), str(low + rng.randint(2, 12))
    return (
        tuple(rng.sample(LETTERS if kind == "letters" else LABELS, 2)) if kind != "letter" else (rng.choice(LETTERS),)
    )


SLOTS = {
    "k": ("k",),
    "big": ("k",),
    "range": ("j", "k"),
    "letter": ("c",),
    "letters": ("c", "d"),
    "labels": ("c", "d"),
}
"""Which names in specifications and bodies a plain constant fills."""
SAYS = {part.says: part for part in (*CONDITIONS, *CHANGES)}
