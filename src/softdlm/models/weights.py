"""From safetensors files to a stock network: headers are checked first, then blocks of tensors are copied."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softdlm.errors import CheckpointError, SoftDLMError
from softdlm.models.family import Family, ParameterSlice, Weight
from softdlm.models.folder import CONFIG, CheckpointFolder
from softdlm.models.fp8 import Fp8, fill, shrink, stored_types
from softdlm.models.tensor_file import Block, TensorFile
from softdlm.records.canonical import content_digest
from softdlm.threads import map_parts

INDEX = "model.safetensors.index.json"
MEANING = ("*token*", "vocab*", "merges.txt", "*.jinja")
"""Files besides the weights and config.json that affect a model's answers."""
SPARE_NAMES = 1000
"""A config.json that needs twice the tensors that there are, and so many more, is refused before they are listed."""
STRIPES = 4
"""Cores that load at most: a few are as fast as the memory."""
SHOWN = 12
"""Tensors that a message names; of the others it gives the number."""


class Precision(NamedTuple):
    """How the numbers of a network are kept."""

    dtype: torch.dtype
    """Of everything that is not kept in eight bits."""
    fp8: Fp8 | None = None
    """Whether the layers' matrices are, and by which arithmetic they are multiplied."""

    def __str__(self) -> str:
        return self.fp8 or str(self.dtype).removeprefix("torch.")


class Weights(AbstractContextManager["Weights"]):
    """The weight files of a checkpoint, held open from the check of their headers to the last tensor."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self.folder = folder
        with ExitStack() as stack:
            self.files = [stack.enter_context(TensorFile(folder, name)) for name in weight_files(folder)]
            self._open = stack.pop_all()

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def digests(self) -> dict[str, str]:
        """Of each file, read for this purpose."""
        return {file.name: file.digest() for file in self.files}

    def check(self, family: Family, config: Mapping[str, Any]) -> nn.Module:
        """The network that the configuration describes, without weights, after every tensor was found to fit it."""
        found = _headers(self.files)
        expected = list(islice(family.weights(config), 2 * len(found) + SPARE_NAMES))
        if len(expected) > len(found) + SPARE_NAMES:
            missing = [weight.name for weight in expected if weight.name not in found]
            raise self._misfit([f"missing {name}" for name in missing], "or more")
        network = self._skeleton(family, config)
        blank = network.state_dict()
        shapes = {weight.name: _shape(weight, blank) for weight in expected}
        if complaints := [*_complaints(found, shapes)]:
            raise self._misfit(complaints)
        return network

    def load(
        self, family: Family, config: Mapping[str, Any], precision: Precision, device: torch.device, *, hashing: bool
    ) -> tuple[nn.Module, dict[str, str]]:
        """The network with its weights, and with `hashing` a digest of each file, of the bytes that were loaded.

        Peak memory is the weights plus a block for each core.
        """
        network = self.check(family, config)
        expected = {weight.name: weight for weight in family.weights(config)}
        loaded, digests = room(family, config, network, precision, device), {}
        for file in self.files:
            total = sha256() if hashing else None
            _stream(file, expected, loaded, total)
            digests |= {} if total is None else {file.name: total.hexdigest()}
        return assemble(network, loaded, device), digests

    def _skeleton(self, family: Family, config: Mapping[str, Any]) -> nn.Module:
        try:
            return skeleton(family, config)
        except SoftDLMError as error:
            raise CheckpointError(f"{self.folder.path}: {error}") from error
        except Exception as error:  # the stock classes check more than we do, each in its own way
            raise CheckpointError(f"{self.folder.path}: no network fits its config.json: {error}") from error

    def _misfit(self, complaints: Sequence[str], more: str = "more") -> CheckpointError:
        shown = list(complaints[:SHOWN])
        shown += [f"{len(complaints) - SHOWN:,} {more}"] if len(complaints) > SHOWN else []
        return CheckpointError(f"{self.folder.path} does not fit its config.json: " + "; ".join(shown))


def skeleton(family: Family, config: Mapping[str, Any]) -> nn.Module:
    """The family's network on the meta device, without weights."""
    with torch.device("meta"):
        return family.network(config)


def room(
    family: Family, config: Mapping[str, Any], network: nn.Module, precision: Precision, device: torch.device
) -> dict[str, Tensor]:
    """Uninitialised tensors on the device for every parameter that a checkpoint holds.

    In fp8, modules of the network are exchanged for such as hold e4m3 and scales.
    """
    filled = {part.parameter for weight in family.weights(config) for part in weight.parts}
    if precision.fp8:
        shrink(network, precision.fp8)
    types = dict(stored_types(network))
    return {
        name: torch.empty(value.shape, dtype=types.get(name) or _dtype(name, precision.dtype, family), device=device)
        for name, value in network.state_dict().items()
        if name in filled or name in types
    }


def assemble(network: Any, weights: Mapping[str, Tensor], device: torch.device) -> nn.Module:
    """The network of `skeleton` with its weights assigned."""
    network.load_state_dict(weights, assign=True, strict=False)
    network.tie_weights()
    rotary = type(network.model.rotary_emb)
    network.model.rotary_emb = rotary(network.config).to(device)  # its buffers are not in any checkpoint
    return network


