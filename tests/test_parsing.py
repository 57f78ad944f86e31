"""Lists and calls as text: commas and brackets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softdlm.cli.options import names_in
from softdlm.errors import UsageError
from softdlm.parsing import balanced, between_commas
from softdlm.registry import spell
from tests.test_registry import commits, feedbacks


@given(st.text("ab,()[]'\" \\"))
def test_nothing_is_lost_between_commas(text: str) -> None:
    assert ",".join(between_commas(text)) == text


@given(st.lists(st.one_of(commits, feedbacks).map(spell), min_size=1, max_size=4, unique=True))
def test_a_list_of_rules_is_split_into_its_rules(rules: list[str]) -> None:
    assert names_in("--feedback", ", ".join(rules)) == tuple(rules)
    assert between_commas(",".join(rules)) == rules
    assert all(balanced(rule) for rule in rules)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alternate(slerp(k=1, lam=0.5)), vanilla", ("alternate(slerp(k=1, lam=0.5))", "vanilla")),
        ("vanilla,alternate(slerp(k=1, lam=0.5), period=3)", ("vanilla", "alternate(slerp(k=1, lam=0.5), period=3)")),
        ("a.py:Mine(x=[1, 2], y='),('), b", ("a.py:Mine(x=[1, 2], y='),(')", "b")),
        (" 2, 4 ,,2", ("2", "4")),
        ("slerp(k=1, vanilla", ("slerp(k=1, vanilla",)),
    ],
)
def test_lists_on_the_command_line(text: str, words: tuple[str, ...]) -> None:
    assert names_in("--feedback", text) == words


def test_a_list_without_words_is_said() -> None:
    with pytest.raises(UsageError, match="--feedback names nothing: ' , '"):
        names_in("--feedback", " , ")


@pytest.mark.parametrize(
    ("text", "whole"), [("", True), ("a(b[c]{})", True), ("')'", True), ("a(", False), ("a)(", False), ("3)(4", False)]
)
def test_brackets_that_match(text: str, whole: bool) -> None:
    assert balanced(text) is whole
