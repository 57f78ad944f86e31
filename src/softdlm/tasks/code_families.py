"""The families of mini-code functions, from code_families.json: specifications and equivalent bodies.

In a body "|" starts a new line and ">" indents it once more. {a} and {b} are arguments; {x}, {t} and {i} are local
names; {test} and {expr} are a drawn condition and change, worded as {cond} and {map} in the specification; {k}, {j},
{c}, {d} are constants. The first body of a family is the reference that computes the results of the hidden tests.
"""

from typing import NamedTuple

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


FAMILIES = {
    name: CodeFamily(name, **{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
    for name, entry in read_table("code_families").items()
}
