"""Whether an answer agrees with itself: all its plain equations are true, or its program uses only defined names.

Accuracy reads the last number, or runs tests. Parallel decoding breaks something else first: tokens that were committed
together contradict each other (section 1), and the last number may be right all the same.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
import symtable
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

CONSISTENT = "consistent"
"""The key of this verdict in a score."""
_SIGNS = {r"\times": "*", r"\cdot": "*", r"\div": "/", r"\,": "", r"\!": "", r"\$": "$"} | {
    "\N{MULTIPLICATION SIGN}": "*",
    "\N{MIDDLE DOT}": "*",
    "\N{DIVISION SIGN}": "/",
    "\N{MINUS SIGN}": "-",
    "\N{EN DASH}": "-",
}
"""Other spellings of the four operators, and what only lays out a formula."""
_SPELLINGS = re.compile("|".join(map(re.escape, _SIGNS)))
_DIGITS = r"\$?(?:0|[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d*)(?:\.\d+)?"
_NUMBER = rf"-?{_DIGITS}"
_SIDE = rf"{_NUMBER}(?:[ \t]*[-+*/][ \t]*{_NUMBER}|[ \t]*x[ \t]*{_DIGITS})*"
_EQUATION = re.compile(rf"(?<![\w.,^)\]}}$])({_SIDE}(?:[ \t]*=[ \t]*{_SIDE})+)")
_BEFORE = re.compile(r"([-+*/^%)\]}]|\\[a-zA-Z]+|\b(of|x)|\d[ \t]+)\s*$")
_AFTER = re.compile(r"[\w^(\[{%]|[.,][\d\\]|[ \t]+\d|,[ \t]*000|\s*[-+*/][ \t]*[\w$(\\]")
"""What makes numbers beside it part of a larger formula, or of a number in words or with gaps (3 1/2, 350 000)."""
_OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_OF_EVERY_MODULE = {"__name__", "__file__", "__doc__"}


class Equation(NamedTuple):
    """A plain equation as it stands in a text, from `start` to the letter before `end`."""

    text: str
    true: bool
    start: int
    end: int


def equations(text: str) -> Iterator[Equation]:
    """Each plain equation of a text, such as 3*8=24 or 2 + 3 + 4 = 9, and whether it is true.

    Plain means numbers and + - * / on both sides, no letters and no brackets: what is part of a larger formula is left
    out. A decimal side may be a rounded one: 10/3=3.33 is true, 10/3=3.34 is not.
    """
    text, places = _plain(text)
    for found in _EQUATION.finditer(text):
        sides = [re.sub(r"[\s$,]", "", side.replace("x", "*")) for side in found[1].split("=")]
        before = text[max(found.start() - 30, 0) : found.start()]
        alone = not (_BEFORE.search(before) or _AFTER.match(text, found.end()))
        if alone and not all(map(_is_number, sides)):
            yield Equation(found[1], _holds(sides), places[found.start()], places[found.end() - 1] + 1)


def _plain(text: str) -> tuple[str, list[int]]:
    """A text with one spelling of each sign, and for each of its letters the place that it had."""
    parts, places, last = [], [], 0
    for found in _SPELLINGS.finditer(text):
        sign = _SIGNS[found[0]]
        parts += [text[last : found.start()], sign]
        places += [*range(last, found.start()), *[found.start()] * len(sign)]
        last = found.end()
    return "".join([*parts, text[last:]]), [*places, *range(last, len(text))]


def true_equations(text: str) -> bool:
    """Whether every plain equation of the text is true; also where it has none."""
    return all(each.true for each in equations(text))


def sound_program(code: str) -> bool:
    """Whether a program parses and uses only names that it defines or that Python has."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree, table = ast.parse(code), symtable.symtable(code, "answer", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)):
        return True  # names that nobody can list
    symbols = [(scope, symbol) for scope in _scopes(table) for symbol in scope.get_symbols()]
    made = {each.get_name() for scope, each in symbols if _at_the_top(scope, each) and each.is_assigned()}
    made |= {each.get_name() for scope, each in symbols if _at_the_top(scope, each) and each.is_imported()}
    used = {each.get_name() for scope, each in symbols if _at_the_top(scope, each) and each.is_referenced()}
    return used <= made | set(dir(builtins)) | _OF_EVERY_MODULE


def _is_number(side: str) -> bool:
    return re.fullmatch(_NUMBER, side) is not None


def _holds(sides: list[str]) -> bool:
    """All sides have the value of the first that is more than a number, up to the decimals that they show."""
    try:
        values = [_value(ast.parse(side, mode="eval").body) for side in sides]
    except (ZeroDivisionError, RecursionError, MemoryError):
        return False
    exact = next(value for side, value in zip(sides, values, strict=True) if not _is_number(side))
    return all(_shown(side, exact) == value for side, value in zip(sides, values, strict=True))


def _shown(side: str, exact: Fraction) -> Fraction:
    """The exact value, rounded half up to the decimals of a single number; as it is beside anything else."""
    if "." not in side or not _is_number(side):
        return exact
    scale = 10 ** len(side.partition(".")[2])
    whole = int((abs(exact) * scale * 2 + 1) // 2)
    return Fraction(whole if exact >= 0 else -whole, scale)


def _value(node: ast.expr) -> Fraction:
    """Of numbers and operators, exactly."""
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand) if isinstance(node.op, ast.USub) else _value(node.operand)
    assert isinstance(node, ast.Constant)
    return Fraction(str(node.value))


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from _scopes(inner)


def _at_the_top(scope: symtable.SymbolTable, symbol: symtable.Symbol) -> bool:
    """Whether the name, where it stands, is one of the module's."""
    return symbol.is_global() or scope.get_type() == "module"
