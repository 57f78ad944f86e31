"""What the three frames of mini-math share: who is in a problem, equations, the wording of a solution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import add, floordiv, mul, sub
from random import Random

from softdlm.tasks import math_words as words
from softdlm.tasks.pieces import fits
from softdlm.tasks.task import PROMPT_TOKENS, RESPONSE_TOKENS, TEMPLATE_TOKENS

LARGEST = 999
_QUESTION_PIECES = PROMPT_TOKENS - TEMPLATE_TOKENS
_SOLUTION_PIECES = RESPONSE_TOKENS - 1
_OPERATIONS = {"+": add, "-": sub, "*": mul, "/": floordiv}
Slots = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Step:
    """One equation `a op b = r`; `kind` names the sentences that can say it, `slots` what they mention."""

    kind: str
    op: str
    a: int
    b: int
    slots: Slots

    @property
    def r(self) -> int:
        return _OPERATIONS[self.op](self.a, self.b)

    def sound(self) -> bool:
        """Non-negative, within bounds, and without remainder."""
        return 0 <= self.r <= LARGEST and (self.op != "/" or self.a == self.b * self.r)


def cast(rng: Random) -> Slots:
    """Who and what a problem is about. The friend takes the other pronoun: "she" and "he" are clear."""
    she, he = rng.choice(words.SHE), rng.choice(words.HE)
    name, friend = (she, he) if rng.random() < 0.5 else (he, she)
    x, y = rng.sample(words.COLOURS, 2)
    things, containers = rng.choice(words.THINGS), rng.choice(words.CONTAINERS)
    return {"N": name, "S": name, "F": friend, "o": things, "c": containers, "x": x, "y": y}


def pronoun_or_name(rng: Random, name: str) -> str:
    return words.PRONOUNS[name] if rng.random() < 0.6 else name


def capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def times(rng: Random, k: int) -> str:
    return rng.choice(words.TIMES[k])


def equation(rng: Random, step: Step) -> str:
    """Sums and products in either order of their terms."""
    a, b = step.a, step.b
    if step.op in "+*" and rng.random() < 0.5:
        a, b = b, a
    return f"{a}{step.op}{b}={step.r}"


def question(sentences: str) -> str | None:
    return sentences if fits(sentences, _QUESTION_PIECES) else None


def solution(rng: Random, steps: Sequence[Step], sentences: Mapping[str, Sequence[str]]) -> str | None:
    """Steps in words, then the answer after ####; plainer words where there is little room, or None."""
    for plain in (0.2, 0.5, 1.0):
        text = " ".join(_say(rng, step, sentences, plain, step is steps[0]) for step in steps)
        end = rng.choice(words.ENDINGS).format(r=steps[-1].r)
        for candidate in (f"{text}{end}\n#### {steps[-1].r}", f"{text}\n#### {steps[-1].r}"):
            if fits(candidate, _SOLUTION_PIECES):
                return candidate
    return None


def _say(rng: Random, step: Step, sentences: Mapping[str, Sequence[str]], plain: float, first: bool) -> str:
    start = rng.choice(words.FIRST_STARTS if first else words.STEP_STARTS)
    options = words.ANY_STEP if rng.random() < plain else sentences[step.kind]
    slots = step.slots | {"e": equation(rng, step), "r": step.r}
    return capital(start + rng.choice(options).format_map(slots)) + "."
