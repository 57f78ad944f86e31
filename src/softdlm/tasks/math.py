"""mini-math: word problems of 2 to 4 steps with many wordings; the answer follows ####.

Questions and solutions are worded in many ways: this freedom is what makes tokens that are predicted in parallel
inconsistent. The key of a problem is its structure and its numbers, so a test problem does not occur in training with
other names.
"""

import re
from random import Random
from typing import Any, NamedTuple

from softdlm.tasks import math_people, math_shop, math_story
from softdlm.tasks.consistency import true_equations
from softdlm.tasks.task import RESPONSE_TOKENS, Item, Split, TaskSource

NAME = "mini-math"
_SIZES: dict[Split, int] = {"train": 1000, "validation": 500, "test": 1000}
_FRAMES = {"story": math_story, "people": math_people, "shop": math_shop}
_CHOICES = ("story", "story", "people", "shop")
_ANSWER = re.compile(r"#### (-?[0-9.,]+)")


class MathPlan(NamedTuple):
    frame: str
    level: int
    content: Any


def _plan(rng: Random, level: int) -> MathPlan:
    frame = rng.choice(_CHOICES)
    return MathPlan(frame, level, _FRAMES[frame].plan(rng, level))


def _key(plan: MathPlan) -> str:
    """Structure and numbers only; the same text on every platform and Python version."""
    return f"{plan.frame} {_flat(plan.content)}"


def _flat(content: object) -> str:
    return f"({' '.join(map(_flat, content))})" if isinstance(content, tuple) else str(content)


def _write(rng: Random, plan: MathPlan) -> Item | None:
    written = _FRAMES[plan.frame].write(rng, plan.content)
    if written is None:
        return None
    prompt, target = written
    answer = final_answer(target)
    if answer is None:
        raise AssertionError(f"a generated solution has no answer: {target!r}")
    return Item(NAME, _key(plan), prompt, target, plan.level, {"answer": answer})


def final_answer(text: str) -> str | None:
    """The number after the last ####, without commas and a final full stop, as in GSM8K."""
    found = _ANSWER.findall(text)
    return found[-1].replace(",", "").removesuffix(".") if found else None


def _score(item: Item, text: str) -> bool:
    return final_answer(text) == item.meta["answer"]


def _consistent(item: Item, text: str) -> bool:
    return true_equations(text)


SOURCE: TaskSource[MathPlan] = TaskSource(
    NAME, (2, 3, 4), _SIZES, RESPONSE_TOKENS, _plan, _key, _write, _score, consistent=_consistent
)
