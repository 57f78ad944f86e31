"""Files written whole or not at all, and errors of the disk as one line."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from softdlm.errors import ResultsError, UsageError

SPARE = 16 << 20
"""Bytes that must be free before work begins whose results are to be written."""


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turns errors of the disk (full, read-only, over quota) into one line that names the place and the reason."""
    try:
        yield
    except OSError as error:
        raise ResultsError(
            f"cannot write {place}: {error.strerror or error}; what was complete is kept: "
            "make the place writable or choose another, then run the same again"
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file in the same folder, to be filled; it takes the place of `path` if the block ends without an error."""
    check_replaceable(path)
    part = path.with_name(f".softdlm-{secrets.token_hex(4)}{path.suffix}")
    with writing(path):
        try:
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            yield part
            _sync(part)
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _sync(path.parent)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone afterwards; errors of the disk, also of what is written into it, are one line."""
    place = "a temporary folder"
    try:
        with TemporaryDirectory(prefix="softdlm-") as name:
            place = f"the temporary folder {name}"
            yield Path(name)
    except OSError as error:
        reason = error.strerror or error
        raise ResultsError(f"cannot write {place}: {reason}; make room, or set TMPDIR to another place") from error


def ready_folder(path: Path) -> None:
    """Make a folder for results, and refuse one that could not be written when the work is done."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".softdlm-{secrets.token_hex(4)}"
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        probe.unlink()
        if os.statvfs(path).f_bavail * os.statvfs(path).f_frsize < SPARE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def ready_file(path: Path) -> None:
    """Refuse a file that could not be written when the work is done, such as a folder."""
    check_replaceable(path)
    ready_folder(path.parent)


def check_replaceable(path: Path) -> None:
    """A path may be absent or a regular file. Links, devices and folders are refused and stay as they are."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise ResultsError(f"cannot write {path}: it exists and is not a regular file; choose another name")


def write_bytes(path: Path, data: bytes) -> None:
    with replacing(path) as part:
        part.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def read_bytes(path: Path) -> bytes:
    """All of a regular file; anything else is refused, so that nothing waits for a pipe."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ResultsError(f"{path} is not a regular file: move it away")
        return file.read()


def read_input(path: Path, most: int) -> bytes:
    """A file that a user names: a regular one, so that nothing waits for a pipe, of a size that can be meant."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            regular = stat.S_ISREG(os.fstat(handle).st_mode)
            data = b"".join(_blocks(handle, most + 1)) if regular else b""
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not regular:
        raise UsageError(f"{path} is not a regular file: give one")
    if len(data) > most:
        raise UsageError(f"{path} is larger than {most >> 20} MiB: this cannot be meant")
    return data


def _blocks(handle: int, most: int) -> Iterator[bytes]:
    while most > 0 and (block := os.read(handle, min(most, 1 << 24))):
        most -= len(block)
        yield block


def read_json(path: Path) -> Any:
    """Raises OSError or ValueError where there is no JSON."""
    return parse_json(read_bytes(path))


def parse_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))  # of bytes alone json would guess the encoding
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
