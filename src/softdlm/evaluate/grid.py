"""What was asked for, as lists; and the cells that it means, each with its protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from softdlm.cache import CacheKind
from softdlm.commit import Rank
from softdlm.errors import CheckpointError, PromptError, SoftDLMError, TokenizerError, UsageError
from softdlm.evaluate import paper
from softdlm.evaluate.cell import (
    SINGLE,
    Cell,
    Decoding,
    EosWord,
    ModelSpec,
    Rate,
    Reading,
    TaskSpec,
    protocol,
    short_digest,
    task_record,
)
from softdlm.evaluate.task import EvalTask, load_eval_task
from softdlm.feedback import FeedbackRule
from softdlm.methods import feedback_rule
from softdlm.models.denoiser import Strength
from softdlm.models.load import Checkpoint


@dataclass(frozen=True)
class Grid:
    """Models x tasks x methods x rates. None leaves a setting to the recipe, then to the task.

    A method is a name (softdlm.methods) or a pair of a name and a rule of your own. With `single`, vanilla at one
    token a step is part of every comparison, for the recovery rates.
    """

    models: tuple[ModelSpec, ...]
    tasks: tuple[TaskSpec, ...]
    methods: tuple[str | tuple[str, FeedbackRule], ...] = ("vanilla", "euclidean", "slerp")
    rates: tuple[Rate, ...] = (Rate("tokens_per_step", 4),)
    ks: tuple[int, ...] | None = None
    lams: tuple[float, ...] | None = None
    recipe: Literal["paper"] | None = None
    reading: Reading | None = None
    rank: Rank | None = None
    eos: EosWord | None = None
    block_length: int | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int = 0
    single: bool = True
    cache: CacheKind | None = None
    refresh: int | None = None
    renew: int = 1

    def __post_init__(self) -> None:
        """Try every value once, so that a bad one is an error before anything is run."""
        for name in ("models", "tasks", "methods", "rates"):
            if not getattr(self, name):
                raise UsageError(f"no {name}: give at least one")
        if self.recipe not in (None, "paper"):
            raise UsageError(f"unknown recipe {self.recipe!r}: paper is the one there is")
        if self.reading is not None and (self.recipe is None or self.reading not in paper.READINGS):
            raise UsageError(f"reading {self.reading!r}: one of {', '.join(paper.READINGS)}, with the recipe paper")
        list(self.decodings(paper.Setting(), 1 if self.max_new_tokens is None else self.max_new_tokens, "allow"))

    def setting(self, family: str, task: str, own: Strength) -> paper.Setting:
        return paper.Setting(*own) if self.recipe is None else paper.setting(family, task, self.reading, own)

    def decodings(self, setting: paper.Setting, max_new_tokens: int, eos: EosWord) -> Iterator[Decoding]:
        """Every decoding of one model on one task, vanilla at one token a step first; none comes twice."""
        seen = []
        rates = [(SINGLE, ["vanilla"])] if self.single else []
        for rate, methods in [*rates, *((rate, self.methods) for rate in self.rates)]:
            for name, rule in self._feedback(methods, setting):
                each = self._decoding(name, rule, rate, setting, max_new_tokens, eos)
                if each not in seen:
                    seen.append(each)
                    yield each

    def _feedback(self, methods: Any, setting: paper.Setting) -> Iterator[tuple[str, FeedbackRule]]:
        """Each method at each strength it has."""
        for method in methods:
            if not isinstance(method, str):
                yield method
                continue
            for k in self.ks or (setting.k,):
                for lam in self.lams or (setting.lam,):
                    yield method, feedback_rule(method, k, lam)

    def _decoding(
        self, name: str, rule: FeedbackRule, rate: Rate, setting: paper.Setting, max_new_tokens: int, eos: EosWord
    ) -> Decoding:
        return Decoding(
            method=name,
            feedback=rule,
            rate=rate,
            commit=paper.commit(rate, self.rank, setting.reading, max_new_tokens),
            max_new_tokens=max_new_tokens,
            eos=self.eos or eos,
            block_length=self.block_length,
            rank=self.rank,
            reading=setting.reading,
            temperature=setting.temperature if self.temperature is None else self.temperature,
            top_p=setting.top_p if self.top_p is None else self.top_p,
            seed=self.seed,
            cache=self.cache,
            refresh=self.refresh,
            renew=self.renew,
        )


@dataclass(frozen=True)
class Planned:
    """A cell with its whole protocol; `key` is the name of its folder."""

    key: str
    cell: Cell
    protocol: Mapping[str, Any]
    items: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    cells: tuple[Planned, ...]
    failures: tuple[str, ...]
    """Models and tasks that cannot be had, in one line each: they do not cost the others."""


def plan(grid: Grid) -> Plan:
    """Find the models and write the prompts, without reading any weights."""
    finder = Finder()
    (made,) = plans([grid], finder)
    if not made.cells:
        raise finder.failures[0]
    return made


def plans(grids: Sequence[Grid], finder: Finder | None = None) -> list[Plan]:
    """A plan for each grid, in which equal cells have equal keys; every model and task is found once for all."""
    finder = finder or Finder()
    return [_plan(grid, finder) for grid in grids]


def join(made: Sequence[Plan]) -> Plan:
    """Everything that several plans ask for, each cell once."""
    cells = {each.key: each for one in made for each in one.cells}
    return Plan(tuple(cells.values()), tuple(dict.fromkeys(failure for one in made for failure in one.failures)))


def _plan(grid: Grid, finder: Finder) -> Plan:
    cells: dict[str, Planned] = {}
    before = len(finder.failures)
    for model in grid.models:
        for task in grid.tasks:
            try:
                for each in _cells(grid, model, finder, task):
                    cells.setdefault(each.key, each)
            except (CheckpointError, TokenizerError, PromptError) as error:
                finder.failures.append(error)
    return Plan(tuple(cells.values()), tuple(dict.fromkeys(map(str, finder.failures[before:]))))


@dataclass
class Finder:
    """Checkpoints and tasks that were found already, and the errors of those that were not."""

    failures: list[SoftDLMError] = field(default_factory=list)
    _found: dict[Any, Any] = field(default_factory=dict)

    def model(self, spec: ModelSpec) -> tuple[Checkpoint, dict[str, Any]]:
        """The checkpoint and its record."""
        return self._once(spec, lambda: (found := spec.checkpoint(), spec.record(found)))

    def task(self, model: ModelSpec, spec: TaskSpec) -> tuple[EvalTask, dict[str, Any], dict[str, int]]:
        """The task with prompts for this model, its record, and the prompts' lengths."""
        checkpoint, _ = self.model(model)

        def find() -> tuple[EvalTask, dict[str, Any], dict[str, int]]:
            task = load_eval_task(spec, checkpoint)
            return task, task_record(task), prompt_lengths(checkpoint.tokenizer, task)

        return self._once((model, spec), find)

    def _once(self, key: Any, find: Callable[[], Any]) -> Any:
        """What cannot be found is not looked for again, but raised again."""
        if key not in self._found:
            try:
                self._found[key] = find()
            except (CheckpointError, TokenizerError) as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, SoftDLMError):
            raise found
        return found


