"""The paper's decoding settings (appendix A), by model family, benchmark and commit rule, under readings.

Families are named by their `model_type`: llada (LLaDA, LLaDA-1.5), llada2_moe (LLaDA-2.0-mini) and Dream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

from softdlm import registry
from softdlm.commit import CommitRule, EntropyBound, Factor, Rank, Threshold, TopN
from softdlm.decoding import Decoding, EosPolicy
from softdlm.evaluate.cell import ModelSpec, TaskSpec, is_file
from softdlm.evaluate.readings import DEFAULT, DREAM, LLADA, LLADA2, Part, Readings
from softdlm.models.attention import Attention
from softdlm.models.own_settings import OwnSettings

Domain = Literal["math", "code"]
Source = Mapping[str, Any] | OwnSettings
"""Values for fields that a Decoding leaves out, such as those of a task, or of a checkpoint."""
DOMAINS: dict[str, Domain] = {"gsm8k": "math", "math500": "math", "humaneval": "code", "mbpp": "code"}
WITH_SHOTS = ("gsm8k", "math500", "mbpp")
"""Benchmarks that LLaDA families are asked with examples."""
RATES = (1, 2, 4, 8)
"""Tokens a step; 1 is single-token prediction."""


@dataclass(frozen=True)
class Setting:
    """What the paper sets for one benchmark; None leaves a field to the task and to the checkpoint."""

    k: int | None = None
    lam: float | None = None
    eos: EosPolicy | None = None
    shots: int | None = None
    max_new_tokens: int | None = None
    rank: Rank | None = None
    temperature: float | None = None
    top_p: float | None = None
    confidence: str | None = None
    last_candidates: bool | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a Decoding that it fills."""
        return {name: value for name, value in asdict(self).items() if name != "shots"}


_SETTINGS: dict[tuple[str, str | None], Setting] = {
    ("llada", "gsm8k"): Setting(2, 0.3, "last", 5, 512),
    ("llada", "math500"): Setting(2, 0.3, "last", 4, 512),
    ("llada", "humaneval"): Setting(3, 0.3, "forbid-first", 0, 512),
    ("llada", "mbpp"): Setting(3, 0.3, "last", 3, 256),
    ("Dream", "gsm8k"): Setting(3, 0.1, "allow", 0, 256),
    ("Dream", "math500"): Setting(3, 0.1, "allow", 0, 512),
    ("Dream", "humaneval"): Setting(2, 0.3, "allow", 0, 768),
    ("Dream", "mbpp"): Setting(2, 0.3, "allow", 0, 1024),
}


def setting(family: str, task: str, readings: Readings = DEFAULT, *, adaptive: bool = False) -> Setting:
    """The setting of a benchmark, or a variant of one (`gsm8k-...`), for a family.

    `adaptive` is for commit rules whose rate depends on the prediction.
    """
    like = DREAM if family == DREAM else LLADA
    found = _SETTINGS.get((like, benchmark(task)), Setting())
    if like == DREAM:
        return replace(found, **_drawn(readings, adaptive))
    eos = _eos(found.eos, family, benchmark(task), readings, adaptive)
    hidden = eos == "last" and readings.value("last-candidates") == "no"
    return replace(found, eos=eos, last_candidates=False if hidden else None)


def _drawn(readings: Readings, adaptive: bool) -> dict[str, Any]:
    """How Dream's tokens are drawn and ranked."""
    if readings.value("dream") == "dream-greedy":
        return {}
    untempered = adaptive and readings.value("adaptive") == "untempered"
    drawn = {"rank": "entropy", "temperature": 0.1, "top_p": 0.9}
    return drawn | ({"confidence": "untempered"} if untempered else {})


def _eos(
    policy: EosPolicy | None, family: str, name: str | None, readings: Readings, adaptive: bool
) -> EosPolicy | None:
    """The EOS policy of the LLaDA families; None for tasks that the paper does not have."""
    if adaptive and name == "gsm8k":
        return cast(EosPolicy, readings.value("adaptive-eos"))
    if family == LLADA2 and policy is not None and readings.value("llada2-eos") == "allow":
        return "allow"
    return policy


