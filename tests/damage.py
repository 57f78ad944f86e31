"""Damaged checkpoints, journals and command lines: generators that tests, fuzz.py and reliability.py share.

Everything is made of the tiny checkpoints in tests/data. What is made either works or is refused with one line.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from softdlm.models.weights import INDEX
from tests.conftest import DATA

WEIGHTS, CONFIG = "model.safetensors", "config.json"
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 10**9, 10**18, 10**40, 0.5, -0.0, 1e-320, 1e308, float("inf"), float("nan"),
    "", "8", "\x1b[31m", [], [1, 2], {}, {"a": 1},
)  # fmt: skip
"""Values for any key of config.json: each type, and the edges of numbers."""


class Damage(NamedTuple):
    """What is done to a folder that holds a whole checkpoint."""

    name: str
    do: Callable[[Path], None]


def whole(folder: Path, family: str) -> Path:
    """A whole checkpoint without a tokenizer; LLaDA's is in two shards for the damages of an index."""
    folder.mkdir(parents=True)
    source = DATA / family.removesuffix("-sharded") / ("sharded" if family.endswith("-sharded") else "")
    for name in (CONFIG, WEIGHTS, INDEX, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        if (source / name).exists():
            shutil.copy(source / name, folder / name)
    return folder


def config_damages(family: str) -> Iterator[Damage]:
    """Every key of config.json with every value, and without it."""
    for key in json.loads((DATA / family / CONFIG).read_text()):
        yield Damage(f"{CONFIG} without {key}", partial(_without, key))
        for value in VALUES:
            yield Damage(f"{CONFIG} {key}={value!r}", partial(_with, CONFIG, key, value))


def file_damages(name: str) -> Iterator[Damage]:
    """A file that is cut, changed, replaced by something else, or not there."""
    for share in (0.0, 0.001, 0.01, 0.3, 0.999):
        yield Damage(f"{name} cut at {share}", partial(_cut, name, share))
    for number in range(12):
        yield Damage(f"{name} with bytes changed, {number}", partial(_flip, name, number))
    for text in (b"", b"\0" * 64, b"\xff" * 64, b"[" * 100_000, b"[]", b"null", b"7", b'"a"', b"{", b"{}\xff"):
        yield Damage(f"{name} is {text[:8]!r}", partial(_put, name, text))
    yield Damage(f"{name} is an LFS pointer", partial(_put, name, b"version https://git-lfs.github.com/spec/v1\noid"))
    for kind, make in _STRANGE.items():
        yield Damage(f"{name} is {kind}", partial(_strange, name, make))


def header_damages() -> Iterator[Damage]:
    """A safetensors header that says something else about the first tensor, or in all."""
    for key in ("dtype", "shape", "data_offsets"):
        for value in (*VALUES, "I8", "BOOL", "F8_E4M3", [0, 0], [-1, 4], [64, 10**18], ["a", "b"], [0, 10**18]):
            yield Damage(f"header {key}={value!r}", partial(_header, key, value))
    for length in (0, 1, 7, 2**31, 2**63, 2**64 - 1):
        yield Damage(f"header of {length} bytes", partial(_length, length))
    yield Damage("a name that steers the terminal", partial(_rename, "\x1b[2J\x1b[31m\r\n"))


def index_damages() -> Iterator[Damage]:
    """An index whose map leads elsewhere."""
    for value in (
        *VALUES,
        {"a": 7},
        {"a": "../../x"},
        {"a": "/etc/passwd"},
        {"a": "/dev/zero"},
        {"a": "\0"},
        {"a": "."},
    ):
        yield Damage(f"weight_map={value!r}", partial(_with, INDEX, "weight_map", value))
    shard = "model-00001-of-00002.safetensors"
    yield Damage("one shard is missing", lambda folder: (folder / shard).unlink())
    yield Damage("shards are equal", partial(_copy, _second, shard))
    yield from file_damages(INDEX)


def damages(family: str) -> list[Damage]:
    """All of a family; `llada-sharded` has those of an index."""
    if family.endswith("-sharded"):
        return list(index_damages())
    return [*file_damages(WEIGHTS), *file_damages(CONFIG), *header_damages(), *config_damages(family)]


def damaged_lines(whole: bytes, number: int) -> bytes:
    """A journal in which one thing is wrong."""
    draw = random.Random(number)
    lines = whole.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    kind = number % 6
    if kind == 0:
        return whole[: draw.randrange(len(whole))]
    if kind == 1:
        place = draw.randrange(len(whole))
        return whole[:place] + bytes([draw.randrange(256)]) + whole[place + 1 :]
    if kind == 2:
        return b"".join([*lines[:at], lines[at], *lines[at:]])
    if kind == 3:
        return b"".join([*lines[:at], *lines[at + 1 :]])
    entry = json.loads(lines[at])
    key = draw.choice(sorted(entry))
    entry = {**entry, key: draw.choice(VALUES)} if kind == 4 else {k: v for k, v in entry.items() if k != key}
    return b"".join([*lines[:at], json.dumps(entry).encode() + b"\n", *lines[at + 1 :]])


def _change(folder: Path, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """An object's file, changed; one that an earlier damage made into something else stays as it is."""
    try:
        found = json.loads((folder / name).read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(found, dict):
        (folder / name).write_text(json.dumps(change(found)))


def _with(name: str, key: str, value: Any, folder: Path) -> None:
    _change(folder, name, lambda found: {**found, key: value})


def _without(key: str, folder: Path) -> None:
    _change(folder, CONFIG, lambda found: {name: value for name, value in found.items() if name != key})


def _cut(name: str, share: float, folder: Path) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(share * len(data))])


def _flip(name: str, number: int, folder: Path) -> None:
    """Some bytes, half of them near the beginning, where headers are."""
    draw, data = random.Random(number), bytearray((folder / name).read_bytes())
    for _ in range(3):
        data[draw.randrange(min(len(data), 2000) if number % 2 else len(data))] = draw.randrange(256)
    (folder / name).write_bytes(data)


def _put(name: str, data: bytes, folder: Path) -> None:
    (folder / name).write_bytes(data)


def _copy(source: str, target: str, folder: Path) -> None:
    shutil.copy(folder / source, folder / target)


def _strange(name: str, make: Callable[[Path], None], folder: Path) -> None:
    (folder / name).unlink()
    make(folder / name)


def _header(key: str, value: Any, folder: Path) -> None:
    def change(header: dict[str, Any]) -> dict[str, Any]:
        first = next(name for name in header if name != "__metadata__")
        return {**header, first: {**header[first], key: value}}

    _rewrite(folder, change)


def _rename(word: str, folder: Path) -> None:
    def change(header: dict[str, Any]) -> dict[str, Any]:
        first = next(name for name in header if name != "__metadata__")
        return {word if name == first else name: about for name, about in header.items()}

    _rewrite(folder, change)


def _length(length: int, folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", length) + data[8:])


def _rewrite(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    head = json.dumps(change(json.loads(data[8 : 8 + length]))).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(head)) + head + data[8 + length :])


_second = "model-00002-of-00002.safetensors"
_STRANGE: dict[str, Callable[[Path], None]] = {
    "absent": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link that leads out": lambda path: path.symlink_to("/etc/passwd"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
}


EDGES: dict[str, tuple[str, ...]] = {
    "integer": ("-1", "0", "1", "3", "2147483648", "9" * 30, "x", ""),
    "float": ("-1", "0", "0.5", "1", "1e-320", "1e308", "inf", "nan", "x"),
    "text": ("", "-", "\x1b[31m", "\udcff", "a,b", "slerp(", "topn(9e9)", "a/../b", "~nobody/x", "cpu", "0" * 5000),
    "path": ("", ".", "/dev/null", "/dev/full", "/proc/self/mem", "nowhere/x", "\x1b", "a" * 300),
}
"""Values for an option, by the type that it takes; no path leads where something could be written."""
_KINDS = {int: "integer", float: "float", Path: "path"}


def command_lines(verb: str, command: Any, draw: random.Random, fixed: tuple[str, ...] = ()) -> list[str]:
    """A verb with a few of its options, each with a value of its type or an edge of any."""
    words = [*verb.split(), *fixed]
    options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
    for option in draw.sample(options, min(len(options), draw.randrange(1, 4))):
        kind = _KINDS.get(option.type_descriptor.annotation, "text")
        kind = kind if draw.random() < 0.8 else draw.choice(sorted(EDGES))
        words += [option.opts[0]] if option.is_flag else [option.opts[0], draw.choice(EDGES[kind])]
    return words
