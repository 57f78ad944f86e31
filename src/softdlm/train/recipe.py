"""A recipe: every setting that affects the weights of a training run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import cos, isfinite, pi
from typing import Any

from softdlm.errors import UsageError
from softdlm.models import llada
from softdlm.tasks import TASKS

COUNTS = ("width", "layers", "heads", "mlp", "steps", "batch", "pool")
VOCABULARY_MULTIPLE = 64
CONTEXT = 512
"""Longest context in the configuration. Training rows have 128 positions; rotary angles exist for all."""


def _default_mixture() -> dict[str, float]:
    return {"mini-math": 0.8, "mini-code": 0.12, "either-or": 0.08}


@dataclass(frozen=True)
class Recipe:
    """Settings of a training run; the defaults are the `builtin` recipe."""

    width: int = 256
    layers: int = 8
    heads: int = 4
    """4 heads of size 64: attention kernels need head sizes that are powers of two."""
    mlp: int = 704
    rope_theta: float = 10_000.0
    """Enough for rows of 128 positions; LLaDA's 500,000 is for much longer contexts."""
    steps: int = 12_000
    batch: int = 512
    pool: int = 4_096
    """Number of different batches. They repeat with other masks, so that a GPU does not wait for new examples."""
    lr: float = 2.5e-3
    """Learning rate of AdamW at the end of the warm-up; it then falls to 0 as a cosine."""
    muon: float | None = 2.5e-3
    """Learning rate of Muon, which trains the layers' matrices; null: AdamW trains them too."""
    warmup: int = 400
    weight_decay: float = 0.05
    """Weight decay of matrices, embeddings included; not applied to the gains of norms."""
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    """Largest norm of the gradient; longer ones are scaled down."""
    ema: float | None = None
    """Decay of the averaged weights, which are exported instead of the last ones; null: no average."""
    mixture: Mapping[str, float] = field(default_factory=_default_mixture)
    """Weight of each task in the examples; positive numbers, normalised to shares."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in COUNTS:
            self._require(name, _is_count(getattr(self, name)), "a whole number from 1")
        for name in ("rope_theta", "lr", "clip"):
            self._require(name, _is_positive(getattr(self, name)), "above 0")
        even = self.width % (2 * self.heads) == 0
        self._require("heads", even, f"such that width {self.width} / heads is whole and even (rotary pairs)")
        fits = self.warmup == 0 or (_is_count(self.warmup) and self.warmup < self.steps)
        self._require("warmup", fits, f"0 or a whole number below steps {self.steps}")
        self._require("weight_decay", self.weight_decay == 0 or _is_positive(self.weight_decay), "at least 0")
        shares = len(self.betas) == 2 and all(_is_share(beta) for beta in self.betas)
        self._require("betas", shares, "two numbers from 0 to below 1")
        self._require("ema", self.ema is None or _is_share(self.ema), "null or a number from 0 to below 1")
        self._require("muon", self.muon is None or _is_positive(self.muon), "null or above 0")
        known = bool(self.mixture) and set(self.mixture) <= set(TASKS)
        self._require("mixture", known, f"weights of some of {', '.join(TASKS)}")
        positive = all(_is_positive(weight) for weight in self.mixture.values())
        self._require("mixture", positive, "positive weights (leave out a task you do not want)")
        self._require("seed", type(self.seed) is int and self.seed >= 0, "a whole number from 0")

    def _require(self, name: str, fulfilled: bool, wanted: str) -> None:
        if not fulfilled:
            raise UsageError(f"{name} must be {wanted}, not {getattr(self, name)!r}")

    def record(self) -> dict[str, Any]:
        """The recipe as JSON values."""
        return {**asdict(self), "betas": list(self.betas), "mixture": dict(self.mixture)}

    def share(self, step: int, steps: int) -> float:
        """Factor on the learning rates at a step, counted from 0, of a run with this many steps."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        return (1 + cos(pi * (step - self.warmup) / (steps - self.warmup))) / 2

    def config(self, vocabulary: int, mask_id: int, eos_id: int) -> dict[str, Any]:
        """config.json with LLaDA's keys.

        The vocabulary is rounded up to a multiple of 64, which makes the LM head, the widest product, faster. The added
        rows are never a target, so the network learns not to predict them.
        """
        rows = -(-vocabulary // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
        return {
            "architectures": ["LLaDAModelLM"],
            "model_type": "llada",
            **llada.KIND,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": 1e-5,
            "d_model": self.width,
            "n_layers": self.layers,
            "n_heads": self.heads,
            "n_kv_heads": self.heads,
            "mlp_hidden_size": self.mlp,
            "max_sequence_length": CONTEXT,
            "vocab_size": rows,
            "embedding_size": rows,
            "weight_tying": False,
            "mask_token_id": mask_id,
            "eos_token_id": eos_id,
            "pad_token_id": eos_id,
            **dict.fromkeys(llada.OFF, False),
        }


def find_recipe(name: str, settings: Sequence[str] = ()) -> Recipe:
    """A recipe by name with some of its settings replaced, each given as key=JSON."""
    if name not in RECIPES:
        raise UsageError(f"unknown recipe {name!r}: one of {', '.join(RECIPES)}")
    changes = dict(_setting(text) for text in settings)
    if isinstance(changes.get("betas"), list):
        changes["betas"] = tuple(changes["betas"])
    return replace(RECIPES[name], **changes)


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    names = [each.name for each in fields(Recipe)]
    if not equals or key not in names:
        raise UsageError(f"cannot set {text!r}: use key=value with one of the keys {', '.join(names)}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError as error:
        raise UsageError(
            f'{key}={value} is not JSON: write for example lr=1e-3, ema=null, betas="[0.9,0.95]"'
        ) from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value < 1


RECIPES = {
    "builtin": Recipe(),
    "toy": Recipe(
        width=64,
        layers=2,
        heads=2,
        mlp=160,
        steps=500,
        batch=32,
        lr=8e-3,
        warmup=50,
        muon=None,
        mixture={"either-or": 1.0},
    ),
}
"""`builtin` takes 4.6 minutes on an H200. `toy` takes 58 s of CPU time on one thread; 2.7 minutes on a busy machine."""
