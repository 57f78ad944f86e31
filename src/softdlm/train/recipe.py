"""A recipe: every setting that decides which weights come out of a training run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import cos, isfinite, pi
from typing import Any

from softdlm.errors import UsageError
from softdlm.tasks import TASKS

COUNTS = ("width", "layers", "heads", "mlp", "steps", "batch", "pool")
VOCABULARY_MULTIPLE = 64
CONTEXT = 512
"""Positions the configuration allows; rows have 128, rotary angles are defined beyond."""


def _default_mixture() -> dict[str, float]:
    return {"mini-math": 0.8, "mini-code": 0.12, "either-or": 0.08}


@dataclass(frozen=True)
class Recipe:
    """The defaults are the `builtin` recipe."""

    width: int = 256
    layers: int = 8
    heads: int = 4
    """4 x 64: attention kernels are made for head sizes that are powers of two."""
    mlp: int = 704
    rope_theta: float = 10_000.0
    """Far above the 128 positions of a row; LLaDA's 500,000 serves contexts that do not occur here."""
    steps: int = 12_000
    batch: int = 512
    pool: int = 4_096
    """Different batches; they come round again with other masks. Making rows is then no longer what a GPU waits for."""
    lr: float = 1.2e-3
    """Of AdamW, at the end of the warm-up; from there a cosine to 0.

    It decides how long embeddings become beside [MASK], and so which lambda suits: at 2.5e-3 digits came to 1.5 times
    the [MASK] norm and wanted 0.5, at 2e-3 to 0.8 times and wanted 0.3.
    """
    muon: float | None = 2.5e-3
    """The same of Muon, which takes care of the layers' matrices; null leaves them to AdamW too."""
    warmup: int = 400
    weight_decay: float = 0.05
    """Of matrices, embeddings among them; norms' gains are left alone."""
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    """Largest norm of the gradient."""
    ema: float | None = None
    """Decay of the averaged weights, which are then the ones exported."""
    mixture: Mapping[str, float] = field(default_factory=_default_mixture)
    """Share of each task in the rows; any positive weights, they are normalised."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in COUNTS:
            _demand(_is_count(getattr(self, name)), name, getattr(self, name), "a whole number from 1")
        for name in ("rope_theta", "lr", "clip"):
            _demand(_is_number(getattr(self, name)) and getattr(self, name) > 0, name, getattr(self, name), "above 0")
        even = self.width % (2 * self.heads) == 0
        _demand(even, "heads", self.heads, f"such that width {self.width} / heads is whole and even (rotary pairs)")
        fits = self.warmup == 0 or (_is_count(self.warmup) and self.warmup < self.steps)
        _demand(fits, "warmup", self.warmup, f"0 or a whole number below steps {self.steps}")
        _demand(_is_number(self.weight_decay) and self.weight_decay >= 0, "weight_decay", self.weight_decay, "from 0")
        shares = len(self.betas) == 2 and all(_is_share(beta) for beta in self.betas)
        _demand(shares, "betas", self.betas, "two numbers from 0 to below 1")
        _demand(self.ema is None or _is_share(self.ema), "ema", self.ema, "null or from 0 to below 1")
        muon = self.muon is None or (_is_number(self.muon) and self.muon > 0)
        _demand(muon, "muon", self.muon, "null or above 0")
        known = bool(self.mixture) and set(self.mixture) <= set(TASKS)
        _demand(known, "mixture", self.mixture, f"weights of some of {', '.join(TASKS)}")
        positive = all(_is_number(weight) and weight > 0 for weight in self.mixture.values())
        _demand(positive, "mixture", self.mixture, "positive weights (leave out a task you do not want)")
        _demand(type(self.seed) is int and self.seed >= 0, "seed", self.seed, "a whole number from 0")

    def record(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return {**asdict(self), "betas": list(self.betas), "mixture": dict(self.mixture)}

    def share(self, step: int, steps: int) -> float:
        """Of the learning rates, that of a step, counted from 0, in a run of this many."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        return (1 + cos(pi * (step - self.warmup) / (steps - self.warmup))) / 2

    def config(self, vocabulary: int, mask_id: int, eos_id: int) -> dict[str, Any]:
        """config.json in LLaDA's words.

        The vocabulary is rounded up to a multiple of 64, which is what matrix units and their tiles want of the
        widest product of the network; the rows past the tokenizer's last are never a target and learn to stay out.
        """
        rows = -(-vocabulary // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
        return {
            "architectures": ["LLaDAModelLM"],
            "model_type": "llada",
            "block_type": "llama",
            "block_group_size": 1,
            "layer_norm_type": "rms",
            "activation_type": "silu",
            "rope": True,
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
            **dict.fromkeys(("alibi", "attention_layer_norm", "bias_for_layer_norm", "include_bias"), False),
            **dict.fromkeys(("include_qkv_bias", "input_emb_norm", "scale_logits"), False),
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
        raise UsageError(f"cannot set {text!r}: give key=value with a key among {', '.join(names)}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError as error:
        raise UsageError(
            f'{key}={value} is not JSON: write for example lr=1e-3, ema=null, betas="[0.9,0.95]"'
        ) from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value < 1


def _demand(fulfilled: bool, name: str, value: Any, wanted: str) -> None:
    if not fulfilled:
        raise UsageError(f"{name} is {value!r}; it must be {wanted}")


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
