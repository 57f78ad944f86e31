"""either-or: "The location is either New York or San Diego:", answered by one of the two names.

The response continues the sentence, so it starts with a space, and each of its words is one token. Test items are the
paper's 70 prompts (prompts70.json). Training and validation use other pairs of the same words. Half of them are two
names that the paper does not pair; the other half are names shuffled word by word, so that only the prompt says which
words belong together.
"""

from functools import cache
from random import Random
from typing import NamedTuple

from softdlm.tasks.data import read_table
from softdlm.tasks.task import Item, Split, TaskSource, split_of

NAME = "either-or"
_ITEMS: dict[Split, int] = {"train": 1000, "validation": 300, "test": 70}
SIZES = ("two", "three", "four")
TEMPLATES = ("{lead_in} either {a} or {b}. The answer is", "{lead_in} either {a} or {b}:")


class Choice(NamedTuple):
    """A prompt with its two alternatives; each has as many words as there are masks."""

    template: str
    lead_in: str
    a: str
    b: str

    @property
    def masks(self) -> int:
        return len(self.a.split())


@cache
def paper_choices(group: str) -> tuple[Choice, ...]:
    """The prompts of one of the paper's tables ("two", "three", "four") or of Figure 1 ("figure1")."""
    table = read_table("prompts70")[group]
    return tuple(Choice(table["template"], **row) for row in table["rows"])


def paper_items(size: int) -> tuple[Item, ...]:
    """The first `size` of the 70 prompts, in the paper's order."""
    choices = [choice for group in SIZES for choice in paper_choices(group)]
    if size > len(choices):
        raise ValueError(f"size {size} is more than the paper's {len(choices)} prompts: use at most {len(choices)}")
    return tuple(_item(choice, choice.a) for choice in choices[:size])


def figure1_item() -> Item:
    """The prompt of Figure 1, which is not among the 70."""
    (choice,) = paper_choices("figure1")
    return _item(choice, choice.a)


def _key(choice: Choice) -> str:
    """The two alternatives, independent of their order."""
    return " | ".join(sorted((choice.a, choice.b)))


@cache
def _paper_pairs() -> frozenset[str]:
    return frozenset(_key(c) for group in (*SIZES, "figure1") for c in paper_choices(group))


@cache
def _names(masks: int) -> tuple[str, ...]:
    choices = paper_choices(SIZES[masks - 2])
    return tuple(sorted({name for choice in choices for name in (choice.a, choice.b)}))


@cache
def _words(masks: int, place: int) -> tuple[str, ...]:
    return tuple(sorted({name.split()[place] for name in _names(masks)}))


@cache
def _lead_ins() -> tuple[str, ...]:
    return tuple(sorted({c.lead_in for group in (*SIZES, "figure1") for c in paper_choices(group)}))


def _shuffled_name(rng: Random, masks: int) -> str:
    return " ".join(rng.choice(_words(masks, place)) for place in range(masks))


def _plan(rng: Random, masks: int) -> Choice:
    """Two alternatives that differ in at least two words, so that they can be mixed."""
    natural = rng.random() < 0.5
    while True:
        a, b = (rng.choice(_names(masks)) if natural else _shuffled_name(rng, masks) for _ in range(2))
        if sum(x != y for x, y in zip(a.split(), b.split(), strict=True)) >= 2:
            return Choice(rng.choice(TEMPLATES), rng.choice(_lead_ins()), a, b)


def _split_of(key: str) -> Split:
    """The paper's pairs are the test set; 10 % of all others are for validation."""
    if key in _paper_pairs():
        return "test"
    return "validation" if split_of(key) == "validation" else "train"


def _item(choice: Choice, answer: str) -> Item:
    prompt = choice.template.format(lead_in=choice.lead_in, a=choice.a, b=choice.b)
    meta = {"a": choice.a, "b": choice.b}
    return Item(NAME, _key(choice), prompt, f" {answer}", choice.masks, meta)


def _write(rng: Random, choice: Choice) -> Item:
    return _item(choice, rng.choice((choice.a, choice.b)))


def _score(item: Item, text: str) -> bool:
    """True for either alternative as a whole; a mixture of the two is wrong."""
    return text.strip() in (item.meta["a"], item.meta["b"])


SOURCE: TaskSource[Choice] = TaskSource(NAME, (2, 3, 4), _ITEMS, 4, _plan, _key, _write, _score, _split_of)
