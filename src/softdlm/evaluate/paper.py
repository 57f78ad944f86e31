"""The paper's decoding settings (appendix A), by model family and benchmark.

Families are named by their `model_type`: llada (LLaDA, LLaDA-1.5), llada2_moe (LLaDA-2.0-mini) and Dream.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from softdlm.commit import Rank
from softdlm.decoding import EosPolicy
from softdlm.errors import UsageError

Domain = Literal["math", "code"]
Reading = Literal["dream-dllm", "dream-greedy"]
DOMAINS: dict[str, Domain] = {"gsm8k": "math", "math500": "math", "humaneval": "code", "mbpp": "code"}
RATES = (1, 2, 4, 8)
"""Tokens a step; 1 is single-token prediction."""
READINGS: tuple[Reading, ...] = ("dream-dllm", "dream-greedy")
"""Dream's vanilla, n tokens a step: ranked by entropy at temperature 0.1 and top-p 0.9 (default), or greedy."""


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


def setting(family: str, task: str, reading: str | None = None) -> Setting:
    """The setting of a benchmark, or a variant of one (`gsm8k-...`), for a family.

    LLaDA-2.0-mini's EOS policy is not printed: LLaDA's is taken. `reading` is Dream's, by default `dream-dllm`.
    """
    like = "Dream" if family == "Dream" else "llada"
    check_reading(reading, like)
    drawn: dict[str, Any] = {}
    if like == "Dream" and reading != "dream-greedy":
        drawn = {"rank": "entropy", "temperature": 0.1, "top_p": 0.9}
    return replace(_SETTINGS.get((like, benchmark(task)), Setting()), **drawn)


def check_reading(reading: str | None, like: str) -> None:
    if reading is not None and reading not in READINGS:
        raise UsageError(f"reading {reading!r}: one of {', '.join(READINGS)}")
    if reading is not None and like != "Dream":
        raise UsageError(f"reading {reading!r} is for Dream, not for the family {like}: leave it out")


def variant(family: str, task: str) -> str:
    """The benchmark with the prompts of this family: Dream has its own, without shots."""
    return f"{task}-dream" if family == "Dream" and task in DOMAINS else task


def benchmark(task: str) -> str | None:
    """The benchmark that a task is, or is a variant of."""
    return next((name for name in DOMAINS if task.startswith(name)), None)
