"""Building blocks of mini-code functions: conditions, changes of a number, constants and identifiers.

The words are in code_words.json. A condition or change has one wording and several equivalent spellings in Python. {x}
is what it applies to, {q} its constant.
"""

from random import Random

from softdlm.tasks.data import read_table

_WORDS = read_table("code_words")
CONDITIONS: dict[str, list[str]] = _WORDS["conditions"]
CHANGES: dict[str, list[str]] = _WORDS["changes"]
CODES = CONDITIONS | CHANGES
"""Wording of a condition or change -> its equivalent codes."""
FUNCTIONS: list[str] = _WORDS["functions"]
VERBS: list[str] = _WORDS["verbs"]
ARGUMENTS: dict[str, list[str]] = _WORDS["arguments"]
LOCALS: dict[str, list[str]] = _WORDS["locals"]
LETTERS = "abcdefghijklmnopqrtuvwxyz"
SLOTS = {"k": "k", "big": "k", "range": "jk", "letter": "c", "letters": "cd", "labels": "cd"}
"""Kind of constant -> the slots of specifications and bodies that it fills."""


def draw_part(rng: Random, kind: str) -> tuple[str, ...]:
    """A random part as it appears in a problem's key: its wording and constant, or constants alone."""
    if kind in ("test", "expr"):
        says = rng.choice(list(CONDITIONS if kind == "test" else CHANGES))
        return says, str(rng.choice(range(2, 16) if "{q}" in says else (0,)))
    if kind in ("k", "big"):
        return (str(rng.choice(range(2, 25 if kind == "k" else 41))),)
    if kind == "range":
        low = rng.randint(1, 12)
        return str(low), str(low + rng.randint(2, 12))
    if kind == "letter":
        return (rng.choice(LETTERS),)
    return tuple(rng.sample(LETTERS if kind == "letters" else _WORDS["labels"], 2))