def weight_files(folder: CheckpointFolder) -> list[str]:
    """The single weight file, or the shards listed in the index."""
    if INDEX not in folder:
        if "model.safetensors" in folder:
            return ["model.safetensors"]
        raise CheckpointError(
            f"{folder.path} has neither {INDEX} nor model.safetensors: only safetensors can be loaded"
        )
    listed = folder.parse_object(INDEX, folder.read(INDEX)).get("weight_map")
    if not isinstance(listed, dict) or not listed or not all(isinstance(name, str) for name in listed.values()):
        raise CheckpointError(f"{folder.path / INDEX} has no weight_map from tensors to files: get the file again")
    names = sorted(set(listed.values()))
    if absent := [name for name in names if name not in folder]:
        raise CheckpointError(f"{folder.path}: {INDEX} lists shards that are missing: {', '.join(absent)}")
    return names


def digest(folder: Path) -> str:
    """One number for a folder's weights, configuration and tokenizer: other files and its place do not matter."""
    files = CheckpointFolder(folder)
    others = {name: content_digest(data) for name, data in read_meaning(files).items()}
    with Weights(files) as weights:
        return joint_digest(weights.digests() | others)


def joint_digest(digests: Mapping[str, str]) -> str:
    """One number for all files of a checkpoint, from the digest of each."""
    return content_digest(*(f"{Path(name).name}:{digests[name]}\n" for name in sorted(digests)))


def read_meaning(folder: CheckpointFolder) -> dict[str, bytes]:
    """The files besides the weights that affect a model's answers."""
    return {name: folder.read(name) for name in (CONFIG, *folder.names(*MEANING))}


def stamp(folder: CheckpointFolder) -> tuple[tuple[str, int, int, int, int, int], ...]:
    """What the system says of each file that the digest covers: it changes when a file is written or replaced."""
    names = sorted({CONFIG, *weight_files(folder), *folder.names(*MEANING)})
    try:
        states = {name: os.stat(folder.path / name) for name in names}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder.path} cannot be read: {error}") from error
    return tuple(
        (name, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        for name, state in states.items()
    )


def _headers(files: Sequence[TensorFile]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor."""
    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        if doubled := found.keys() & file.stored.keys():
            raise file.damaged(f"{min(doubled)} lies in another file as well")
        found |= {name: each.shape for name, each in file.stored.items()}
    return found


def _complaints(found: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Every missing, unexpected and wrongly shaped tensor."""
    yield from (f"missing {name} {shape}" for name, shape in shapes.items() if name not in found)
    yield from (f"unexpected {name} {shape}" for name, shape in found.items() if name not in shapes)
    for name, shape in shapes.items():
        if name in found and found[name] != shape:
            yield f"misshapen {name}: {found[name]} where the configuration needs {shape}"


def _stream(file: TensorFile, expected: Mapping[str, Weight], loaded: Mapping[str, Tensor], total: Any) -> None:
    """Copy a file's tensors to their places, on several cores; a hash wants the bytes in order and so takes one.

    Each core reads, checks and copies blocks of its own, so that a block is still in its cache when it is copied.
    """
    blocks = file.blocks()
    stripes = 1 if total is not None else min(STRIPES, torch.get_num_threads())

    def fill_stripe(number: int) -> None:
        buffer = file.buffer()
        for block in blocks[number::stripes]:
            place, rows = file.read(block, buffer)
            if total is not None:
                total.update(place)
            types = {each.dtype for each in _fill_parts(loaded, expected[block.name].parts, block.first, rows)}
            _check_values(file, block, place, types)

    if total is not None:
        total.update(file.head)
    map_parts(fill_stripe, range(stripes))


def _fill_parts(
    loaded: Mapping[str, Tensor], parts: Sequence[ParameterSlice], first: int, rows: Float[Tensor, "R *S"]
) -> Iterator[Tensor]:
    """Write rows of a stored tensor to the parameters of which it is a part, or which are parts of it."""
    for part in parts:
        home = len(loaded[part.parameter][part.index])
        start, end = max(0, first), min(home, first + len(rows))
        if start < end:
            yield fill(loaded, part.parameter, part.index, rows[start - first : end - first], slice(start, end))
        first -= home


def _check_values(file: TensorFile, block: Block, place: memoryview, types: Iterable[torch.dtype]) -> None:
    """Refuse what is not finite, and what would not be in the types that it was written in."""
    top = file.top(block, place)
    for dtype in types:
        if not top.to(dtype).isfinite():
            raise CheckpointError(f"{file.place}: {block.name} holds values too large for {dtype}: take another")


def _shape(weight: Weight, blank: Mapping[str, Tensor]) -> tuple[int, ...]:
    shapes = [blank[part.parameter][part.index].shape for part in weight.parts]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _dtype(name: str, dtype: torch.dtype, family: Family) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32) if name.endswith(family.float32) else dtype