def is_adaptive(rule: CommitRule) -> bool:
    """Whether a rule, or one inside it, commits as many tokens as the prediction is sure of."""
    return any(isinstance(each, Threshold | EntropyBound | Factor) for each in registry.inside(rule))


@dataclass(frozen=True)
class Recipe:
    """How a model family is evaluated: with the paper's settings under readings, or (`used=False`) without them."""

    family: str
    readings: Readings = DEFAULT
    used: bool = True

    def attention(self, chosen: Attention) -> Attention:
        """LLaDA-2.0-mini's is the reading's where none is chosen."""
        if not self.used or self.family != LLADA2 or chosen != "auto":
            return chosen
        return cast(Attention, self.readings.value("llada2-attention"))

    def model(self, spec: ModelSpec) -> ModelSpec:
        """How the model is loaded."""
        return replace(spec, attention=self.attention(spec.attention))

    def variant(self, task: str) -> str:
        """The benchmark with the prompts of this family and reading: Dream has its own, without shots."""
        if not self.used or task not in DOMAINS:
            return task
        if self.family == DREAM:
            return f"{task}-dream"
        return f"{task}-turns" if self.readings.value("turns") == "many" and task in WITH_SHOTS else task

    def task(self, spec: TaskSpec) -> TaskSpec:
        """How the task is loaded; the headline of MATH-500 is a reading also without the recipe."""
        headline = dict(self.readings.given).get("math500", spec.math500)
        scored = replace(spec, math500=headline) if benchmark(spec.name) == "math500" else spec
        return replace(scored, name=self.variant(spec.name))

    def settled(self, decoding: Decoding, task: str, sources: Sequence[Source] = ()) -> Decoding:
        """A Decoding filled with the paper's settings for its own commit rule, then from the sources."""
        spelled = decoding.commit or _commit_of(sources)
        rule = registry.build("commit", spelled) if isinstance(spelled, str) else spelled
        asked = replace(decoding, commit=spelled)
        if not self.used:
            return asked.settled(*sources)
        if self.family == DREAM and self.readings.value("dream") == "dream-eps" and type(rule) is TopN:
            asked = replace(asked, commit=_with_eps(spelled))
        said = setting(self.family, task, self.readings, adaptive=is_adaptive(rule))
        if decoding.temperature == 0:
            said = replace(said, confidence=None)
        return asked.settled(said.fields, *sources)

    def applied(
        self, model: ModelSpec, task: TaskSpec, decoding: Decoding, sources: Sequence[Source] = ()
    ) -> dict[str, str]:
        """The readings that make this cell what it is."""

        def make(readings: Readings) -> tuple[ModelSpec, TaskSpec, Decoding]:
            read = replace(self, readings=readings)
            return read.model(model), read.task(task), read.settled(decoding, task.name, sources)

        parts: tuple[Part, ...] = ("answers", "task") if self.used else ("task",)
        return self.readings.applied(self.family, make, parts)


def _commit_of(sources: Sequence[Source]) -> str | CommitRule:
    """The commit rule of the first source that has one; else one token a step, ranked as the recipe says."""
    named = [asdict(each) if isinstance(each, OwnSettings) else each for each in sources]
    return next((found for each in named if (found := each.get("commit")) is not None), "topn(1)")


def _with_eps(rule: str | CommitRule) -> str:
    """`topn(4)` as `topn-eps(4)`."""
    spelled = rule if isinstance(rule, str) else registry.spell(rule, full=True)
    return spelled.replace("topn", "topn-eps", 1)


def benchmark(task: str) -> str | None:
    """The benchmark that a task is, or is a variant of."""
    return None if is_file(task) else next((name for name in DOMAINS if task.startswith(name)), None)
