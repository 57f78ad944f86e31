"""The samples of one cell on disk: written by one process at a time, one line a sample, never twice.

A process may be killed at any moment: what is on disk is a prefix of whole lines and perhaps a torn last one, which the
next opening cuts off. `summary.json` is written last, whole or not at all, so its presence means a finished cell.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from softdlm.errors import ResultsError

MANIFEST, SAMPLES, SUMMARY, LOCK = "manifest.json", "samples.jsonl", "summary.json", "lock"
SYNC_SECONDS = 5.0
"""Every sample reaches the kernel at once, so a killed process loses none; the disk is waited for this often."""


@dataclass(frozen=True)
class Sample:
    """One answered item: a line of `samples.jsonl`."""

    id: str
    prompt_digest: str
    text: str
    ids_digest: str
    """Of the answer's token ids, up to EOS."""
    forwards: int
    tokens: int
    """Up to EOS."""
    seconds: float
    """This item's share of its batch's decoding, by forwards; their sum is the time spent decoding."""
    finish: str
    correct: bool
    reason: str
    extra: dict[str, Any] = field(default_factory=dict)


class Journal:
    """The folder of a cell, held open for writing."""

    def __init__(self, folder: Path, protocol: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        self.folder, self.protocol, self.labels = folder, dict(protocol), dict(labels)
        self.samples: dict[str, Sample] = {}
        self._synced = time.monotonic()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / LOCK)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise ResultsError(f"another process is writing {folder}{_holder(folder)}: wait for it or end it") from None
        try:
            self._sessions = self._check_manifest()
            with writing(folder):
                self._file = self._open_samples()
        except BaseException:
            self._lock.release()
            raise

    def begin(self, session: Mapping[str, Any]) -> None:
        """Say who is about to write, with what versions, on what machine."""
        self._sessions.append({**session, "samples_before": len(self.samples)})
        manifest = {"labels": self.labels, "protocol": self.protocol, "sessions": self._sessions}
        with writing(self.folder):
            write_whole(self.folder / MANIFEST, manifest)

    def append(self, sample: Sample) -> None:
        if sample.id in self.samples:
            raise ResultsError(f"{self.folder} already holds an answer to {sample.id}: it was decoded twice")
        start = os.fstat(self._file).st_size
        try:
            _write_all(self._file, f"{json.dumps(asdict(sample))}\n".encode())
            if time.monotonic() - self._synced > SYNC_SECONDS:
                self._sync()
        except OSError as error:
            with suppress(OSError):  # back to whole lines, which needs no space; else the next opening does it
                os.ftruncate(self._file, start)
            raise _unwritable(self.folder, error) from error
        self.samples[sample.id] = sample

    def finish(self, summary: Mapping[str, Any]) -> None:
        with writing(self.folder):
            self._sync()
            write_whole(self.folder / SUMMARY, summary)

    def close(self) -> None:
        if self._file < 0:
            return
        try:
            with writing(self.folder):
                self._sync()
        finally:
            os.close(self._file)
            self._file = -1
            self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sync(self) -> None:
        os.fsync(self._file)
        self._synced = time.monotonic()

    def _check_manifest(self) -> list[dict[str, Any]]:
        """The sessions so far; a folder whose manifest is not of this protocol is not touched."""
        if not (self.folder / MANIFEST).exists():
            if (self.folder / SAMPLES).exists() and (self.folder / SAMPLES).stat().st_size:
                raise ResultsError(f"{self.folder} has samples but no {MANIFEST}: move it away")
            return []
        manifest = read_manifest(self.folder)
        if manifest["protocol"] != self.protocol:
            raise ResultsError(f"{self.folder / MANIFEST} is of another protocol than its folder's name: move it away")
        return manifest["sessions"]

    def _open_samples(self) -> int:
        """Cut a torn tail off, complete a missing end of line, and append from there."""
        path = self.folder / SAMPLES
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            self.samples, kept = read_samples(path)
            if kept < os.fstat(file).st_size:
                os.ftruncate(file, kept)
            if kept and os.pread(file, 1, kept - 1) != b"\n":
                _write_all(file, b"\n")
        except BaseException:
            os.close(file)
            raise
        return file


def read_samples(path: Path) -> tuple[dict[str, Sample], int]:
    """The samples of a file by id, and the bytes they take; what follows is a torn tail.

    Damage anywhere but at the end is no torn write, and nothing is dropped silently: it is an error.
    """
    samples: dict[str, Sample] = {}
    place, torn = 0, 0
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    for number, line in enumerate(lines, 1):
        sample = _parse(line)
        if sample is None:
            torn = torn or number
        elif torn:
            raise ResultsError(f"{path}: line {torn} is damaged, though later ones are whole: mend or remove it")
        elif sample.id in samples:
            raise ResultsError(f"{path}: line {number} answers {sample.id} a second time: remove one of them")
        else:
            samples[sample.id] = sample
            place += len(line)
    return samples, place


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return {name: manifest[name] for name in ("labels", "protocol", "sessions")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{folder / MANIFEST} cannot be read: {error}") from error


def write_whole(path: Path, value: Any) -> None:
    """JSON, whole or not at all, also after a power cut."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w") as file:
            json.dump(value, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A disk that refuses (full, read-only, over quota) is one line to the user."""
    try:
        yield
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> ResultsError:
    reason = error.strerror or error
    return ResultsError(f"cannot write {folder}: {reason}; finished samples are safe: mend it, then run the same again")


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _parse(line: bytes) -> Sample | None:
    try:
        return Sample(**json.loads(line))
    except (ValueError, TypeError):
        return None


def _holder(folder: Path) -> str:
    try:
        last = read_manifest(folder)["sessions"][-1]
        return f" (process {last['pid']} on {last['host']}, since {last['started']})"
    except (ResultsError, IndexError, KeyError):
        return ""
