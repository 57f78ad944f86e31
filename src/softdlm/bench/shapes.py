"""The networks to measure: the published sizes with random weights, small ones, and the built-in model.

Speed depends on tensor shapes and not on the values of the weights, so no checkpoint is needed: random weights are made
on the device, in the family's own classes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.models.denoiser import NetworkDenoiser, Source
from softdlm.models.fp8 import CODES, SCALE, fill
from softdlm.models.load import find_family, load
from softdlm.models.weights import Precision, assemble, room, skeleton

_CONFIGS = tomllib.loads(Path(__file__).with_name("networks.toml").read_text(encoding="utf-8"))
LLADA_8B, DREAM_7B, LLADA2_MINI = (_CONFIGS[name] for name in ("llada-8b", "dream-7b", "llada2-mini"))
_TINY = {"tiny-llada": LLADA_8B, "tiny-dream": DREAM_7B, "tiny-llada2": LLADA2_MINI}
"""Small networks, each with the published one of its family."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the decodes that a network is measured with."""

    prompt: int = 1024
    new: int = 512
    block: int = 32
    rates: tuple[int, ...] = (4, 8)
    """Tokens committed per pass."""
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    batch_new: int = 128
    """New tokens in the batch suite: enough blocks for an average, few enough for 64 rows."""
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    candidates: tuple[int, ...] = (1, 2, 4, 8, 16)
    growth_new: int = 128
    repeats: int = 5
    items: int = 16
    """Task items to decode with the built-in model."""

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {' '.join(map(str, value)) if isinstance(value, tuple) else value}"
            for name, value in vars(self).items()
        )


SMALL = Sizes(64, 64, 16, (4, 8), (1, 2, 4, 8), 32, (64, 128, 256, 512), growth_new=32)
TINY = Sizes(12, 32, 16, (4, 8), (1, 2), 16, (16, 32), (1, 4), 8, 1, 2)
DENSE = ("ceilings", "fp8", "public", "whole", "caches", "feedback", "batches", "served", "memory")
MIXTURE = ("ceilings", "fp8", "whole", "public", "feedback", "served")
"""Suites of a mixture of experts. Without caches: floors do not model block-causal attention yet."""
BUILTIN = ("ceilings", "feedback", "whole", "public", "served", "evaluated", "problems", "growth")
_DENSE: dict[str, Any] = {"suites": DENSE, "later": ("identical", "refresh", "growth")}
_MIXTURE: dict[str, Any] = {"suites": MIXTURE, "later": ("identical", "growth")}
_DREAM: dict[str, Any] = {
    "suites": tuple(suite for suite in DENSE if suite not in ("fp8", "batches")),
    "later": ("fp8", *_DENSE["later"]),
}


@dataclass(frozen=True)
class NetworkShape:
    """A network to measure, and the suites to run on it."""

    name: str
    config: Mapping[str, Any] | None
    """The content of a config.json; None means the built-in model."""
    sizes: Sizes = Sizes()
    suites: tuple[str, ...] = DENSE
    """In this order: a time budget cuts the last."""
    later: tuple[str, ...] = ()
    """Suites that come after those of all shapes."""
    tiny: str = "tiny-llada"
    """Name of a small network of the same family, for the suite `identical`."""


SHAPES: dict[str, NetworkShape] = {
    shape.name: shape
    for shape in (
        NetworkShape("llada-8b", LLADA_8B, **_DENSE),
        NetworkShape("dream-7b", DREAM_7B, **_DREAM, tiny="tiny-dream"),
        NetworkShape("llada2-mini", LLADA2_MINI, **_MIXTURE, tiny="tiny-llada2"),
        NetworkShape("builtin", None, SMALL, BUILTIN),
        *(
            NetworkShape(
                name, config | _CONFIGS[name], TINY, **(_MIXTURE if name == "tiny-llada2" else _DENSE), tiny=name
            )
            for name, config in _TINY.items()
        ),
    )
}
GPU_SHAPES = ("llada-8b", "dream-7b", "llada2-mini")


def find_shape(name: str) -> NetworkShape:
    if name not in SHAPES:
        raise UsageError(f"unknown shape {name!r}; known are {', '.join(SHAPES)}")
    return SHAPES[name]


def build_model(shape: NetworkShape, device: torch.device, dtype: torch.dtype | Precision) -> NetworkDenoiser:
    """The network on the device. Random weights are the same at every call, in fp8 the same rounded."""
    precision = dtype if isinstance(dtype, Precision) else Precision(dtype)
    if shape.config is None:
        return load("builtin", device=device, dtype=precision.fp8 or precision.dtype)  # type: ignore[return-value]
    family = find_family(shape.config, Path(shape.name))
    network = skeleton(family, shape.config)
    weights = room(family, shape.config, network, precision, device)
    source = torch.Generator(device).manual_seed(0)
    for name, value in weights.items():
        if not name.endswith(SCALE):
            _draw(weights, name, value, source, precision.dtype)
    model = family.denoiser(
        assemble(network, weights, device),
        mask_id=shape.config["mask_token_id"],
        eos_ids=[shape.config["eos_token_id"]],
        max_length=family.max_length(shape.config),
        source=Source(shape.name, family.name),
    )
    model.fp8 = precision.fp8
    return model


def _draw(weights: Mapping[str, Tensor], name: str, value: Tensor, source: torch.Generator, dtype: torch.dtype) -> None:
    """Fill a tensor in place; a mixture's weights in eight bits one expert at a time."""
    if value.ndim == 1:
        value.fill_(0 if name.endswith("bias") else 1)
        return
    for index in range(len(value)) if value.ndim == 3 else [...]:
        piece = value[index]
        drawn = piece if piece.dtype != CODES else torch.empty_like(piece, dtype=dtype)
        drawn.normal_(0, value.shape[-1] ** -0.5, generator=source)
        if drawn is not piece:
            fill(weights, name, index, drawn)
