"""Models and toys that tests share. Nothing here needs the network or weights that are not in tests/data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers on two cores; their processes are not to compete

import jaxtyping
import pytest
import torch
from hypothesis import settings

SOURCE = Path(__file__).parents[1] / "src"
SHAPED = [
    ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted(SOURCE.rglob("*.py"))
    if "from jaxtyping import" in file.read_text(encoding="utf-8")
]
"""Modules with shapes in their annotations. They are checked at every call, which takes longer than the call; types
without shapes are pyright's to check."""
jaxtyping.install_import_hook(SHAPED, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

import softdlm  # noqa: E402

DATA = Path(__file__).parent / "data"
BENCHMARKS = DATA / "benchmarks"
"""A few made-up items of each benchmark, in the layout of the real files."""
REAL_BENCHMARKS = Path(os.environ.get("SOFTDLM_DATA") or Path(__file__).parents[2] / "shared" / "data")
needs_real_data = pytest.mark.skipif(
    not (REAL_BENCHMARKS / "mbpp.jsonl.gz").exists(), reason="the real benchmark files are not here (SOFTDLM_DATA)"
)
IDS: dict[str, dict[str, Any]] = {
    "llada": {"eos_ids": [181, 190]},
    "dream": {},
    "llada2": {"mask_id": 155},
}
FAMILIES = tuple(IDS)
DEVICE = os.environ.get("SOFTDLM_TEST_DEVICE", "cpu")

settings.register_profile("ci", max_examples=30, deadline=None, derandomize=True)
settings.load_profile("ci")
torch.set_num_threads(1)


@cache
def tiny(family: str, dtype: torch.dtype = torch.float32, attention: Any = "auto") -> Any:
    """The tiny reference checkpoint of a family."""
    return softdlm.load(DATA / family, dtype=dtype, device=DEVICE, attention=attention, **IDS[family])


def plan_of(model: Any, **fields: Any) -> Any:
    """A Decoding of these fields bound to the model, as `denoise` binds it."""
    from softdlm.decoding import settle
    from softdlm.engine.plan import Plan

    return Plan.of(model, settle(model, None, {"early_finish": False, **fields}))


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Switch the test run's type checking off, to see what a user without it sees."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
