"""The paper's decoding settings (appendix A), by model family and benchmark.

Families are named by their `model_type`: llada (LLaDA, LLaDA-1.5), llada2_moe (LLaDA-2.0-mini) and Dream.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from softdlm.commit import CommitRule, Rank, Steps
from softdlm.errors import UsageError
from softdlm.evaluate.cell import EosWord, Rate, Reading
from softdlm.methods import commit_rule
from softdlm.models.denoiser import Strength

Domain = Literal["math", "code"]
DOMAINS: dict[str, Domain] = {"gsm8k": "math", "math500": "math", "humaneval": "code", "mbpp": "code"}
RATES = (1, 2, 4, 8)
"""Tokens a step; 1 is single-token prediction."""
SEARCH = tuple(product((2, 3, 4), (0.1, 0.3, 0.5, 0.7)))
"""The (k, lambda) that both soft methods were searched over."""
READINGS: tuple[Reading, ...] = ("dream-dllm", "dream-greedy")
"""Dream's vanilla: ranked by entropy at temperature 0.1 and top-p 0.9 on the eps schedule, or greedy, n a step."""

_STRENGTH = {
    ("llada", "math"): (2, 0.3),
    ("llada", "code"): (3, 0.3),
    ("Dream", "math"): (3, 0.1),
    ("Dream", "code"): (2, 0.3),
}
_SHOTS_AND_LENGTH = {
    ("llada", "gsm8k"): (5, 512),
    ("llada", "math500"): (4, 512),
    ("llada", "humaneval"): (0, 512),
    ("llada", "mbpp"): (3, 256),
    ("Dream", "gsm8k"): (0, 256),
    ("Dream", "math500"): (0, 512),
    ("Dream", "humaneval"): (0, 768),
    ("Dream", "mbpp"): (0, 1024),
}


@dataclass(frozen=True)
class Setting:
    """What the paper sets; None leaves it to the task."""

    k: int = 3
    lam: float = 0.3
    eos: EosWord | None = None
    shots: int | None = None
    max_new_tokens: int | None = None
    reading: Reading = "plain"
    temperature: float = 0.0
    top_p: float | None = None


def setting(family: str, task: str, reading: Reading | None = None, own: Strength = Strength()) -> Setting:
    """The setting of a benchmark (or a variant, `gsm8k-...`) for a family; other tasks take the model's own strength.

    LLaDA-2.0-mini's EOS policy is not printed: LLaDA's is taken. `reading` is Dream's, by default `dream-dllm`.
    """
    like = "Dream" if family == "Dream" else "llada"
    if reading is not None and like != "Dream":
        raise UsageError(f"reading {reading!r} is Dream's, not of the family {family}")
    chosen = reading or READINGS[0] if like == "Dream" else "plain"
    temperature, top_p = (0.1, 0.9) if chosen == "dream-dllm" else (0.0, None)
    name = benchmark(task)
    if name is None:
        return Setting(*own, reading=chosen, temperature=temperature, top_p=top_p)
    k, lam = _STRENGTH[like, DOMAINS[name]]
    shots, length = _SHOTS_AND_LENGTH[like, name]
    return Setting(k, lam, eos_policy(like, name), shots, length, chosen, temperature, top_p)


def variant(family: str, task: str) -> str:
    """The benchmark with the prompts of this family: Dream's are other ones, without shots."""
    return f"{task}-dream" if family == "Dream" and task in DOMAINS else task


def eos_policy(family: str, name: str) -> EosWord:
    """EOS last; on HumanEval EOS forbidden and end of turn allowed; Dream as it comes."""
    if family == "Dream":
        return "allow"
    return "forbid-first" if name == "humaneval" else "last"


def commit(rate: Rate, rank: Rank | None, reading: Reading, max_new_tokens: int) -> CommitRule:
    """The rule that gives a rate; `dream-dllm` spreads n a step over its eps schedule, ranked by entropy."""
    if reading == "dream-dllm" and rate.name == "tokens_per_step":
        steps = -(-max_new_tokens // int(rate.value))
        return Steps(steps, schedule="eps", rank=rank or "entropy")
    value: Any = int(rate.value) if rate.name == "tokens_per_step" else rate.value
    return commit_rule(**{rate.name: value}, rank=rank)


def benchmark(task: str) -> str | None:
    """The benchmark that a task or variant is of."""
    return next((name for name in DOMAINS if task.startswith(name)), None)
