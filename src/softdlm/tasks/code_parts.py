"""Building blocks of mini-code functions: conditions, changes of a number, constants and identifiers.

A fragment has one wording and several equivalent spellings in Python. {x} is what it applies to, {q} its constant.
"""

from random import Random
from typing import NamedTuple


class Fragment(NamedTuple):
    """A condition or change: its wording in the specification and its equivalent codes."""

    says: str
    codes: tuple[str, ...]

    @property
    def constants(self) -> tuple[int, ...]:
        return tuple(range(2, 16)) if "{q}" in self.says else (0,)


CONDITIONS = (
    Fragment("greater than {q}", ("{x} > {q}", "{q} < {x}")),
    Fragment("less than {q}", ("{x} < {q}", "{q} > {x}")),
    Fragment("at least {q}", ("{x} >= {q}", "{q} <= {x}")),
    Fragment("at most {q}", ("{x} <= {q}", "{q} >= {x}")),
    Fragment("divisible by {q}", ("{x} % {q} == 0", "not {x} % {q}")),
    Fragment("not divisible by {q}", ("{x} % {q} != 0", "{x} % {q} > 0")),
    Fragment("equal to {q}", ("{x} == {q}", "{q} == {x}")),
    Fragment("different from {q}", ("{x} != {q}", "not {x} == {q}")),
    Fragment("even", ("{x} % 2 == 0", "not {x} % 2")),
    Fragment("odd", ("{x} % 2 == 1", "{x} % 2 != 0")),
    Fragment("positive", ("{x} > 0", "0 < {x}")),
    Fragment("negative", ("{x} < 0", "0 > {x}")),
)
CHANGES = (
    Fragment("plus {q}", ("{x} + {q}", "{q} + {x}")),
    Fragment("minus {q}", ("{x} - {q}", "-{q} + {x}")),
    Fragment("times {q}", ("{x} * {q}", "{q} * {x}")),
    Fragment("modulo {q}", ("{x} % {q}",)),
    Fragment("squared", ("{x} * {x}", "{x} ** 2")),
    Fragment("cubed", ("{x} ** 3", "{x} * {x} * {x}")),
    Fragment("doubled", ("{x} * 2", "2 * {x}", "{x} + {x}")),
    Fragment("negated", ("-{x}", "0 - {x}")),
)
SMALL = tuple(range(2, 25))
LARGE = tuple(range(2, 41))
LETTERS = tuple("abcdefghijklmnopqrtuvwxyz")
LABELS = ("yes", "no", "big", "small", "hot", "cold", "up", "down", "on", "off", "good", "bad", "left", "right")

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
    """A random part as it appears in a problem's key: its wording and constant, or constants alone."""
    if kind in ("test", "expr"):
        part = rng.choice(CONDITIONS if kind == "test" else CHANGES)
        return part.says, str(rng.choice(part.constants))
    if kind in ("k", "big"):
        return (str(rng.choice(SMALL if kind == "k" else LARGE)),)
    if kind == "range":
        low = rng.randint(1, 12)
        return str(low), str(low + rng.randint(2, 12))
    if kind == "letter":
        return (rng.choice(LETTERS),)
    return tuple(rng.sample(LETTERS if kind == "letters" else LABELS, 2))


SLOTS = {
    "k": ("k",),
    "big": ("k",),
    "range": ("j", "k"),
    "letter": ("c",),
    "letters": ("c", "d"),
    "labels": ("c", "d"),
}
"""Kind of constant -> the slots of specifications and bodies that it fills."""
SAYS = {part.says: part for part in (*CONDITIONS, *CHANGES)}
