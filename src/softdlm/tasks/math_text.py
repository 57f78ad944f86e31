"""What the three frames of mini-math share: who is in a problem, equations, the wording of a solution."""

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Style:
    """How a whole solution talks. Steps share it: many ways to say a solution, but one way once it has begun.

    With a free choice at every step, even one token at a time goes wrong: positions far ahead are committed before
    anything says how long the sentences before them will be.
    """

    starts: tuple[str, str]
    """Of the first sentence and of the others."""
    sentence: int
    """Which of a kind's sentences, counted round."""
    plain: bool
    """Sentences that say only the equation."""
    swap: bool
    """Terms of sums and products in the other order."""
    ending: str


def draw_style(rng: Random, plain: bool) -> Style:
    return Style(rng.choice(words.STARTS), rng.randrange(60), plain, rng.random() < 0.5, rng.choice(words.ENDINGS))


def equation(step: Step, swap: bool) -> str:
    a, b = (step.b, step.a) if swap and step.op in "+*" else (step.a, step.b)
    return f"{a}{step.op}{b}={step.r}"


def question(sentences: str) -> str | None:
    return sentences if fits(sentences, _QUESTION_PIECES) else None


def solution(rng: Random, steps: Sequence[Step], sentences: Mapping[str, Sequence[str]]) -> str | None:
    """Steps in words, then the answer after ####; plainer words where there is little room, or None."""
    for plain in (rng.random() < 0.3, True, True):
        style = draw_style(rng, plain)
        text = " ".join(_say(step, sentences, style, step is steps[0]) for step in steps)
        written = f"{text}{style.ending.format(r=steps[-1].r)}\n#### {steps[-1].r}"
        if fits(written, _SOLUTION_PIECES):
            return written
    return None


def _say(step: Step, sentences: Mapping[str, Sequence[str]], style: Style, first: bool) -> str:
    options = words.ANY_STEP if style.plain else sentences[step.kind]
    slots = step.slots | {"e": equation(step, style.swap), "r": step.r}
    return capital(style.starts[not first] + options[style.sentence % len(options)].format_map(slots)) + "."
