"""mini-code: the prompt is a one-line specification and a signature, the response is the function's body.

The first line of the body is not indented ("return n + 3"), later lines are. So a candidate program is the signature, a
new line, four spaces and the response. The key of a problem is what the function must do, without identifiers and
wording: the function of a test problem never occurs in training.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from random import Random
from typing import NamedTuple

from softdlm.errors import SandboxError
from softdlm.sandbox.run import Limits, Sandbox
from softdlm.tasks import code_parts as parts
from softdlm.tasks.code_families import FAMILIES, CodeFamily
from softdlm.tasks.consistency import sound_program
from softdlm.tasks.pretokens import fits
from softdlm.tasks.task import PROMPT_TOKENS, RESPONSE_TOKENS, TEMPLATE_TOKENS, Item, Split, TaskSource

NAME = "mini-code"
_SIZES: dict[Split, int] = {"train": 1000, "validation": 150, "test": 300}
INDENT = "\n    "
LIMITED = Sandbox("subprocess", Limits(seconds=4.0, memory_bytes=2**29))
"""Where answers run by default: a process with limits on time and memory, which works on every machine. It protects
against accidents but not against malicious code, which a small model trained on these bodies does not write.
"""
_CASES = 12
_BY_LEVEL = {n: tuple(f for f in FAMILIES.values() if f.level == n) for n in (1, 2, 3)}
_LINE = re.compile(r"\|(>*)")


class CodePlan(NamedTuple):
    """A code family and the parts drawn for it: one tuple of strings for each kind of part."""

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
    signature = f"def {rng.choice(parts.FUNCTIONS)}({', '.join(names[a] for a in 'ab'[: len(family.arguments)])}):"
    prompt = f"{rng.choice(parts.VERBS)} {rng.choice(family.says).format_map(slots)}.\n{signature}"
    body = body_text(rng.choice(family.bodies).format_map(slots))
    if not fits(prompt, PROMPT_TOKENS - TEMPLATE_TOKENS) or not fits(body, RESPONSE_TOKENS - 1):
        return None
    return Item(NAME, _key(plan), prompt, body, family.level, {"signature": signature})


def _names(rng: Random, family: CodeFamily) -> dict[str, str]:
    """Identifiers for arguments and local names; the pools are disjoint, so they all differ."""
    names = {slot: rng.choice(pool) for slot, pool in parts.LOCALS.items()}
    arguments = zip("ab", family.arguments, strict=False)
    return names | {slot: rng.choice(parts.ARGUMENTS[kind]) for slot, kind in arguments}


def _slots(rng: Random, plan: CodePlan, names: dict[str, str]) -> dict[str, str]:
    """Values for the slots of the family's templates, with a random spelling of each condition and change."""
    family = FAMILIES[plan.family]
    slots = dict(names)
    subject = family.on.format_map(names)
    for kind, drawn in zip(family.parts, plan.parts, strict=True):
        if kind in ("test", "expr"):
            says, constant = drawn
            slots["cond" if kind == "test" else "map"] = says.format(q=constant)
            slots[kind] = rng.choice(parts.CODES[says]).format(x=subject, q=constant)
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
    """Hidden tests as (arguments, result) pairs. They depend on the key only; the reference body gives the results."""
    plan = plan_of(key)
    rng = Random(f"cases of {key}")
    arguments = FAMILIES[plan.family].arguments
    scope: dict = {}
    exec(f"def reference({', '.join('ab'[: len(arguments)])}):{INDENT}{every_body(key, rng)[0]}", scope)
    drawn = [*_edges(rng, arguments, plan), *(_random(rng, arguments, plan) for _ in range(_CASES))]
    return tuple((args, scope["reference"](*args)) for args in drawn)


def _near(plan: CodePlan) -> list[int]:
    """The problem's constants and their neighbours, where a wrong comparison gives another result."""
    return [int(text) + d for part in plan.parts for text in part if text.isdigit() for d in (-1, 0, 1)]


def _edges(rng: Random, arguments: tuple[str, ...], plan: CodePlan) -> Sequence[tuple[object, ...]]:
    """Arguments made of 0, a negative number and the values near constants, used as numbers and as lengths."""
    values = [0, -7, *_near(plan)]
    if arguments == ("int",):
        return [(value,) for value in values]
    if arguments == ("int", "int2"):
        return [(value, 0) for value in values] + [(0, value) for value in values]
    lengths = [max(value, 0) for value in values]
    if arguments == ("ints",):
        return [*(([v],) for v in values), *((rng.sample(range(-20, 60), n),) for n in lengths)]
    texts = [_text(rng, plan, n) for n in lengths]
    return [(text,) for text in texts] if arguments == ("str",) else [([],), *(([text],) for text in texts)]


def _random(rng: Random, arguments: tuple[str, ...], plan: CodePlan) -> tuple[object, ...]:
    values = (*range(-9, 30), *_near(plan))
    draws = {
        "int": lambda: rng.randint(-12, 40),
        "int2": lambda: rng.randint(-12, 40),
        "ints": lambda: [rng.choice(values) for _ in range(rng.randint(2, 14))],
        "str": lambda: _text(rng, plan, rng.randint(1, 30)),
        "strs": lambda: [_text(rng, plan, rng.randint(0, 30)) for _ in range(9)],
    }
    return tuple(draws[kind]() for kind in arguments)


def _text(rng: Random, plan: CodePlan, length: int) -> str:
    """Random letters, among them those of the problem."""
    letters = "abcdef" + "".join(text for part in plan.parts for text in part if len(text) == 1) * 2
    return "".join(rng.choice(letters) for _ in range(length))


def checks_text(item: Item) -> str:
    """Assertions on value and type, because True == 1 in Python."""
    name = item.meta["signature"].removeprefix("def ").split("(")[0]
    return "".join(
        f"got = {name}({', '.join(map(repr, args))})\nassert got == {result!r} and type(got) is {_type(result)}\n"
        for args, result in cases(item.key)
    )


def _type(result: object) -> str:
    return "type(None)" if result is None else type(result).__name__


def score_in(sandbox: Sandbox) -> Callable[[Item, str], bool]:
    return partial(_score, sandbox)


def _score(sandbox: Sandbox, item: Item, text: str) -> bool:
    outcome = sandbox.run(program_text(item, text), checks_text(item))
    if outcome.verdict == "error":
        raise SandboxError(f"the sandbox {sandbox.backend} could not run {item.id}: {outcome.detail}")
    return outcome.passed


def _consistent(item: Item, text: str) -> bool:
    return sound_program(program_text(item, text))


SOURCE: TaskSource[CodePlan] = TaskSource(
    *(NAME, (1, 2, 3), _SIZES, RESPONSE_TOKENS, _plan, _key, _write, score_in(LIMITED)),
    score_in=score_in,
    consistent=_consistent,
)
