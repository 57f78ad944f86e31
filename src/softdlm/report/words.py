"""Words for numbers."""

from typing import Any


def count(number: int, noun: str) -> str:
    """`1 token`, `2 tokens`, `2 passes`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def rounded(value: Any) -> Any:
    """The same JSON value with all fractions rounded to six digits, more than measurements are accurate to."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
