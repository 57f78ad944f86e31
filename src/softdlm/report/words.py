"""Words for numbers."""


def count(number: int, noun: str) -> str:
    """`1 token`, `2 tokens`, `2 passes`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"
