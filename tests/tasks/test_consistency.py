"""Whether answers agree with themselves: equations by arithmetic, programs by their names."""

import gzip
import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softdlm.tasks import load_task
from softdlm.tasks.code import program_text
from softdlm.tasks.consistency import equations, sound_program, true_equations
from tests.conftest import REAL_BENCHMARKS, needs_real_data

SIGNS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b}


@given(
    st.integers(0, 9999),
    st.sampled_from(list(SIGNS)),
    st.integers(1, 999),
    st.sampled_from(["", " "]),
    st.integers(-3, 3),
)
def test_an_equation_is_true_where_arithmetic_says_so(a: int, sign: str, b: int, gap: str, off: int) -> None:
    value = SIGNS[sign](Fraction(a), Fraction(b))
    if value.denominator > 1:
        return
    text = f"So there are {a}{gap}{sign}{gap}{b}{gap}={gap}{value + off} left.\n#### {value}"
    (found,) = equations(text)
    assert found.text.replace(" ", "") == f"{a}{sign}{b}={value + off}"
    assert found.true == true_equations(text) == (off == 0)
    assert text[found.start : found.end] == found.text


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        ("3*8=24, 24-5=18", [True, False]),
        ("2+3+4=9, 10-3-2=5 and 2+3*4=14", [True, True, True]),
        ("2+3*4=20", [False]),
        ("10/3=3.33, 2/3=0.67, 1/8=0.13, 9/2=4.5", [True] * 4),
        ("10/3=3.34, 9/2=4, 1/0=3", [False] * 3),
        ("$5*3=$15 and 1,000+200=1,200", [True, True]),
        ("Total = 3+4 = 7 = x", [True]),
        ("5*3=15=3*6", [False]),
        ("7-9=-2, 2*-3=-6, -3 - -4 = 1", [True] * 3),
        (r"5 \times 4 + 2 = 22, 5 x 3 = 16", [True, False]),
        ("<<48/2=24>>24 clips", [True]),
    ],
)
def test_what_is_an_equation(text: str, verdicts: list[bool]) -> None:
    assert [each.true for each in equations(text)] == verdicts


def test_an_equation_is_found_where_it_stands() -> None:
    """Also behind and within spellings of signs that are longer than the sign."""
    text = r"So \$4 \times 3 = 12 and 5 \div 2\,+ 1 = 3.5, then 2+2=5."
    assert [text[each.start : each.end] for each in equations(text)] == [
        r"\$4 \times 3 = 12", r"5 \div 2\,+ 1 = 3.5", "2+2=5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        *("x+3+4=9", "(2+3)*4=20", "3x=12", "7x+12=341", "2^3+1=9", "2+2=4x", "5 = 6", "3 = 3"),
        *("20% of 50 + 3 = 13", r"\frac{1}{2} 3+4=9", "5 - 1 1/2 = 3 1/2", "$350, 000 + $17500 = $367, 500"),
        *("f(2)+3=9", "5 apples + 3 apples = 9", "279/99999 = 0.\\overline{00279}", "5*3=15%", ""),
    ],
)
def test_parts_of_larger_formulas_are_left_out(text: str) -> None:
    assert not list(equations(text))


@given(st.text(max_size=80) | st.text(alphabet="0123456789+-*/x=.,$ ()\n", max_size=60))
def test_no_text_is_too_odd(text: str) -> None:
    true_equations(text)
    sound_program(text)


@pytest.mark.parametrize(
    ("code", "sound"),
    [
        ("def f(a):\n return a + b", False),
        ("def f(a):\n return sorted(a, key=len)", True),
        ("import math as m\ndef f(x): return m.sqrt(x)", True),
        ("def f(x): return math.sqrt(x)", False),
        ("def f(:", False),
        ("def f(x):\n  return [y for y in x if z]", False),
        ("def f():\n  global g\n  g = 1\ndef h(): return g", True),
        ("class A:\n  x = 1\n  def m(self): return A.x\n", True),
        ("def f(x):\n  def g(): return x + f(1)\n  return g", True),
        ("from math import *\nprint(pi)", True),
        ("try:\n  1\nexcept Missing as e:\n  print(e)", False),
        ("if (n := 3) > 2: print(n, __name__)", True),
        ("'\\d'", True),
        ("\0", False),
    ],
)
def test_a_program_may_use_what_it_defines(code: str, sound: bool) -> None:
    assert sound_program(code) == sound


def test_the_built_in_solutions_are_consistent() -> None:
    assert all(
        true_equations(item.target) and list(equations(item.target)) for item in load_task("mini-math", size=300)
    )
    assert all(sound_program(program_text(item, item.target)) for item in load_task("mini-code", size=200))


def real(name: str) -> list[dict[str, str]]:
    with gzip.open(REAL_BENCHMARKS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@needs_real_data
def test_people_contradict_themselves_hardly_ever() -> None:
    """A measure of what models break must not be set off by what people write."""
    gsm8k, maths = (
        [row[key] for row in real(name)] for name, key in (("gsm8k_test", "answer"), ("math500_test", "solution"))
    )
    assert sum(bool(list(equations(text))) for text in gsm8k) > 1200
    assert sum(not true_equations(text) for text in gsm8k) <= 3
    assert sum(not true_equations(text) for text in maths) == 0
    assert all(sound_program(row["prompt"] + row["canonical_solution"]) for row in real("humaneval"))
    unsound = [row["code"] for row in real("mbpp") if not sound_program(row["code"])]
    assert len(unsound) == 1
    assert "swap(A,B)" in unsound[0]
