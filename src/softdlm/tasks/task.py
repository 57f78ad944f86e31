"""What a task is: items, a score, and a rule that says which split a problem belongs to.

The split is a function of the problem's content (its key), never of a seed. A training stream can therefore
not emit a held-out problem, whatever it is seeded with.

Prompts are plain user text; the chat template is put around them elsewhere. Responses are what stands between
the template and EOS. They start without a space, except in either-or, where the response continues the
sentence of the prompt: " New York" is one token a word, after the template and straight after the prompt.
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
"""Most tokens a prompt may take, with the chat template around it."""
TEMPLATE_TOKENS = 8
"""Tokens of the chat template around one user message, up to where the response begins."""
RESPONSE_TOKENS = 64
"""Most tokens a response may take, with the EOS that ends it."""

_BUCKETS, _TEST, _VALIDATION = 20, 3, 2
_MISSES = 200_000


@dataclass(frozen=True, slots=True)
class Item:
    """One problem. `target` is a reference response: `score(item, item.target)` is always true.

    `key` is the content that decides the split, without names and wording. `level` grades difficulty.
    `meta` holds what the scorer of the task needs.
    """

    task: str
    key: str
    prompt: str
    target: str
    level: int
    meta: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Depends on the prompt alone, so it is the same under every seed and size."""
        return f"{self.task}-{self.level}-{blake2b(self.prompt.encode(), digest_size=6).hexdigest()}"


@dataclass(frozen=True)
class Task:
    """A fixed list of items with their scorer."""

    name: str
    split: Split
    items: tuple[Item, ...]
    max_new_tokens: int
    scorer: Callable[[Item, str], bool]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Item:
        return self.items[index]

    def score(self, item: Item, text: str) -> bool:
        return self.scorer(item, text)

    def score_all(self, items: Sequence[Item], texts: Sequence[str], workers: int | None = None) -> list[bool]:
        """Scores of many texts in order; threads help where scoring waits for a process (mini-code)."""
        if len(items) != len(texts):
            raise ValueError(f"{len(items)} items but {len(texts)} texts: give one text per item")
        with ThreadPoolExecutor(max_workers=workers) as pool:
            return list(pool.map(self.scorer, items, texts))


Plan = TypeVar("Plan")


@dataclass(frozen=True)
class Source(Generic[Plan]):
    """How a task makes problems: a plan (content), its key, and words for it.

    `write` returns None where the words would not fit the token limits; the plan is then drawn again. `score_in` makes
    the scorer for a sandbox, where answers are programs.
    """

    name: str
    levels: tuple[int, ...]
    sizes: Mapping[Split, int]
    max_new_tokens: int
    plan: Callable[[Random, int], Plan]
    key: Callable[[Plan], str]
    write: Callable[[Random, Plan], Item | None]
    score: Callable[[Item, str], bool]
    split_of: Callable[[str], Split]
    score_in: Callable[[Sandbox], Callable[[Item, str], bool]] | None = None


def split_of(key: str) -> Split:
    """15 % of all problems are test, 10 % validation, the rest is for training."""
    bucket = int.from_bytes(blake2b(key.encode(), digest_size=4).digest(), "big") % _BUCKETS
    if bucket < _TEST:
        return "test"
    return "validation" if bucket < _TEST + _VALIDATION else "train"


def draw(source: Source[Plan], rng: Random, split: Split, level: int) -> Item:
    """The next problem of this split and level."""
    while True:
        plan = source.plan(rng, level)
        if source.split_of(source.key(plan)) == split:
            item = source.write(rng, plan)
            if item is not None:
                return item


def draw_distinct(source: Source[Plan], seed: int, split: Split, size: int) -> tuple[Item, ...]:
    """`size` items with distinct keys, levels in turn; a smaller size gives a prefix of a larger one."""
    rng = Random(f"{source.name}/{split}/{seed}")
    items: dict[str, Item] = {}
    misses = 0
    while len(items) < size:
        item = draw(source, rng, split, source.levels[len(items) % len(source.levels)])
        misses += item.key in items
        items.setdefault(item.key, item)
        if misses > _MISSES:
            raise ValueError(f"size {size} is more than {source.name} has in {split}: ask for at most {len(items)}")
    return tuple(items.values())


def stream(source: Source[Plan], seed: int | str) -> Iterator[Item]:
    """Training items without end. Workers that share the labour take different seeds."""
    rng = Random(f"{source.name}/train/{seed}")
    while True:
        yield draw(source, rng, "train", rng.choice(source.levels))
