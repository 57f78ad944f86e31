"""From safetensors files to a stock network: headers are checked first, then tensors are copied one at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from softdlm.errors import CheckpointError
from softdlm.models.family import Family, Weight
from softdlm.records.canonical import content_digest

INDEX = "model.safetensors.index.json"
_MEANING = ("config.json", "*token*", "vocab*", "merges.txt", "*.jinja")
"""Files besides the weights that affect a model's answers."""


def build(
    family: Family, config: Mapping[str, Any], folder: Path, dtype: torch.dtype, device: torch.device
) -> nn.Module:
    """The family's network with the folder's weights. Peak memory is the weights plus one tensor."""
    shards, network = checkpoint_files(folder), skeleton(family, config)
    expected, blank = {weight.name: weight for weight in family.weights(config)}, network.state_dict()
    check(shards, {name: _shape(weight, blank) for name, weight in expected.items()})
    loaded = room(family, config, network, dtype, device)
    for shard in shards:
        _stream(shard, expected, loaded)
    return assemble(network, loaded, device)


def skeleton(family: Family, config: Mapping[str, Any]) -> nn.Module:
    """The family's network on the meta device, without weights."""
    with torch.device("meta"):
        return family.network(config)


def room(
    family: Family, config: Mapping[str, Any], network: nn.Module, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Uninitialised tensors on the device for every parameter that a checkpoint holds."""
    filled = {part.parameter for weight in family.weights(config) for part in weight.parts}
    return {
        name: torch.empty(value.shape, dtype=_dtype(name, dtype, family), device=device)
        for name, value in network.state_dict().items()
        if name in filled
    }


def assemble(network: Any, weights: Mapping[str, Tensor], device: torch.device) -> nn.Module:
    """The network of `skeleton` with its weights assigned."""
    network.load_state_dict(weights, assign=True, strict=False)
    network.tie_weights()
    rotary = type(network.model.rotary_emb)
    network.model.rotary_emb = rotary(network.config).to(device)  # its buffers are not in any checkpoint
    return network


def checkpoint_files(folder: Path) -> list[Path]:
    """The single weight file, or the shards listed in the index."""
    index, single = folder / INDEX, folder / "model.safetensors"
    if index.exists():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        absent = [name for name in names if not (folder / name).exists()]
        if absent:
            raise CheckpointError(f"{folder}: {INDEX} lists shards that are missing: {', '.join(absent)}")
        return [folder / name for name in names]
    if single.exists():
        return [single]
    raise CheckpointError(f"{folder} has neither {INDEX} nor model.safetensors: only safetensors can be loaded")


def digest(folder: Path) -> str:
    """One number for a folder's weights, configuration and tokenizer: other files and its place do not matter."""
    files = {*checkpoint_files(folder), *(file for pattern in _MEANING for file in folder.glob(pattern))}
    found = sorted(file for file in files if file.is_file())
    return content_digest(*(f"{file.name}:{content_digest(file)}\n" for file in found))


def check(shards: list[Path], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Report every missing, unexpected and wrongly shaped tensor before any weight is read."""
    found: dict[str, tuple[int, ...]] = {}
    for shard in shards:
        with safe_open(shard, framework="pt") as file:
            found |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    complaints = [f"missing {name} {shape}" for name, shape in shapes.items() if name not in found]
    complaints += [f"unexpected {name} {shape}" for name, shape in found.items() if name not in shapes]
    complaints += [
        f"misshapen {name}: {found[name]} where the configuration needs {shape}"
        for name, shape in shapes.items()
        if name in found and found[name] != shape
    ]
    if complaints:
        raise CheckpointError(f"{shards[0].parent} does not fit its config.json: " + "; ".join(complaints))


def _stream(shard: Path, expected: Mapping[str, Weight], loaded: Mapping[str, Tensor]) -> None:
    with safe_open(shard, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            homes = [loaded[part.parameter][part.index] for part in expected[name].parts]
            pieces = file.get_tensor(name).split([len(home) for home in homes])
            for home, piece in zip(homes, pieces, strict=True):
                home.copy_(piece)


def _shape(weight: Weight, blank: Mapping[str, Tensor]) -> tuple[int, ...]:
    shapes = [blank[part.parameter][part.index].shape for part in weight.parts]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _dtype(name: str, dtype: torch.dtype, family: Family) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32) if name.endswith(family.float32) else dtype
