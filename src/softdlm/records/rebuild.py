"""Dataclasses from the JSON that `dataclasses.asdict` made of them."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

PLAIN: dict[Any, tuple[type, ...]] = {each: (each,) for each in (str, bool, int, NoneType)} | {float: (float, int)}


def rebuild(kind: Any, value: Any) -> Any:
    """A value of this kind: a dataclass, a list, tuple or dictionary of one kind, a plain value, or one of several.

    Raises ValueError where the value does not fit. Kinds that are not known here take any value.
    """
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, _expect(value, dict))
    origin, inner = get_origin(kind), get_args(kind)
    if origin is dict:
        return {name: rebuild(inner[1], each) for name, each in _expect(value, dict).items()}
    if origin in (list, tuple):
        return origin(rebuild(inner[0], each) for each in _expect(value, list))
    if origin in (Union, UnionType):
        return _first(inner, value)
    if origin is Literal and value not in inner:
        raise ValueError(f"{value!r} is none of {', '.join(map(repr, inner))}")
    return _expect(value, *PLAIN[kind]) if kind in PLAIN else value


def _dataclass(kind: Any, value: dict[str, Any]) -> Any:
    hints = _hints(kind)
    if unknown := value.keys() - hints.keys():
        raise ValueError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    try:
        return kind(**{name: rebuild(hints[name], each) for name, each in value.items()})
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error


def _first(kinds: tuple[Any, ...], value: Any) -> Any:
    """The value as the first of these kinds that it fits."""
    for kind in kinds:
        try:
            return rebuild(kind, value)
        except ValueError:
            continue
    raise ValueError(f"{value!r} is none of {', '.join(map(str, kinds))}")


def _expect(value: Any, *kinds: type) -> Any:
    """The value, where it is of one of these types; True and False are no numbers."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"{value!r} where a {kinds[0].__name__} belongs")
    return value


_hints = cache(get_type_hints)
