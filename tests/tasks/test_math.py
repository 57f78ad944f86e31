"""mini-math: the arithmetic is right, the question tells what is used, scores read the last ####."""

import re
from collections import Counter
from itertools import islice

import pytest

from softdlm.tasks import load_task
from softdlm.tasks.math import SOURCE, final_answer
from softdlm.tasks.math_text import LARGEST
from softdlm.tasks.task import Item, stream

ITEMS = tuple(islice(stream(SOURCE, "test of arithmetic"), 2000))
EQUATION = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)")
WORDS = {"twice": 2, "double": 2, "half": 2, "Half": 2, "triples": 3, "doubles": 2, "three": 3, "four": 4}


def equations(item: Item) -> list[tuple[int, str, int, int]]:
    return [(int(a), op, int(b), int(r)) for a, op, b, r in EQUATION.findall(item.target)]


def test_every_equation_holds_within_bounds():
    exact = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
    }
    for item in ITEMS:
        for a, op, b, r in equations(item):
            assert exact[op](a, b) == r, item.target
            assert 0 <= r <= LARGEST, item.target
            assert 0 <= min(a, b) <= max(a, b) <= LARGEST + 60, item.target  # what is asked for
            assert op != "*" or min(a, b) <= 12


def test_level_is_the_number_of_steps_and_the_last_one_is_the_answer():
    for item in ITEMS:
        steps = equations(item)
        assert len(steps) == item.level
        assert item.target.endswith(f"\n#### {steps[-1][3]}")
        assert item.meta["answer"] == str(steps[-1][3])


def test_a_solution_uses_only_what_the_question_tells_or_earlier_steps_gave():
    for item in ITEMS:
        known = {int(number) for number in re.findall(r"\d+", item.prompt)}
        known |= {WORDS[word] for word in re.findall(r"\w+", item.prompt) if word in WORDS}
        for a, _, b, r in equations(item):
            assert {a, b} <= known, (item.prompt, item.target)
            known.add(r)


def test_a_question_tells_every_number_of_its_key():
    """Nothing that decides the answer is left out; factors may be told in words."""
    for item in ITEMS:
        told = {int(number) for number in re.findall(r"\d+", item.prompt)} | {0, *WORDS.values()}
        assert {int(number) for number in re.findall(r"\d+", item.key)} <= told


def test_the_same_question_is_never_asked_with_two_answers():
    answers = {}
    for item in ITEMS:
        assert answers.setdefault(item.prompt, (item.key, item.meta["answer"])) == (
            item.key,
            item.meta["answer"],
        )


def test_no_slot_is_left_open_and_sentences_start_with_capitals():
    for item in ITEMS:
        for text in (item.prompt, item.target):
            assert not set("{}") & set(text)
            assert text[0].isupper() or text[0].isdigit()
            assert not re.search(r"[.?] [a-z]", text), text


def test_wording_is_free():
    """Numbers apart, hardly two solutions of two thousand are the same."""
    shapes = Counter(re.sub(r"\d+", "0", item.target) for item in ITEMS)
    assert len(shapes) > 0.95 * len(ITEMS)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so 3\n#### 42", "42"),
        ("#### 1\nno:\n#### 1,042", "1042"),
        ("#### 42.", "42"),
        ("#### -7", "-7"),
        ("the answer is 42", None),
        ("####42", None),
        ("", None),
    ],
)
def test_the_answer_is_read_as_gsm8k_reads_it(text, answer):
    assert final_answer(text) == answer


def test_wrong_answers_do_not_score():
    task = load_task("mini-math", size=100)
    for item in task:
        answer = item.meta["answer"]
        assert task.score(item, f"anything\n#### {answer}")
        assert not task.score(item, f"#### {answer}1")
        assert not task.score(item, f"{item.target}\n#### {int(answer) + 1}")
        assert not task.score(item, answer)
