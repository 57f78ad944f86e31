"""The numbers that the paper prints, as data: by table, model, benchmark, method and rate (paper_numbers.json)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MODELS = {
    "GSAI-ML/LLaDA-8B-Instruct": "LLaDA",
    "GSAI-ML/LLaDA-1.5": "LLaDA-1.5",
    "inclusionAI/LLaDA2.0-mini": "LLaDA-2.0-mini",
    "Dream-org/Dream-v0-Instruct-7B": "Dream",
}
"""What the paper calls the models it measured."""
NEAREST = {"llada": "LLaDA", "llada2_moe": "LLaDA-2.0-mini", "Dream": "Dream"}
"""Of a family, the model whose numbers stand beside those of one that the paper did not measure."""
BENCHMARKS = {"gsm8k": "GSM8K", "math500": "MATH-500", "humaneval": "HumanEval", "mbpp": "MBPP"}


@dataclass(frozen=True)
class Printed:
    """The paper's numbers of one model."""

    model: str
    same: bool
    """Whether that is the model measured here; if not, its numbers are for orientation only."""

    @staticmethod
    def beside(name: str, family: str) -> Printed:
        return Printed(MODELS.get(name) or NEAREST[family], name in MODELS)

    def value(self, table: str, *path: str | int) -> float | None:
        """None where the paper prints nothing."""
        found: Any = numbers()[table].get(self.model)
        for step in path:
            found = found.get(str(step)) if isinstance(found, dict) else None
        return found if isinstance(found, float) else None


@cache
def numbers() -> dict[str, Any]:
    """Table -> model -> benchmark, method, rate, as far as each goes."""
    return json.loads((Path(__file__).parent / "paper_numbers.json").read_text())
