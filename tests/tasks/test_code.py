"""mini-code: equivalent bodies agree, hidden tests tell neighbours apart, references pass."""

import copy
from itertools import islice
from random import Random

import pytest

from softdlm.errors import SandboxError
from softdlm.sandbox.run import Limits, Outcome, Sandbox
from softdlm.tasks import load_task
from softdlm.tasks.code import SOURCE, cases, every_body, plan_of, program_text
from softdlm.tasks.code_families import FAMILIES
from softdlm.tasks.code_parts import ARGUMENTS, FUNCTIONS, LOCALS
from softdlm.tasks.task import stream

KEYS = sorted({item.key for item in islice(stream(SOURCE, "keys"), 6000)})


def fails(key: str, body: str) -> bool:
    """Whether a body for arguments a, b gets some hidden case of `key` wrong."""
    f = function(key, body)
    results = [(f(*copy.deepcopy(args)), result) for args, result in cases(key)]
    return any(got != result or type(got) is not type(result) for got, result in results)


def test_there_are_forty_families_and_all_occur():
    assert len(FAMILIES) >= 40
    assert {plan_of(key).family for key in KEYS} == set(FAMILIES)


def test_equivalent_bodies_agree():
    rng = Random(0)
    for key in KEYS:
        assert not any(fails(key, body) for body in every_body(key, rng)), key


def changed_constants(key: str) -> list[str]:
    """Keys with one constant greater by one."""
    words = key.replace(",", " ,").replace(";", " ;").split(" ")
    keys = []
    for place, word in enumerate(words):
        if word.isdigit() and int(word) > 1:
            other = [*words[:place], str(int(word) + 1), *words[place + 1 :]]
            keys.append(" ".join(other).replace(" ,", ",").replace(" ;", ";"))
    return keys


def function(key: str, body: str):
    scope: dict = {}
    arguments = "ab"[: len(FAMILIES[plan_of(key).family].arguments)]
    exec(f"def f({', '.join(arguments)}):\n    {body}", scope)
    return scope["f"]


def unnoticed(key: str, other: str) -> bool:
    """Whether the tests of `key` pass the body of `other`, though some number is treated differently.

    Different words can ask for the same function: n modulo 10 if n < 8 is n modulo 10 if n < 9.
    """
    ours, theirs = (every_body(k, Random(0))[0] for k in (key, other))
    if fails(key, theirs):
        return False
    family = FAMILIES[plan_of(key).family]
    alone = {"ints": lambda n: [n], "int": lambda n: n, "strs": lambda n: ["a" * n], "str": lambda n: "a" * n}
    inputs = [alone[family.arguments[0]](n) for n in range(-99, 99)]
    two_parts = family.level == 3
    return not two_parts or any(function(key, ours)(n) != function(key, theirs)(n) for n in inputs)


def test_hidden_tests_notice_a_constant_that_is_off_by_one():
    pairs = [(key, other) for key in KEYS for other in changed_constants(key)]
    assert len(pairs) > 2000
    assert [pair for pair in pairs if unnoticed(*pair)] == []


def test_hidden_tests_notice_another_condition():
    swaps = {"greater than": "at least", "less than": "at most", "even": "odd", "positive": "negative"}
    swaps |= {other: said for said, other in swaps.items()} | {"equal to": "different from"}
    pairs = [(key, key.replace(said, swaps[said])) for key in KEYS for said in swaps if f"; {said}" in key]
    assert len(pairs) > 1000
    assert [pair for pair in pairs if unnoticed(*pair)] == []


def test_cases_are_a_function_of_the_key():
    first = cases(KEYS[0])
    cases.cache_clear()
    assert cases(KEYS[0]) == first


def test_identifiers_never_meet():
    pools = [*LOCALS.values(), *ARGUMENTS.values(), FUNCTIONS]
    names = [name for pool in pools for name in pool]
    assert len(set(names)) == len(names)


def test_some_functions_do_what_their_specification_says():
    """Results worked out by hand, independent of the reference bodies."""
    by_hand = {
        "sum where; greater than {q}, 7": (([7, 8, 9],), 17),
        "index where; negative, 0": (([3, -1, -2],), 1),
        "take while; even, 0": (([1, 3, 4, 5],), [1, 3]),
        "rotate; 2": (([1, 2, 3, 4],), [3, 4, 1, 2]),
        "clamp; 3, 9": ((12,), 9),
        "weighted; 4": ((1, 10), 41),
        "surround; x, y": (("ab",), "xaby"),
        "letter in all; b, d": ((["ab", "bd", "a"],), ["ab"]),
        "change where; times {q}, 3; odd, 0": (([1, 2, 3],), [3, 2, 9]),
        "sum each where; plus {q}, 2; at least {q}, 5": (([4, 5, 6],), 15),
    }
    for key, (args, result) in by_hand.items():
        for body in every_body(key, Random(1)):
            scope: dict = {}
            exec(f"def f({', '.join('ab'[: len(args)])}):\n    {body}", scope)
            assert scope["f"](*args) == result, (key, body)


@pytest.fixture(scope="module")
def task():
    return load_task("mini-code")


def test_every_reference_passes_in_the_limited_process(task):
    assert all(task.score_all(task.items, [item.target for item in task]))


def test_wrong_bodies_fail_in_the_limited_process(task):
    items = task.items[:12]
    wrong = [
        "return None if 1 else 0",
        "retrun 1",
        "",
        "pass",
        "raise SystemExit(0)",
        "import os; os._exit(0)",
    ]
    assert not any(task.score_all(items, [wrong[i % len(wrong)] for i in range(12)]))


def test_answers_run_where_load_task_says(monkeypatch):
    ran = []
    monkeypatch.setattr(Sandbox, "run", lambda self, *texts: ran.append(self) or Outcome("passed", "", 0.0))
    sandbox = Sandbox("bubblewrap", Limits(seconds=3.0))
    task = load_task("mini-code", size=1, sandbox=sandbox)
    assert task.score(task[0], "return None")
    assert load_task("mini-code", size=1).score(task[0], "return None")
    assert [where.backend for where in ran] == ["bubblewrap", "subprocess"]
    assert ran[0] is sandbox


def test_a_run_that_did_not_start_is_no_wrong_answer(monkeypatch, task):
    monkeypatch.setattr(Sandbox, "run", lambda *_: Outcome("error", "no namespaces", 0.0))
    with pytest.raises(SandboxError, match=rf"the sandbox subprocess could not run {task[0].id}: no namespaces"):
        task.score(task[0], task[0].target)


def test_one_items_body_does_not_pass_for_another(task):
    items = task.items[:20]
    assert not any(task.score_all(items, [item.target for item in (*items[3:], *items[:3])]))


def test_a_stripped_and_an_unstripped_text_make_the_same_program(task):
    item = task[0]
    assert program_text(item, f"\n    {item.target}\n") == program_text(item, item.target)
    compile(program_text(item, item.target), "program", "exec")
