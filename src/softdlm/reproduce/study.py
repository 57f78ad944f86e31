"""A study: one model, its tasks, how much is measured, and how the paper is read. Every choice is made once, here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from softdlm.commit import rate_label
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.evaluate import paper
from softdlm.evaluate.cell import BENCHMARKS, ModelSpec, TaskSpec
from softdlm.evaluate.grid import Grid, sweep
from softdlm.evaluate.paper import Recipe
from softdlm.evaluate.readings import DEFAULT, Readings
from softdlm.models.own_settings import OwnSettings
from softdlm.registry import build

STAND_INS: dict[str, paper.Domain] = {"mini-math": "math", "mini-code": "code"}
"""Built-in tasks that take the places of the benchmarks of a domain."""
TITLES = {"gsm8k": "GSM8K", "math500": "MATH-500", "humaneval": "HumanEval", "mbpp": "MBPP"}
MODELS = {
    "GSAI-ML/LLaDA-8B-Instruct": "LLaDA",
    "GSAI-ML/LLaDA-1.5": "LLaDA-1.5",
    "inclusionAI/LLaDA2.0-mini": "LLaDA-2.0-mini",
    "Dream-org/Dream-v0-Instruct-7B": "Dream",
}
"""The models that the paper measured, and what it calls them."""
NEAREST = {"llada": "LLaDA", "llada2_moe": "LLaDA-2.0-mini", "Dream": "Dream"}
"""Family -> the paper's model whose numbers are shown beside a model that the paper did not measure; else LLaDA's."""
Grids = list[Grid]


def steps(*numbers: int) -> tuple[str, ...]:
    """Spelled commit rules of so many tokens a step."""
    return tuple(f"topn({n})" for n in numbers)


def rate_title(commit: str) -> str:
    """A spelled commit rule in a table's words: `4 a step`, `entropy bound 0.1`, whatever its rank."""
    return rate_label(build("commit", commit))


@dataclass(frozen=True)
class Printed:
    """The paper's model whose printed numbers are shown beside ours."""

    model: str
    same: bool
    """True where it is the model measured here; otherwise its numbers are for orientation only."""

    def value(self, numbers: Mapping[str, Any], *path: str | int) -> Any:
        """A number or a row of them from a table's numbers (model -> ...); None where the paper prints nothing."""
        found: Any = numbers.get(self.model)
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        return found


@dataclass(frozen=True)
class Scale:
    """How much is measured. None means everything there is."""

    name: str
    items: Mapping[str, int | None] = field(default_factory=lambda: {"math": None, "code": None})
    """Test items of each task, by domain."""
    prompts: int | None = None
    """How many of the paper's 70 prompts."""
    geometry: int = 100
    completions: int = 100
    agreement: int = 100
    lams: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    ks: tuple[int, ...] = (1, 2, 3, 4, 8)
    thresholds: tuple[float, ...] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
    bounds: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.4, 0.8)
    frontier: tuple[str, ...] = ("vanilla", "slerp")
    rivals: tuple[str, ...] = (
        *(f"topn({n})" for n in (1, 2, 4, 8, 16)),
        *(f"entropy({gamma})" for gamma in (0.02, 0.1, 0.3)),
        *(f"threshold({tau})" for tau in (0.9, 0.95)),
    )
    """Commit rules under which the rules of others are compared."""
    search: int | None = 300
    """Items that a search for settings is made on."""
    search_rates: tuple[str, ...] = steps(2, 4, 8)
    """Commit rules of the paper's search for k and lambda."""
    rival_rates: tuple[str, ...] = ("topn(4)", "topn(8)", "entropy(0.1)")
    """Commit rules of the search for the settings of the rules of others."""
    mark: str = ""
    """Shown on every output, such as that the run was quick; empty for a full run."""

    def capped(self, limit: int) -> Scale:
        """The same scale with at most `limit` items, prompts and completions of each kind."""
        if limit < 1:
            raise UsageError(f"limit must be at least 1, not {limit}")
        sizes = ("geometry", "completions", "agreement", "search")
        least = {name: min(limit, getattr(self, name) or limit) for name in sizes}
        items = {domain: min(limit, size or limit) for domain, size in self.items.items()}
        mark = ", ".join(part for part in (self.mark, f"at most {limit} items of each kind") if part)
        return replace(self, items=items, prompts=min(limit, self.prompts or limit), mark=mark, **least)


FULL = Scale("full")
QUICK = Scale(
    "quick", items={"math": 16, "code": 10}, geometry=8, completions=3, agreement=8, lams=(0.1, 0.3, 0.5, 0.7),
    ks=(2, 3, 4), thresholds=(0.7, 0.9), bounds=(0.1, 0.4), rivals=("topn(16)",), search=2,
    search_rates=("topn(8)",), rival_rates=("topn(16)",), mark="quick run, few items",
)  # fmt: skip


