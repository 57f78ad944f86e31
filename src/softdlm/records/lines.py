"""A file of JSON lines: appended by one process at a time, whole after a kill at any moment.

What is on disk is a prefix of whole lines and perhaps a torn last one, which the next opening cuts off.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from softdlm.errors import ResultsError
from softdlm.records.files import parse_json, read_bytes, writing

SYNC_SECONDS = 5.0
"""A line reaches the kernel at once, so a killed process loses none; this often it is forced to the disk."""
T = TypeVar("T")
Opened = TypeVar("Opened")


class Lines(Generic[T]):
    """The file, locked and open for appending; `entries` are the lines it already held."""

    def __init__(self, path: Path, parse: Callable[[Any], T]) -> None:
        """`parse` raises ValueError on a damaged line."""
        self.path = path
        self._synced = time.monotonic()
        with writing(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            with writing(path):
                self._lock()
                self.entries, whole = read_lines(path, parse)
                self.check()
                self._repair(whole)
        except BaseException:
            os.close(self._file)
            raise

    def check(self) -> None:
        """Raise where the entries are not of the measurement at hand; nothing has been changed on disk yet."""

    def holder(self) -> str:
        """Who else may be writing, in brackets, if that is known."""
        return ""

    def write(self, value: dict[str, Any]) -> None:
        """Append one line; where the disk refuses, the file is left with whole lines."""
        start = os.fstat(self._file).st_size
        with writing(self.path):
            try:
                _write_all(self._file, f"{json.dumps(value)}\n".encode())
                if time.monotonic() - self._synced > SYNC_SECONDS:
                    self.sync()
            except BaseException:
                with suppress(OSError):  # needs no space; if it fails, the next opening repairs the file
                    os.ftruncate(self._file, start)
                raise

    def sync(self) -> None:
        with writing(self.path):
            os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Sync and release the lock; a second call does nothing."""
        if self._file < 0:
            return
        try:
            self.sync()
        finally:
            os.close(self._file)
            self._file = -1

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another process is writing {self.path}{self.holder()}: wait for it or end it"
            raise ResultsError(message) from None

    def _repair(self, whole: int) -> None:
        """Cut a torn tail off and complete a missing end of line."""
        if whole < os.fstat(self._file).st_size:
            os.ftruncate(self._file, whole)
        if whole and os.pread(self._file, 1, whole - 1) != b"\n":
            _write_all(self._file, b"\n")


def read_lines(path: Path, parse: Callable[[Any], T]) -> tuple[list[T], int]:
    """The whole lines, parsed, and the bytes they take; what follows is a torn tail.

    Damage anywhere but at the end is no torn write, and nothing is dropped silently: it is an error.
    """
    entries: list[T] = []
    whole = torn = 0
    for number, line in enumerate(read_bytes(path).splitlines(keepends=True), 1):
        try:
            entry = parse(parse_json(line))
        except ValueError:
            torn = torn or number
            continue
        if torn:
            raise ResultsError(f"{path}: line {torn} is damaged, though later ones are whole: mend or remove it")
        entries.append(entry)
        whole += len(line)
    return entries, whole


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
