"""softdlm.load: a built-in name, a folder or a Hugging Face id becomes a Denoiser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, cast, get_args

import torch

from softdlm import parsing
from softdlm.errors import CapacityError, CheckpointError, UsageError
from softdlm.models.attention import Attention
from softdlm.models.config import check_ties
from softdlm.models.denoiser import Denoiser, Source
from softdlm.models.family import Family, published
from softdlm.models.folder import CONFIG, CheckpointFolder
from softdlm.models.fp8 import Fp8, check_device
from softdlm.models.known import known_models
from softdlm.models.own_settings import OwnSettings
from softdlm.models.pace import EngineKind
from softdlm.models.special_ids import check_special_ids, check_vocabulary, find_eos_ids, find_mask_id
from softdlm.models.tensor_file import FLOATS
from softdlm.models.tokenizer import load_tokenizer
from softdlm.models.weights import Precision, Weights, joint_digest, read_meaning, stamp
from softdlm.records.canonical import content_digest

FAMILIES = {"llada": "llada", "Dream": "dream", "llada2_moe": "llada2"} | {
    "a2d-qwen3": "a2d_qwen3",
    "a2d-qwen2": "a2d_qwen2",
    "a2d-llama": "a2d_llama",
    "modernbert": "modernbert",
}
"""model_type -> module of the family in this package, imported when needed."""
NATIVE = "native"
BUILTIN = Path(__file__).parents[1] / "builtin"
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.jinja", "tokenizer.model"]


def load(
    model: str | Path,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    attention: Attention = "auto",
    mask_id: int | None = None,
    eos_ids: Sequence[int] | None = None,
    max_length: int | None = None,
    digest: str | bool | None = None,
    settings: str | Path | OwnSettings | None = None,
    engine: EngineKind = "auto",
) -> Denoiser:
    """Load a frozen masked diffusion language model.

    dtype defaults to bfloat16 on a GPU and to float32 on a CPU; `native` is bfloat16 also on CPUs that multiply in it;
    `fp8` keeps the layers' matrices in eight bits (Hopper GPUs and later; `fp8-emulated` rounds the same way anywhere).
    device defaults to the first GPU if there is one. `attention` chooses where a family has both kinds: `full` or
    `block-causal`. `auto` is, for LLaDA-2, full attention for one block and block-causal attention for several; for A2D
    what the published checkpoint was trained with, else full. mask_id and eos_ids override those of the checkpoint;
    eos_ids lists EOS first, then any end-of-turn ids. With `digest`, files other than those that have it are refused;
    it is taken of the bytes that were loaded. With digest=True it is only taken: `model.digest`. `settings` is a file
    that `softdlm tune` wrote: decoding settings that take the place of the checkpoint's own, field by field. `engine`
    is for decodes that name none.
    """
    parsing.one_of(Attention)("attention", attention)
    parsing.one_of(EngineKind)("engine", engine)
    place = find_device(device)
    precision = find_precision(dtype, place)
    special = {"mask_id": mask_id, "eos_ids": eos_ids}
    found = find_checkpoint(model, revision=revision, **special, max_length=max_length, settings=settings)
    found.family.check_attention(attention)
    network, loaded = _network(found, precision, place, digest)
    check_vocabulary(found.mask_id, found.eos_ids, network.get_input_embeddings().num_embeddings)
    denoiser = found.family.denoiser(network, attention=attention, **found.identity)
    denoiser.own, denoiser.stamp, denoiser.digest = found.own, found.stamp, loaded
    denoiser.fp8, denoiser.engine = precision.fp8, engine
    return denoiser


def _network(
    found: Checkpoint, precision: Precision, device: torch.device, digest: str | bool | None
) -> tuple[Any, str | None]:
    """The network, and the digest of what was loaded where one was asked for."""
    try:
        with Weights(CheckpointFolder(found.folder)) as weights:
            with _about(found.folder):
                check_ties(found.config, [name for file in weights.files for name in file.stored])
            network, digests = weights.load(found.family, found.config, precision, device, hashing=bool(digest))
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CapacityError(f"{found.folder}: there is no memory for its weights in {precision} on {device}") from error
    loaded = joint_digest({**found.digests, **digests}) if digest else None
    if isinstance(digest, str) and loaded is not None and loaded != digest:
        raise CheckpointError(
            f"{found.folder} has changed since its digest was taken: it was {digest[:12]}, what was loaded has "
            f"{loaded[:12]}; run the same again to take the files that are there now"
        )
    return network, loaded


@dataclass(frozen=True)
class Checkpoint:
    """A model before its weights are read: enough to encode prompts and to identify the model in results."""

    folder: Path
    config: Mapping[str, Any]
    family: Family
    tokenizer: Any
    mask_id: int
    eos_ids: tuple[int, ...]
    max_length: int
    source: Source
    digests: Mapping[str, str]
    """Of each file besides the weights that was read."""
    stamp: tuple[Any, ...]
    """What the system said of the files before the first of them was read."""
    settings: OwnSettings = field(default_factory=OwnSettings)
    """Decoding settings that were given with the checkpoint."""

    @property
    def own(self) -> OwnSettings:
        """The decoding settings that were given, then the checkpoint's own, then what is known of it by name."""
        stated = OwnSettings.read(self.config.get("decoding", {}))
        return self.settings.over(stated.over(published(self.family, self.source.name)))

    @property
    def identity(self) -> dict[str, Any]:
        """What a denoiser takes over from its checkpoint."""
        return {name: getattr(self, name) for name in ("mask_id", "eos_ids", "tokenizer", "max_length", "source")}

    @property
    def from_hub(self) -> bool:
        return not is_local(self.source.name)


