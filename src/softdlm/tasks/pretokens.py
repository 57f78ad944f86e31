"""Splitting of text into pretokens.

The built-in tokenizer splits text by this pattern first, and every pretoken that a task can write is one entry of its
vocabulary. So the task generators can count tokens without a tokenizer.
"""

import re

LETTERS = r"[^\W\d_]+"
PATTERN = rf"\n#### |\n *|'s\b| ?{LETTERS}|\d| ?[^\w\s]+|_| +(?= )|\s"
_PIECE = re.compile(PATTERN)


def pieces(text: str) -> list[str]:
    return _PIECE.findall(text)


def fits(text: str, limit: int) -> bool:
    return len(_PIECE.findall(text)) <= limit
