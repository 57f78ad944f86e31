"""The families of mini-code functions, from code_families.json: specifications and equivalent bodies.

In a body "|" starts a new line and ">" indents it once more. {a} and {b} are arguments; {x}, {t} and {i} are local
names; {test} and {expr} are a drawn condition and change, worded as {cond} and {map} in the specification; {k}, {j},
{c}, {d} are constants. The first body of a family is the reference that computes the results of the hidden tests.
"""

from typing import Any, NamedTuple

from softdlm.tasks.data import read_table


class CodeFamily(NamedTuple):
    name: str
    level: int
    arguments: tuple[str, ...]
    parts: tuple[str, ...]
    says: tuple[str, ...]
    bodies: tuple[str, ...]
    on: str = "{x}"
    """What a drawn condition or change applies to."""


def _family(name: str, entry: dict[str, Any]) -> CodeFamily:
    lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return CodeFamily(name, **{**entry, **lists})


FAMILIES = {name: _family(name, entry) for name, entry in read_table("code_families").items()}
