"""A checkpoint's folder as input from outside: every file of it is opened here, and nowhere else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO

from softdlm.errors import CheckpointError
from softdlm.records.files import parse_json

MIB = 1 << 20
CONFIG = "config.json"
LIMITS = {CONFIG: 16 * MIB}
"""Bytes of a file that is read whole: real ones have a few thousand."""
TEXT_LIMIT = 512 * MIB
"""Bytes of any other, such as a tokenizer's or the weights' index: real ones have up to about 40 MiB."""


class CheckpointFolder:
    """The files of a checkpoint, which anybody may have made.

    A file must be a regular one, so that nothing waits for a pipe or reads a device, and lie inside the folder, so that
    a link cannot fetch what its maker may not see. In a hub's cache, snapshots link to blobs of the same repository.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            real = path.resolve()
        except (OSError, RuntimeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        if CONFIG not in self:
            raise CheckpointError(f"{path} holds no {CONFIG}")
        cached = real.parent.name == "snapshots" and (real.parents[1] / "blobs").is_dir()
        self._root = real.parents[1] if cached else real

    def __contains__(self, name: str) -> bool:
        return os.path.lexists(self.path / name)

    def names(self, *patterns: str) -> list[str]:
        """The files that match any of these patterns; folders do not count."""
        try:
            files = [name for name in os.listdir(self.path) if not os.path.isdir(self.path / name)]
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error.strerror}") from error
        return sorted(name for name in files if any(fnmatchcase(name, pattern) for pattern in patterns))

    def open(self, name: str) -> BinaryIO:
        """The file, unbuffered; whoever opens it closes it."""
        place = self.path / name
        try:
            real = place.resolve(strict=True)
            if not real.is_relative_to(self._root):
                raise CheckpointError(f"{place} leads out of the checkpoint, to {real}: put the file itself there")
            _check_regular(place, os.stat(real))
            handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except (OSError, RuntimeError, ValueError) as error:
            raise CheckpointError(f"{place} cannot be read: {getattr(error, 'strerror', None) or error}") from error
        file = open(handle, "rb", buffering=0)  # noqa: SIM115
        try:
            _check_regular(place, os.fstat(handle))
        except BaseException:
            file.close()
            raise
        return file

    def read(self, name: str) -> bytes:
        """All of a file, which must not be larger than such files are."""
        limit = LIMITS.get(name, TEXT_LIMIT)
        with self.open(name) as file:
            try:
                data = b"".join(_blocks(file, limit + 1))
            except OSError as error:
                raise CheckpointError(f"{self.path / name} cannot be read: {error.strerror}") from error
        if len(data) > limit:
            raise CheckpointError(f"{self.path / name} is larger than {limit // MIB} MiB: this cannot be meant")
        return data

    def parse_object(self, name: str, data: bytes) -> dict[str, Any]:
        """The one JSON object that a file holds."""
        place = self.path / name
        try:
            value = parse_json(data)
        except ValueError as error:
            raise CheckpointError(f"{place} is not JSON: {about_pointer(data) or error}") from error
        if not isinstance(value, dict):
            raise CheckpointError(f"{place} must hold a JSON object, not a {type(value).__name__}")
        return value


def about_pointer(data: bytes) -> str:
    """What to do about a file that stands for another one, as a repository without its large files has them."""
    return "it is a Git LFS pointer, run git lfs pull" if data.startswith(b"version https://git-lfs") else ""


def _blocks(file: BinaryIO, most: int) -> Iterator[bytes]:
    while most > 0 and (block := file.read(min(most, 16 * MIB))):
        most -= len(block)
        yield block


def _check_regular(place: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{place} is not a regular file: put the file itself there")
