"""Records of tensors, nested as they like: dataclasses, tuples and dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from torch import Tensor

Record = TypeVar("Record")


def _inside(record: Any) -> Any:
    """The values of a record, by name or number."""
    if is_dataclass(record):
        return {each.name: getattr(record, each.name) for each in fields(record)}
    return record if isinstance(record, dict) else dict(enumerate(record)) if isinstance(record, tuple) else {}


def tensors(record: Any) -> list[Tensor]:
    """The tensors of a record, in order, those of records, tuples and dictionaries inside it included."""
    if isinstance(record, Tensor):
        return [record]
    return [tensor for value in _inside(record).values() for tensor in tensors(value)]


def mapped(record: Record, change: Callable[[Tensor], Tensor]) -> Record:
    """The same record with other tensors."""
    value: Any = record
    if isinstance(value, Tensor):
        return change(value)  # type: ignore[return-value]
    inside = {name: mapped(each, change) for name, each in _inside(value).items()}
    if is_dataclass(value):
        return type(value)(**inside)  # type: ignore[return-value]
    return type(value)(inside.values()) if isinstance(value, tuple) else inside if inside else value  # type: ignore[return-value]


def copied(record: Record) -> Record:
    """A record with tensors of its own."""
    return mapped(record, Tensor.clone)
