"""Shared by the three kinds of mini-math problems: people, equations, and the wording of solutions."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, floordiv, mul, sub
from random import Random

from softdlm.tasks import math_words as words
from softdlm.tasks.pretokens import fits
from softdlm.tasks.task import PROMPT_TOKENS, RESPONSE_TOKENS, TEMPLATE_TOKENS

LARGEST = 199
_QUESTION_PIECES = PROMPT_TOKENS - TEMPLATE_TOKENS
_SOLUTION_PIECES = RESPONSE_TOKENS - 1
_OPERATIONS = {"+": add, "-": sub, "*": mul, "/": floordiv}
Slots = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation `a op b = r`. `kind` selects the sentences that word it, `slots` fills them in."""

    kind: str
    op: str
    a: int
    b: int
    slots: Slots

    @property
    def r(self) -> int:
        return _OPERATIONS[self.op](self.a, self.b)

    def sound(self) -> bool:
        """Whether the result is from 0 to LARGEST and has no remainder."""
        return 0 <= self.r <= LARGEST and (self.op != "/" or self.a == self.b * self.r)


def cast(rng: Random) -> Slots:
    """The people and things of a problem. The friend has the other pronoun, so that "she" and "he" are clear."""
    she, he = rng.choice(words.SHE), rng.choice(words.HE)
    name, friend = (she, he) if rng.random() < 0.5 else (he, she)
    x, y = rng.sample(words.COLOURS, 2)
    things, containers = rng.choice(words.THINGS), rng.choice(words.CONTAINERS)
    return {"N": name, "S": name, "F": friend, "o": things, "c": containers, "x": x, "y": y}


def pronoun_or_name(rng: Random, name: str) -> str:
    return words.PRONOUNS[name] if rng.random() < 0.6 else name


def capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


@dataclass(frozen=True, slots=True)
class Style:
    """The style of a whole solution. It varies between solutions but not between the steps of one.

    With a new style at every step, even decoding one token at a time fails: later positions are committed before the
    length of the sentences before them is known.
    """

    starts: tuple[str, str]
    """How the first sentence starts, and how the others start."""
    sentence: int
    """Index into the sentences of a kind, modulo their number."""
    plain: bool
    """Whether sentences state the equation only."""
    swap: bool
    """Whether the terms of sums and products are swapped."""
    ending: str


def draw_style(rng: Random, plain: bool) -> Style:
    return Style(rng.choice(words.STARTS), rng.randrange(60), plain, rng.random() < 0.5, rng.choice(words.ENDINGS))


def equation(step: Equation, swap: bool) -> str:
    a, b = (step.b, step.a) if swap and step.op in "+*" else (step.a, step.b)
    return f"{a}{step.op}{b}={step.r}"


def problem(
    rng: Random, question: str, steps: Sequence[Equation], sentences: words.Sentences
) -> tuple[str, str] | None:
    """Question and worded solution, or None if one of them does not fit."""
    solved = _solution(rng, steps, sentences) if fits(question, _QUESTION_PIECES) else None
    return (question, solved) if solved else None


def _solution(rng: Random, steps: Sequence[Equation], sentences: words.Sentences) -> str | None:
    """The steps in words, then the answer after ####; in plain style if space is short, None if it does not fit."""
    for plain in (rng.random() < 0.3, True, True):
        style = draw_style(rng, plain)
        text = " ".join(_say(step, sentences, style, step is steps[0]) for step in steps)
        written = f"{text}{style.ending.format(r=steps[-1].r)}\n#### {steps[-1].r}"
        if fits(written, _SOLUTION_PIECES):
            return written
    return None


def _say(step: Equation, sentences: words.Sentences, style: Style, first: bool) -> str:
    options = words.ANY_STEP if style.plain else sentences[step.kind]
    slots = step.slots | {"e": equation(step, style.swap), "r": step.r}
    return capital(style.starts[not first] + options[style.sentence % len(options)].format_map(slots)) + "."