def find_checkpoint(
    model: str | Path,
    *,
    revision: str | None = None,
    mask_id: int | None = None,
    eos_ids: Sequence[int] | None = None,
    max_length: int | None = None,
    settings: str | Path | OwnSettings | None = None,
) -> Checkpoint:
    """The part of `load` that comes before the weights are read; takes the same arguments."""
    given = OwnSettings.of(settings)
    folder, commit = resolve(model, revision)
    files = CheckpointFolder(folder)
    seen, read = stamp(files), read_meaning(files)
    config = files.parse_object(CONFIG, read[CONFIG])
    family = find_family(config, folder)
    tokenizer = load_tokenizer(folder, read, family)
    with _about(folder):
        family.check(config)
        mask = find_mask_id(config, family, tokenizer) if mask_id is None else mask_id
        ends = tuple(eos_ids) if eos_ids is not None else find_eos_ids(config, family, tokenizer)
        length = max_length or family.max_length(config)
    check_special_ids(tokenizer, family, mask, ends)
    source = Source(str(model), family.name, commit)
    digests = {name: content_digest(data) for name, data in read.items()}
    return Checkpoint(folder, config, family, tokenizer, mask, ends, length, source, digests, seen, given)


@contextmanager
def _about(folder: Path) -> Iterator[None]:
    """Within, an error says of which folder it speaks."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error


def find_device(device: str | torch.device | None, *, here: bool = True) -> torch.device:
    """The given device, else the first GPU, else the CPU. Without `here` it is not checked, as for a remote worker."""
    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise UsageError(f"unknown device {device!r}: use cpu, cuda, cuda:1, mps ...") from error
    if here and place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        seen = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU"
        raise UsageError(f"device {device!r} was asked for, but torch {torch.__version__} sees {seen}: use cpu")
    if here and place.type != "cuda":
        _try_device(place)
    return place


def _try_device(place: torch.device) -> None:
    try:
        if place.type == "meta":
            raise RuntimeError("it holds no values")
        torch.zeros(1, device=place).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"device {str(place)!r} cannot be used here ({reason}): use cpu or cuda") from error


def resolve(model: str | Path, revision: str | None = None) -> tuple[Path, str | None]:
    """The folder with the files and, for models from the hub, their commit."""
    if not isinstance(model, str | Path):
        given = f"{type(model).__module__}.{type(model).__qualname__}".removeprefix("builtins.")
        raise UsageError(f"model must be 'builtin', a folder or a Hugging Face id (a str or Path), not {given}")
    if model == "builtin":
        return BUILTIN, None
    folder = _expanded(model)
    if folder.is_dir():
        return folder, revision
    name = str(model)
    if isinstance(model, Path) or name.count("/") != 1 or name.startswith((".", "/", "~")):
        known = ", ".join(each.name for each in known_models()[:3])
        raise CheckpointError(
            f"no such folder: {name}; give a folder or a Hugging Face id such as {known} (softdlm models lists all)"
        )
    from huggingface_hub import snapshot_download

    try:
        snapshot = Path(snapshot_download(name, revision=revision, allow_patterns=_WANTED))
    except Exception as error:
        reason = re.split(r"(?<=[.!?]) ", " ".join(str(error).split()))[0].rstrip(".")
        remedy = "check the name, the revision and the network, or give a folder"
        raise CheckpointError(f"cannot get {name} from the Hugging Face hub: {reason}; {remedy}") from error
    return snapshot, snapshot.name


def is_local(model: str) -> bool:
    """Whether the name means files of this machine, which have no commit to be known by."""
    return model == "builtin" or _expanded(model).is_dir()


def _expanded(model: str | Path) -> Path:
    """With the home folder in place of ~; where nobody has it, there is no such folder."""
    try:
        return Path(model).expanduser()
    except RuntimeError:
        return Path(model)


def find_family(config: Mapping[str, Any], folder: Path) -> Family:
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise CheckpointError(f"{folder}: unknown model_type {kind!r}; known are {', '.join(FAMILIES)}")
    return family_of(kind)


def family_of(kind: str) -> Family:
    return import_module(f"softdlm.models.{FAMILIES[kind]}").FAMILY


def find_precision(dtype: str | torch.dtype | None, device: torch.device, *, here: bool = True) -> Precision:
    """How numbers are kept: `fp8` and `fp8-emulated` by name, else a type. Without `here` the device is elsewhere."""
    if isinstance(dtype, str) and dtype in get_args(Fp8):
        if here and dtype == "fp8":
            check_device(device)
        return Precision(torch.bfloat16, cast(Fp8, dtype))
    return Precision(find_dtype(dtype, device))


def find_dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """The given dtype, else bfloat16 on a GPU and float32 elsewhere.

    `native` is bfloat16 also on a CPU that multiplies in it. It is not the default, so that results do not depend on
    the make of the CPU.
    """
    if dtype is None or dtype == NATIVE:
        native = device.type == "cuda" or (dtype == NATIVE and device.type == "cpu" and cpu_has_bfloat16())
        return torch.bfloat16 if native else torch.float32
    value = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(value, torch.dtype) or value not in FLOATS.values():
        raise UsageError(
            f"dtype must be native, fp8 or a floating-point type such as bfloat16 or float32, not {dtype!r}"
        )
    return value


def cpu_has_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16; others emulate it and are slower than in float32."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
