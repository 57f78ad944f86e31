"""What is taken out of an answer, against lm-eval's own filters and against the shapes that models write."""

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softdlm.evaluate import extract

TEXTS = st.text(alphabet="0123456789.,$#- \nTheansweri", max_size=40) | st.sampled_from(
    [
        "The answer is 15",
        "so 7. The answer is -1,200. Then 3",
        "cost $3.50.",
        "#### 42",
        "no number",
        "The answer is 5\n",
        "a - 3 -- 4",
    ]
)
LOOSE = r"(-?[$0-9.,]{2,})|(-?[0-9]+)"
STRICT = {"the-answer-is": r"The answer is (\-?[0-9\.\,]+).", "hashes": r"#### (\-?[0-9\.\,]+)"}


@given(TEXTS)
def test_numbers_are_what_lm_evals_filters_find(text: str) -> None:
    from lm_eval.filters.extraction import RegexFilter

    def theirs(pattern: str, place: int) -> str:
        found: Any = RegexFilter(pattern, group_select=place).apply([[text]], [{}])
        return found[0][0]

    assert extract.last_number(text) == theirs(LOOSE, -1)
    for phrase, pattern in STRICT.items():
        assert extract.stated_number(text, phrase) == theirs(pattern, 0)


@given(TEXTS, TEXTS)
def test_numbers_compare_as_lm_eval_compares_them(one: str, other: str) -> None:
    from lm_eval.api.metrics import exact_match_hf_evaluate

    ignored = [",", r"\$", r"(?s).*#### ", r"\.$"]
    theirs = exact_match_hf_evaluate([one], [other], regexes_to_ignore=ignored, ignore_case=True)["exact_match"]
    assert (extract.plain_number(one) == extract.plain_number(other)) == bool(theirs)


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"so \boxed{\frac{1}{2}} or \boxed{3}", r"\frac{1}{2}"),
        (r"\boxed 5", r"\boxed 5"),
        (r"\boxed{open", r"\boxed{open"),
        ("none {x}", "none {x}"),
        (r"{a} \fbox \box{7}", "7"),
    ],
)
def test_the_first_box(text: str, box: str) -> None:
    assert extract.first_box(text) == box


def test_between_dollars() -> None:
    assert extract.between_dollars("is $3$ or $4$.") == "3$ or $4"
    assert extract.between_dollars("costs $5") == "costs $5"


PROGRAM = "def f(x):\n    return x"


@pytest.mark.parametrize(
    "text",
    [
        f"Sure:\n```python\n{PROGRAM}\n```\nand\n```\nmore\n```",
        f"```\n{PROGRAM}",
        f"```py\n{PROGRAM}```",
        f"  \n{PROGRAM}",
    ],
)
def test_the_first_block(text: str) -> None:
    assert extract.first_block(text).rstrip() == PROGRAM


@pytest.mark.parametrize(
    "text",
    [
        f"[BEGIN]\n'{PROGRAM}'\n[DONE]",
        f"[BEGIN]\n{PROGRAM}\n[DONE] more",
        f"BEGIN '{PROGRAM}' DONE",
        f"[BEGIN] '{PROGRAM}\n[DONE]",
        f"```python\n{PROGRAM}\n```\nIt works.",
        f"```\n{PROGRAM}",
        f"[BEGIN]\n{PROGRAM}",
        f"'{PROGRAM}'\n[DONE]",
        PROGRAM,
    ],
)
def test_code_between_begin_and_done(text: str) -> None:
    assert extract.begin_done(text).strip() == PROGRAM


@pytest.mark.parametrize("frame", ["[BEGIN]\n{}\n[DONE]", "```python\n{}\n```", "[BEGIN]\n'{}'\n[DONE]", "{}"])
def test_a_program_may_end_in_a_string(frame: str) -> None:
    program = "def f(x):\n    return 'a'"
    assert extract.begin_done(frame.format(program)) == program


def test_underscores_come_back_and_loose_quotes_go() -> None:
    assert extract.begin_done("[BEGIN]\nmy\\_name = 1\n[DONE]") == "my_name = 1"
    assert extract.begin_done("x = (1)'") == "x = (1)"
    assert extract.begin_done("'''doc'''\nx = 'a'") == "'''doc'''\nx = 'a'"


STUB = 'import math\n\ndef helper(x):\n    return math.floor(x)\n\ndef f(x):\n    """Round x."""\n'


def kept_names(code: str) -> list[str]:
    return [node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def test_needed_keeps_imports_and_what_the_name_reaches() -> None:
    code = f"{STUB}\ndef other():\n    return 1\n\ndef f(x):\n    return helper(x) + LIMIT\n\nLIMIT = 2\nprint('run')\n"
    short = extract.needed(code, ["f"])
    assert kept_names(short) == ["helper", "f"]
    scope: dict = {}
    exec(short, scope)
    assert scope["f"](1.5) == 3
    assert "print" not in short


def test_needed_takes_the_longest_part_that_is_python() -> None:
    code = f"{STUB}    return helper(x)\n\nThat is how f works: it's easy.\n"
    assert kept_names(extract.needed(code, ["f"])) == ["helper", "f"]
    assert extract.needed("no python here :(", ["f"]) == ""


def test_needed_takes_the_first_definition_that_returns() -> None:
    code = f"{STUB}\ndef f(x):\n    return 1\n\ndef f(x):\n    return 2\n"
    scope: dict = {}
    exec(extract.needed(code, ["f"]), scope)
    assert scope["f"](0) == 1


@given(st.text(alphabet="def f(x):\n retun1'`[]BEGINDO\\_", max_size=80))
def test_extraction_of_anything_ends_without_an_error(text: str) -> None:
    for rule in (extract.first_block, extract.begin_done, extract.first_box, extract.between_dollars):
        assert isinstance(rule(text), str)
    assert isinstance(extract.after_prompt(STUB, text, "check(f)"), str)
