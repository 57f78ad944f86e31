"""Words for numbers, and text as a screen can show it."""

from typing import Any

SIGNS = str.maketrans("·∎⏎\N{MULTIPLICATION SIGN}▸─—…█░", ".#|x>--.#.")
"""Our own signs, and what stands for them on a terminal without Unicode, as wide."""


def for_screen(text: str, encoding: str = "utf-8") -> str:
    """Text of one line with everything escaped that would steer the terminal, or that its encoding does not have."""
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    try:
        shown.encode(encoding)
    except UnicodeEncodeError:
        return shown.translate(SIGNS).encode(encoding, "backslashreplace").decode(encoding)
    return shown


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
