"""Scores of right and wrong answers, on made-up items."""

from typing import Any

import pytest

from softdlm.evaluate.benchmark_data import read
from softdlm.evaluate.scoring import SCORINGS, CodeScoring, TextScoring
from tests.conftest import BENCHMARKS

GSM8K = read(BENCHMARKS / "gsm8k_test.jsonl")
MATH = read(BENCHMARKS / "math500_test.jsonl")
HUMANEVAL = read(BENCHMARKS / "humaneval.jsonl")
MBPP = [row for row in read(BENCHMARKS / "mbpp.jsonl") if row["task_id"] > 10]
ROWS = {"gsm8k": GSM8K, "math500": MATH, "humaneval": HUMANEVAL, "mbpp": MBPP}


def runs(program: str, checks: str) -> bool:
    """Without a sandbox: the programs here are our own."""
    scope: dict[str, Any] = {}
    try:
        exec(program, scope)
        exec(checks, scope)
    except Exception:
        return False
    return True


def correct(scoring: Any, doc: Any, text: str) -> bool:
    if isinstance(scoring, TextScoring):
        return scoring.score(doc, text)["correct"]
    return runs(*scoring.program(doc, text))


@pytest.mark.parametrize("name", SCORINGS)
def test_references_are_right_and_empty_answers_wrong(name: str) -> None:
    scoring = SCORINGS[name]
    for doc in ROWS[name.split("-")[0]]:
        solvable = not ("compat" in name and doc["test_setup_code"])
        assert correct(scoring, doc, scoring.reference(doc)) == solvable
        assert not correct(scoring, doc, "")


@pytest.mark.parametrize("name", SCORINGS)
def test_the_reference_of_another_item_is_wrong(name: str) -> None:
    scoring = SCORINGS[name]
    rows = ROWS[name.split("-")[0]]
    for doc, other in zip(rows, [*rows[1:], rows[0]], strict=True):
        assert not correct(scoring, doc, scoring.reference(other))


def score(name: str, doc: Any, text: str) -> dict[str, Any]:
    scoring = SCORINGS[name]
    assert isinstance(scoring, TextScoring)
    return scoring.score(doc, text)


def test_gsm8k_reports_strict_and_flexible() -> None:
    said = score("gsm8k-cot", GSM8K[1], "The answer is $1300. Or 7?")
    assert (said["flexible"], said["strict"], said["correct"]) == (False, False, False)
    said = score("gsm8k-cot", GSM8K[1], "It is 1,300.")
    assert (said["flexible"], said["strict"], said["correct"]) == (True, False, True)
    assert said["reason"] == "1,300. for 1300"
    said = score("gsm8k-hashes", GSM8K[2], "#### -7")
    assert said["strict"] is said["flexible"] is True


def test_math500_reports_both_metrics_and_heads_with_exact_match() -> None:
    boxed = score("math500", MATH[0], r"So $\boxed{0.75}$")
    assert (boxed["math_verify"], boxed["exact_match"], boxed["correct"]) == (True, False, False)
    assert boxed["timeout"] is False
    assert boxed["reason"] == "equal by Math-Verify only"
    fork = score("math500-boxed", MATH[0], r"So $\boxed{0.75}$")
    assert (fork["math_verify"], fork["exact_match"], fork["correct"]) == (True, False, False)
    assert score("math500-boxed", MATH[0], r"$\boxed{\frac34}$")["exact_match"]


def test_test_setup_code_runs_between_candidate_and_tests() -> None:
    doc = MBPP[1]
    for name, needs in (("mbpp", True), ("mbpp-compat", False), ("mbpp-dream", True), ("mbpp-dream-compat", False)):
        scoring = SCORINGS[name]
        assert isinstance(scoring, CodeScoring)
        checks = scoring.program(doc, "x = 1").checks
        assert checks.startswith("root = Node(Node())") == needs
        assert checks.endswith("\n".join(doc["test_list"]))


def test_humanevals_answer_must_hold_the_whole_function() -> None:
    doc = HUMANEVAL[0]
    body = doc["canonical_solution"]
    whole = f"Here:\n```python\n{doc['prompt']}{body}```\nDone."
    assert correct(SCORINGS["humaneval"], doc, whole)
    assert not correct(SCORINGS["humaneval"], doc, f"```python\n{body}```")  # the prompt is not put before it
    bare = "def total(numbers: List[int]) -> int:\n    return sum(numbers)"
    assert correct(SCORINGS["humaneval-dream"], doc, f"\n{bare}\n```\nprint(input())")  # here it is
    assert not correct(SCORINGS["humaneval"], doc, bare)
