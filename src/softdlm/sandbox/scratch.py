"""The working folder of a limited process, and its removal whatever the process left in it."""

import os
import secrets
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def scratch_folder() -> Iterator[str]:
    """Writable for any user, and gone afterwards. What cannot be removed is named in a warning, not in silence."""
    folder = tempfile.mkdtemp(prefix="softdlm-")
    os.chmod(folder, 0o777)
    try:
        yield folder
    finally:
        try:
            remove(folder)
        except OSError as problem:
            warnings.warn(f"{folder} could not be removed: {problem}", stacklevel=3)


def remove(folder: str) -> None:
    """Folders are emptied into the topmost one, level by level: neither recursion nor long paths, at any depth."""
    os.chmod(folder, 0o700)
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                lift(entry, folder)
            else:
                os.unlink(entry.path)
    os.rmdir(folder)


def lift(inner: os.DirEntry[str], folder: str) -> None:
    """What lies in `inner` goes to `folder` under new names; a folder can be moved only if it can be written."""
    os.chmod(inner.path, 0o700)
    for entry in list(os.scandir(inner.path)):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
        os.rename(entry.path, os.path.join(folder, secrets.token_hex(16)))
    os.rmdir(inner.path)
