"""mini-code: a one-line specification and a signature; the response is the function's body.

The body starts without its first indentation ("return n + 3"), later lines carry theirs, so a candidate
program is the signature, a new line, four spaces and the response. The key of a problem is what the
function must do, without identifiers and wording: a test problem asks for a function that training never
asks for.
"""

import re
from functools import cache
from random import Random
from typing import NamedTuple

from softdlm.tasks import code_parts as parts
from softdlm.tasks.code_families import FAMILIES, Family
from softdlm.tasks.pieces import fits
from softdlm.tasks.run_python import passes
from softdlm.tasks.task import PROMPT_TOKENS, RESPONSE_TOKENS, TEMPLATE_TOKENS, Item, Source, split_of

NAME = "mini-code"
INDENT = "\n    "
_CASES = 12
_BY_LEVEL = {n: tuple(f for f in FAMILIES.values() if f.level == n) for n in (1, 2, 3)}
_LINE = re.compile(r"\|(>*)")


class CodePlan(NamedTuple):
    """A family and its drawn parts, one tuple of strings for each of the family's kinds of parts."""

    family: str
    parts: tuple[tuple[str, ...], ...]


def _plan(rng: Random, level: int) -> CodePlan:
    family = rng.choice(_BY_LEVEL[level])
    return CodePlan(family.name, tuple(parts.draw_part(rng, kind) for kind in family.parts))


def _key(plan: CodePlan) -> str:
    return "; ".join((plan.family, *(", ".join(part) for part in plan.parts)))


def plan_of(key: str) -> CodePlan:
    family, *drawn = key.split("; ")
    return CodePlan(family, tuple(tuple(part.split(", ")) for part in drawn))


def _write(rng: Random, plan: CodePlan) -> Item | None:
    family = FAMILIES[plan.family]
    names = _names(rng, family)
    slots = _slots(rng, plan, names)
    signature = (
        f"def {rng.choice(parts.FUNCTIONS)}({', '.join(names[a] for a in 'ab'[: len(family.arguments)])}):"
    )
    prompt = f"{rng.choice(parts.VERBS)} {rng.choice(family.says).format_map(slots)}.\n{signature}"
    body = body_text(rng.choice(family.bodies).format_map(slots))
    if not fits(prompt, PROMPT_TOKENS - TEMPLATE_TOKENS) or not fits(body, RESPONSE_TOKENS - 1):
        return None
    return Item(NAME, _key(plan), prompt, body, family.level, {"signature": signature})


def _names(rng: Random, family: Family) -> dict[str, str]:
    """Identifiers; the pools are disjoint, so no two are the same."""
    names = {slot: rng.choice(pool) for slot, pool in parts.LOCALS.items()}
    arguments = zip("ab", family.arguments, strict=False)
    return names | {slot: rng.choice(parts.ARGUMENTS[kind]) for slot, kind in arguments}


def _slots(rng: Random, plan: CodePlan, names: dict[str, str]) -> dict[str, str]:
    """What fills the family's templates, with one of the equivalent codes for each condition and change."""
    family = FAMILIES[plan.family]
    slots = dict(names)
    subject = family.on.format_map(names)
    for kind, drawn in zip(family.parts, plan.parts, strict=True):
        if kind in ("test", "expr"):
            says, constant = drawn
            slots["cond" if kind == "test" else "map"] = says.format(q=constant)
            slots[kind] = rng.choice(parts.SAYS[says].codes).format(x=subject, q=constant)
        else:
            slots.update(zip(parts.SLOTS[kind], drawn, strict=True))
    return slots


def body_text(template: str) -> str:
    return _LINE.sub(lambda found: INDENT + "    " * len(found[1]), template)


def program_text(item: Item, text: str) -> str:
    return f"{item.meta['signature']}{INDENT}{text.strip()}\n"


def every_body(key: str, rng: Random) -> list[str]:
    """All bodies of a problem's family, for arguments called `a` and `b`."""
    plan = plan_of(key)
    names = {"a": "a", "b": "b", "x": "x", "t": "t", "i": "i"}
    return [body_text(body.format_map(_slots(rng, plan, names))) for body in FAMILIES[plan.family].bodies]


@cache
def cases(key: str) -> tuple[tuple[tuple[object, ...], object], ...]:
    """Hidden (arguments, result) pairs: a function of the problem's key, computed with the reference body."""
    plan = plan_of(key)
    rng = Random(f"cases of {key}")
    arguments = FAMILIES[plan.family].arguments
    scope: dict = {}
    exec(f"def reference({', '.join('ab'[: len(arguments)])}):{INDENT}{every_body(key, rng)[0]}", scope)
    drawn = [tuple(_argument(rng, kind, plan, turn) for kind in arguments) for turn in range(_CASES)]
    return tuple((args, scope["reference"](*args)) for args in drawn)


def _argument(rng: Random, kind: str, plan: CodePlan, turn: int) -> object:
    """Random values with those around the problem's constants; the first list or text is empty."""
    constants = [int(c) for part in plan.parts for c in part if c.isdigit()]
    near = [c + d for c in constants for d in (-1, 0, 1)]
    letters = "abcdef" + "".join(c for part in plan.parts for c in part if len(c) == 1) * 3
    if kind == "ints":
        values = rng.sample(near, len(near)) if turn == 1 else []
        return values + [rng.choice((*range(-9, 30), *near)) for _ in range(turn and rng.randint(3, 12))]
    if kind in ("int", "int2"):
        return near[turn] if turn < min(len(near), _CASES // 2) else rng.randint(-12, 40)
    if kind == "str":
        return _text(rng, letters, 0 if turn == 0 else rng.randint(1, 14))
    return [_text(rng, letters, rng.randint(0, 14)) for _ in range(turn and 9)]


def _text(rng: Random, letters: str, length: int) -> str:
    return "".join(rng.choice(letters) for _ in range(length))


def checks_text(item: Item) -> str:
    """Assertions on value and type: True is not 1."""
    name = item.meta["signature"].removeprefix("def ").split("(")[0]
    return "".join(
        f"got = {name}({', '.join(map(repr, args))})\n"
        f"assert got == {result!r} and type(got) is {_type(result)}\n"
        for args, result in cases(item.key)
    )


def _type(result: object) -> str:
    return "type(None)" if result is None else type(result).__name__


def _score(item: Item, text: str) -> bool:
    return passes(program_text(item, text), checks_text(item))


SOURCE: Source[CodePlan] = Source(
    name=NAME,
    levels=(1, 2, 3),
    sizes={"train": 1000, "validation": 150, "test": 300},
    max_new_tokens=RESPONSE_TOKENS,
    plan=_plan,
    key=_key,
    write=_write,
    score=_score,
    split_of=split_of,
)