@dataclass(frozen=True)
class Study:
    model: ModelSpec
    family: str
    tasks: tuple[str, ...]
    scale: Scale = FULL
    readings: Readings = DEFAULT
    """How the paper is read where it leaves something open."""
    own: OwnSettings = field(default_factory=OwnSettings)
    """The checkpoint's own settings; its k and lambda are used on tasks that the paper does not have."""
    max_new_tokens: int | None = None
    data_dir: str | None = None
    allow_unsandboxed: bool = False
    batch_size: int | None = None

    def __post_init__(self) -> None:
        unknown = [task for task in self.tasks if task not in (*STAND_INS, *BENCHMARKS)]
        if unknown or not self.tasks:
            known = ", ".join((*STAND_INS, *BENCHMARKS))
            raise UsageError(f"tasks {', '.join(unknown) or '(none)'} take no place in the paper's tables: use {known}")

    @staticmethod
    def of(
        model: str,
        *,
        quick: bool = False,
        limit: int | None = None,
        tasks: Sequence[str] | None = None,
        device: str | None = None,
        dtype: str | None = None,
        batch_size: int | None = None,
        loading: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Study:
        """The study of a model by name; `loading` holds further keywords of ModelSpec, `more` of Study.

        The built-in model is small, so it runs in float32, and on a GPU in large batches.
        """
        small = model == "builtin"
        spec = ModelSpec.of(model, device=device, dtype=dtype or ("float32" if small else None), **(loading or {}))
        on_gpu = not spec.device.startswith("cpu")
        scale = QUICK if quick else FULL
        checkpoint = spec.checkpoint()
        return Study(
            spec,
            checkpoint.source.family,
            tuple(tasks or (STAND_INS if small else BENCHMARKS)),
            scale if limit is None else scale.capped(limit),
            own=checkpoint.own,
            batch_size=batch_size or (256 if small and on_gpu else None),
            **more,
        )

    @property
    def recipe(self) -> Recipe:
        """The paper's settings for this model, as they are read."""
        return Recipe(self.family, self.readings)

    @property
    def loaded(self) -> ModelSpec:
        """The model as the recipe loads it."""
        return self.recipe.model(self.model)

    @property
    def chat(self) -> bool:
        """Whether the controlled prompts (Figure 1, Tables 1 and 4) stand inside the chat template."""
        return self.readings.value("prompts") == "chat"

    @property
    def chat_lead(self) -> str:
        """What stands before the alternatives of a controlled prompt inside the chat template: none or space."""
        return self.readings.value("chat-lead")

    @property
    def sensitivity_rate(self) -> int:
        """Tokens a step in Figure 2; the paper does not print them."""
        return int(self.readings.value("figure2-rate"))

    @property
    def adaptive_items(self) -> str:
        """Which items of GSM8K Table 6 is measured on: first-500 or full."""
        return self.readings.value("table6-items")

    @property
    def printed(self) -> Printed:
        """The paper's model whose numbers are shown beside ours."""
        return Printed(MODELS.get(self.model.name) or NEAREST.get(self.family, "LLaDA"), self.model.name in MODELS)

    @property
    def title(self) -> str:
        """What the model is called in tables."""
        return "the built-in model" if self.model.name == "builtin" else self.model.name.rstrip("/").split("/")[-1]

    def places(self, *benchmarks: str) -> dict[str, str]:
        """The tasks that are, or stand for, these benchmarks of the paper: task -> benchmark.

        A built-in task stands for the first of them that is of its domain.
        """
        found = {}
        for task in self.tasks:
            domain = domain_of(task)
            stands = task in STAND_INS
            like = [name for name in benchmarks if name == task or (stands and paper.DOMAINS[name] == domain)]
            if like:
                found[task] = like[0]
        return found

    def spec(self, task: str, most: int | None = None, split: str = "test") -> TaskSpec:
        """How a task is loaded, with at most `most` items."""
        sizes = [size for size in (self.scale.items[domain_of(task)], most) if size is not None]
        return TaskSpec(task, split, min(sizes) if sizes else None, self.data_dir, self.allow_unsandboxed)

    def grids(
        self,
        tasks: Iterable[str],
        methods: Sequence[str],
        commits: Sequence[str],
        *,
        most: int | None = None,
        split: str = "test",
        single: bool = False,
        **strengths: Any,
    ) -> Grids:
        """Cells with the paper's settings, of spelled rules: one grid, or none where there is no task.

        `most` limits the items, `single` adds vanilla at one token a step, and in `strengths` `ks` and `lams` replace
        the task's own.
        """
        specs = tuple(self.spec(task, most, split) for task in tasks)
        decodings = sweep(Decoding(max_new_tokens=self.max_new_tokens), methods, commits, **strengths)
        return [Grid((self.model,), specs, decodings, "paper", self.readings, single)] if specs else []

    def strength(self, task: str) -> tuple[int, float]:
        """k and lambda of a task in the accuracy tables: the paper's, else the checkpoint's own, else SLERP's."""
        slerp: Any = self.recipe.settled(Decoding(feedback="slerp"), task, [self.own]).feedback
        return slerp.k, slerp.lam

    def record(self) -> dict[str, Any]:
        """Every choice, as JSON values for the report."""
        shown = {name: value for name, value in asdict(self).items() if name != "scale"}
        strengths = {task: dict(zip(("k", "lam"), self.strength(task), strict=True)) for task in self.tasks}
        read = self.readings.record()
        return {**shown, "readings": read, "strength": strengths, "scale": asdict(self.scale)}


def titles(studies: Sequence[Study]) -> list[str]:
    """What the models of several studies are called; those of one name by their place or number as well."""
    names = [study.title for study in studies]
    whole = [study.model.name if names.count(name) > 1 else name for study, name in zip(studies, names, strict=True)]
    return [f"{name} ({number})" if whole.count(name) > 1 else name for number, name in enumerate(whole, 1)]


def strength_words(study: Study, tasks: Iterable[str]) -> str:
    """k and lambda of the soft tokens, written once where all tasks share them."""
    found = {task: "k = {}, λ = {:g}".format(*study.strength(task)) for task in tasks}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{each} ({task_title(task)})" for task, each in found.items())


def domain_of(task: str) -> paper.Domain:
    """The domain of a built-in task, a benchmark, or a variant of a benchmark."""
    return STAND_INS[task] if task in STAND_INS else paper.DOMAINS[paper.benchmark(task) or task]


def task_title(task: str) -> str:
    """The usual name of a benchmark or of its variant; other tasks keep their own."""
    return TITLES.get(paper.benchmark(task) or "", task)
