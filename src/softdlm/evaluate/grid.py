"""What is to be evaluated, as lists; and the cells that it means, each with its protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

from softdlm.commit import CommitRule
from softdlm.decoding import Decoding
from softdlm.errors import CheckpointError, PromptError, SoftDLMError, TokenizerError, UsageError
from softdlm.evaluate.cell import SINGLE, Cell, ModelSpec, TaskSpec, protocol, task_record
from softdlm.evaluate.paper import Recipe, Source
from softdlm.evaluate.readings import DEFAULT, Readings, words
from softdlm.evaluate.task import EvalTask, load_eval_task
from softdlm.feedback import FeedbackRule
from softdlm.models.load import Checkpoint
from softdlm.records.canonical import digest
from softdlm.records.journal import prompt_digest
from softdlm.registry import leaves_out


@dataclass(frozen=True)
class Grid:
    """Models x tasks x Decodings. What a Decoding leaves out is filled from the recipe, the task, then the checkpoint.

    With `single`, vanilla at one token a step is part of every comparison, for the recovery rates.
    """

    models: tuple[ModelSpec, ...]
    tasks: tuple[TaskSpec, ...]
    decodings: tuple[Decoding, ...]
    recipe: str | None = None
    """`paper`: k, lambda, EOS policy, lengths and Dream's sampling by model family and benchmark."""
    readings: Readings = DEFAULT
    """How the paper is read, with the recipe; MATH-500's headline also without it."""
    single: bool = True

    def __post_init__(self) -> None:
        """Try every value once, so that a bad one is an error before anything is run."""
        for name in ("models", "tasks", "decodings"):
            if not getattr(self, name):
                raise UsageError(f"no {name}: give at least one")
        if self.recipe not in (None, "paper"):
            raise UsageError(f"unknown recipe {self.recipe!r}: the only one is paper")
        if self.recipe is None and (given := [name for name, _ in self.readings.given if name != "math500"]):
            raise UsageError(f"reading {given[0]} needs the recipe paper: give --recipe paper with it")
        list(self.settled(lambda each: each.settled({"feedback": "slerp", "commit": "topn(1)"})))

    def settled(self, settle: Callable[[Decoding], Decoding]) -> Iterator[tuple[Decoding, Decoding]]:
        """Every Decoding as it was given and as it is filled, none twice when filled; vanilla at one token a step
        first where it is wanted.
        """
        first = self.decodings[0]
        single = [replace(first, commit="topn(1)", feedback=SINGLE.feedback, k=None, lam=None)] if self.single else []
        found: list[Decoding] = []
        for asked in [*single, *self.decodings]:
            if (filled := settle(asked)) not in found:
                found.append(filled)
                yield asked, filled

    def outline(self, family: str, *sources: Source) -> list[Cell]:
        """The cells for models of one family, before any of them is found."""
        recipe = Recipe(family, self.readings, self.recipe is not None)
        return [
            Cell(recipe.model(model), recipe.task(task), decoding)
            for model, task in product(self.models, self.tasks)
            for _, decoding in self.settled(partial(recipe.settled, task=task.name, sources=sources))
        ]


def sweep(
    base: Decoding,
    feedback: Sequence[str | FeedbackRule],
    commits: Sequence[str | CommitRule],
    ks: Sequence[int | None] = (None,),
    lams: Sequence[float | None] = (None,),
) -> tuple[Decoding, ...]:
    """Every feedback rule at every strength it has, with every commit rule; the rest as in `base`."""
    made = [
        replace(base, commit=commit, feedback=rule, **_strength(rule, k=k, lam=lam))
        for commit, rule, k, lam in product(commits, feedback, ks, lams)
    ]
    return tuple(_distinct(made))


def _strength(rule: str | FeedbackRule, **wanted: float | None) -> dict[str, Any]:
    """The strength of a spelled rule, without what it lacks or names itself; a rule given as a value keeps its own."""
    if not isinstance(rule, str):
        return {}
    return {name: value for name, value in wanted.items() if value is not None and leaves_out(rule, name)}


def _distinct(decodings: Sequence[Decoding]) -> list[Decoding]:
    """The first of each; compared without hashes, which rules of a user may lack."""
    found: list[Decoding] = []
    for each in decodings:
        if each not in found:
            found.append(each)
    return found


@dataclass(frozen=True)
class Planned:
    """A cell with its whole protocol; `key` is the name of its folder."""

    key: str
    cell: Cell
    protocol: Mapping[str, Any]
    items: tuple[str, ...]
    readings: tuple[str, ...] = ()
    """The names of the readings that make the cell what it is."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """The digest of each item's prompt."""


@dataclass(frozen=True)
class Plan:
    cells: tuple[Planned, ...]
    failures: tuple[str, ...]
    """Models and tasks that cannot be loaded, in one line each; the other cells are run."""


def plan(grid: Grid, finder: Finder | None = None) -> Plan:
    """Find the models and write the prompts, without reading any weights.

    A reading that applies to no cell is an error, unless it may be for a model that was not found.
    """
    finder = finder or Finder()
    (made,) = plans([grid], finder)
    if not made.cells:
        raise finder.failures[0]
    if not made.failures:
        grid.readings.check_used({name for each in made.cells for name in each.readings})
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
    """Each Decoding filled from the recipe for its own commit rule, the task, then the checkpoint."""
    checkpoint, record = finder.model(model)
    recipe = Recipe(checkpoint.source.family, grid.readings, grid.recipe is not None)
    loaded, read = recipe.model(model), recipe.task(spec)
    task, written, lengths = finder.task(model, read)
    sources, items = (task_source(task), checkpoint.own), tuple(item.id for item in task.items)
    prompts = {item.id: prompt_digest(item.prompt) for item in task.items}
    for asked, decoding in grid.settled(partial(recipe.settled, task=spec.name, sources=sources)):
        assert decoding.max_new_tokens is not None
        check_prompts(read, lengths, checkpoint, decoding.max_new_tokens)
        applied = recipe.applied(model, spec, asked, sources)
        cell = Cell(loaded, read, decoding, words(applied))
        whole = protocol(cell, {**record, "attention": loaded.attention}, written)
        yield Planned(digest(whole), cell, whole, items, tuple(applied), prompts)


def task_source(task: EvalTask) -> dict[str, Any]:
    """The fields of a Decoding that a task fills."""
    return {"max_new_tokens": task.max_new_tokens, "eos": task.eos}


def check_prompts(spec: TaskSpec, lengths: Mapping[str, int], found: Checkpoint, max_new_tokens: int) -> None:
    """Refuse a prompt that does not fit before anything is decoded."""
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
