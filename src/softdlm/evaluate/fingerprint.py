"""What an answer depends on, as data: the key of every cache and the record of every result."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from softdlm.evaluate.harness_settings import Settings
from softdlm.models.denoiser import Denoiser
from softdlm.records.canonical import content_digest


def request_number(*parts: str) -> int:
    """The number that a request's draws depend on: a function of its text, not of its place in a run."""
    return int.from_bytes(hashlib.blake2b("\0".join(parts).encode(), digest_size=6).digest(), "big")


def protocol(settings: Settings, model: Denoiser | None = None) -> dict[str, Any]:
    """Everything that an answer depends on, apart from its own request; batches do not count.

    With the `model` that answers, its weights are those that were loaded, whatever lies in their folder by now.
    """
    import torch
    import transformers

    from softdlm.models.load import find_device, find_precision
    from softdlm.version import __version__

    place = find_device(settings.device)
    words = {name: value for name, value in vars(settings).items() if name not in ("batch_size", "decoding")}
    return {
        **words,
        "settings": None if settings.settings is None else asdict(settings.settings),
        "readings": {} if settings.recipe is None else settings.readings.record(),
        "decoding": settings.decoding.record(),
        "device": place.type,
        "dtype": str(find_precision(settings.dtype, place)),
        "weights": loaded_identity(model) if model else weights_identity(settings.pretrained, settings.revision),
        "softdlm": __version__,
        "code": code_digest(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def weights_identity(model: str, revision: str | None) -> str:
    """The hub's commit, or a digest of a folder's weights, configuration and tokenizer."""
    from softdlm.models.load import find_checkpoint
    from softdlm.models.weights import digest as folder_digest

    found = find_checkpoint(model, revision=revision)
    return str(found.source.revision) if found.from_hub else folder_digest(found.folder)


def loaded_identity(model: Denoiser) -> str:
    """The same of a model that was loaded, with a digest unless it is the hub's."""
    return str(model.source.revision) if model.digest is None else model.digest


@cache
def code_digest() -> str:
    """A digest of every module of this package: answers of other code are never reused."""
    root = Path(__file__).parents[1]
    files = sorted(root.rglob("*.py"))
    return content_digest(*(part for file in files for part in (f"{file.relative_to(root).as_posix()}\0", file)))
