"""Tasks: items, a score, and a rule that assigns each problem to a split.

The split depends on the problem's content (its key) and never on a seed. So a training stream cannot contain a held-out
problem, with any seed.

Prompts are plain user text; the chat template is added elsewhere. A response is the text between the template and EOS.
It starts without a space, except in either-or, where it continues the sentence of the prompt: each word of " New York"
is one token, with and without the template.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Generic, Literal, TypeVar

from softdlm.sandbox.run import Sandbox

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

PROMPT_TOKENS = 64
"""Most tokens of a prompt, chat template included."""
TEMPLATE_TOKENS = 8
"""Tokens of the chat template around one user message, up to the start of the response."""
RESPONSE_TOKENS = 64
"""Most tokens of a response, EOS included."""

_BUCKETS, _TEST, _VALIDATION = 20, 3, 2
_MISSES = 200_000
_MOST = 1_000_000
"""Items of a generated task: a size beyond is refused at once, not after a minute of drawing."""


@dataclass(frozen=True, slots=True)
class Item:
    """One problem. `target` is a reference response, so `score(item, item.target)` is true.

    `key` is the content without names and wording; it decides the split. `level` is the difficulty. `meta` holds what
    the task's scorer needs.
    """

    task: str
    key: str
    prompt: str
    target: str
    level: int
    meta: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Identifier that depends on the prompt only, so it is the same for every seed and size."""
        return f"{self.task}-{self.level}-{blake2b(self.prompt.encode(), digest_size=6).hexdigest()}"


@dataclass(frozen=True)
class Task:
    """A fixed list of items with their scorer."""

    name: str
    split: Split
    items: tuple[Item, ...]
    max_new_tokens: int
    scorer: Callable[[Item, str], bool]
    consistent: Callable[[Item, str], bool] | None = None
    """Whether an answer agrees with itself (consistency.py); None where answers cannot contradict themselves."""

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Item:
        return self.items[index]

    def score(self, item: Item, text: str) -> bool:
        return self.scorer(item, text)

    def score_all(self, items: Sequence[Item], texts: Sequence[str]) -> list[bool]:
        """Scores of many texts, in order. Threads help where scoring waits for a process (mini-code)."""
        if len(items) != len(texts):
            raise ValueError(f"there are {len(items)} items but {len(texts)} texts: give one text per item")
        with ThreadPoolExecutor() as pool:
            return list(pool.map(self.scorer, items, texts))


def split_of(key: str) -> Split:
    """15 % of all problems are for test, 10 % for validation, the rest for training."""
    bucket = int.from_bytes(blake2b(key.encode(), digest_size=4).digest(), "big") % _BUCKETS
    if bucket < _TEST:
        return "test"
    return "validation" if bucket < _TEST + _VALIDATION else "train"


ProblemPlan = TypeVar("ProblemPlan")


@dataclass(frozen=True)
class TaskSource(Generic[ProblemPlan]):
    """The generator of a task: draws a plan (the content), gives its key, and words it.

    `write` returns None if the text exceeds the token limits; another plan is then drawn. For tasks whose answers are
    programs, `score_in` makes the scorer for a sandbox.
    """

    name: str
    levels: tuple[int, ...]
    sizes: Mapping[Split, int]
    max_new_tokens: int
    plan: Callable[[Random, int], ProblemPlan]
    key: Callable[[ProblemPlan], str]
    write: Callable[[Random, ProblemPlan], Item | None]
    score: Callable[[Item, str], bool]
    split_of: Callable[[str], Split] = split_of
    score_in: Callable[[Sandbox], Callable[[Item, str], bool]] | None = None
    consistent: Callable[[Item, str], bool] | None = None


def draw(source: TaskSource[ProblemPlan], rng: Random, split: Split, level: int) -> Item:
    """Draw the next problem of this split and level."""
    while True:
        plan = source.plan(rng, level)
        if source.split_of(source.key(plan)) == split:
            item = source.write(rng, plan)
            if item is not None:
                return item


def draw_distinct(source: TaskSource[ProblemPlan], seed: int, split: Split, size: int) -> tuple[Item, ...]:
    """`size` items with distinct keys, cycling through the levels; a smaller size gives a prefix of a larger one."""
    if size > _MOST:
        raise ValueError(f"size {size} is more than a generated task may have: use at most {_MOST}")
    rng = Random(f"{source.name}/{split}/{seed}")
    items: dict[str, Item] = {}
    misses = 0
    while len(items) < size:
        item = draw(source, rng, split, source.levels[len(items) % len(source.levels)])
        misses += item.key in items
        items.setdefault(item.key, item)
        if misses > _MISSES:
            raise ValueError(f"size {size} is more than {source.name} has in {split}: use at most {len(items)}")
    return tuple(items.values())


def stream(source: TaskSource[ProblemPlan], seed: int | str) -> Iterator[Item]:
    """Endless training items. Parallel workers need different seeds."""
    rng = Random(f"{source.name}/train/{seed}")
    while True:
        yield draw(source, rng, "train", rng.choice(source.levels))
