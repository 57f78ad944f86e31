"""Rules out of a user's file, and the digests by which an edit is seen."""

from __future__ import annotations

import dataclasses
import inspect
import linecache
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from softdlm.errors import UsageError
from softdlm.records.canonical import content_digest

FILE_MODULE = "softdlm_rules_"
"""How the modules of rule files are named in `sys.modules`."""


def load_rule(file: Path, name: str) -> Any:
    """A rule out of a user's file."""
    rule = getattr(load_module(file), name, None)
    if not (inspect.isfunction(rule) or (inspect.isclass(rule) and dataclasses.is_dataclass(rule))):
        raise UsageError(f"{file} has no dataclass or function {name!r} to use as a rule")
    return rule


def load_module(file: Path) -> ModuleType:
    """A user's file as a module; it is run once per content."""
    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the rule file {file} cannot be read: {error}") from error
    key = f"{FILE_MODULE}{file.stem}_{content_digest(f'{file.resolve()}:{content}', length=20)}"
    if key not in sys.modules:
        spec = spec_from_file_location(key, file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        module.__dict__["SOURCE"] = content
        sys.modules[key] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[key]
            raise UsageError(f"the rule file {file} cannot be run: {type(error).__name__}: {error}") from error
    return sys.modules[key]


def home_of(kind: Any) -> str:
    """Where `build` finds a user's rule again: its file, if it was loaded from one."""
    module = sys.modules.get(kind.__module__)
    return f"{module.__file__}:" if module is not None and kind.__module__.startswith(FILE_MODULE) else ""


def source_digest(rule: Any) -> str | None:
    """A digest of the files that a user's rule and its inner rules are written in, so that an edit is a change.

    None for rules of softdlm.
    """
    sources = tuple(_sources(rule))
    return content_digest(*sources, length=20) if sources else None


def _sources(rule: Any) -> Iterator[str]:
    plain = inspect.isfunction(rule) and rule.__closure__ is None and rule.__name__ != "<lambda>"
    kind: Any = rule if plain else type(rule)
    if not plain and not hasattr(kind, "__dataclass_fields__"):
        raise UsageError(f"the settings of {rule!r} cannot be read: write the rule as a dataclass or a plain function")
    if not (kind.__module__ or "").startswith("softdlm."):
        yield _source(kind)
    if plain and "<locals>" in kind.__qualname__:
        yield f"{kind.__qualname__} {kind.__defaults__} {kind.__kwdefaults__}"
    inner = [] if plain else [getattr(rule, each.name) for each in dataclasses.fields(kind)]
    for each in filter(callable, inner):
        yield from _sources(each)


def _source(kind: Any) -> str:
    """The text of the whole file, or of a notebook's cell, where there is one: a rule may call its neighbours."""
    if (content := getattr(sys.modules.get(kind.__module__), "SOURCE", None)) is not None:
        return content
    for place in (inspect.getmodule(kind), kind):
        try:
            return inspect.getsource(place)  # type: ignore[arg-type]
        except (OSError, TypeError):
            continue
    if cell := _cell(kind):
        return cell
    raise UsageError(f"the source of {kind.__qualname__} cannot be read, so an edit would go unseen: save it in a file")


def _cell(kind: Any) -> str:
    """The cell of a notebook that a class is written in: there Python finds the text of functions only."""
    code = getattr(kind.__call__, "__code__", None)
    return "".join(linecache.getlines(code.co_filename)) if code else ""