def _cells(grid: Grid, model: ModelSpec, finder: Finder, spec: TaskSpec) -> Iterator[Planned]:
    checkpoint, record = finder.model(model)
    family = checkpoint.source.family
    if grid.recipe is not None:
        spec = replace(spec, name=paper.variant(family, spec.name))
    task, written, lengths = finder.task(model, spec)
    setting = grid.setting(family, spec.name, checkpoint.strength)
    length = grid.max_new_tokens or setting.max_new_tokens or task.max_new_tokens
    check_prompts(spec, lengths, checkpoint, length)
    items = tuple(item.id for item in task.items)
    for decoding in grid.decodings(setting, length, setting.eos or task.eos):
        cell = Cell(model, spec, decoding)
        whole = protocol(cell, record, written)
        yield Planned(short_digest(whole), cell, whole, items)


def check_prompts(spec: TaskSpec, lengths: Mapping[str, int], found: Checkpoint, max_new_tokens: int) -> None:
    """A prompt that does not fit is said now, not an hour into the run."""
    longest = max(lengths, key=lambda name: lengths[name])
    if lengths[longest] + max_new_tokens > found.max_length:
        raise PromptError(
            f"{spec.name} on {found.source.name}: item {longest} has {lengths[longest]} tokens and may take "
            f"{max_new_tokens} more, the model's context is {found.max_length}"
        )


def prompt_lengths(tokenizer: Any, task: EvalTask) -> dict[str, int]:
    """Tokens of every prompt, by item."""
    texts = [item.prompt for item in task.items]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return {item.id: len(each) for item, each in zip(task.items, ids, strict=True)}
