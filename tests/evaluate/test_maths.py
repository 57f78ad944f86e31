"""The worker that checks mathematics: verdicts, time-outs, deaths."""

from collections.abc import Iterator

import pytest

from softdlm.evaluate import math_worker, maths
from softdlm.evaluate.maths import Judgement, MathChecker, MathError

TOWER = r"$\boxed{9^{9^{9^{9}}}}$"  # sympy would compute it


@pytest.fixture(scope="module")
def checker() -> Iterator[MathChecker]:
    one = MathChecker()
    yield one
    one.close()


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        (r"\frac{1}{2}", "so it is $0.5$", True),
        ("(0,2)", r"\boxed{\left(0, 2\right)}", True),
        ("[0,5)", "the interval $[0,5)$", True),
        ("x^2+2x+1", "$(x+1)^2$", True),
        ("3", "$4$", False),
        ("3", "", False),
        ("(0,2)", r"\boxed{(2,0)}", False),
    ],
)
def test_math_verify_knows_equal_from_unequal(checker: MathChecker, gold: str, answer: str, equal: bool) -> None:
    assert checker.equal("math_verify", gold, answer) == Judgement(equal)


def test_minerva_wants_its_sentence(checker: MathChecker) -> None:
    solution = r"Then $\boxed{\frac{3}{4}}$."
    said = "Final Answer: The final answer is ${}$. I hope it is correct."
    assert checker.equal("minerva", solution, said.format(r"\frac34")).equal
    assert not checker.equal("minerva", solution, said.format("5")).equal
    assert not checker.equal("minerva", solution, r"\boxed{\frac{3}{4}}").equal


def test_an_answer_that_breaks_the_library_is_wrong_and_says_why(checker: MathChecker) -> None:
    judgement = checker.equal("minerva", "a solution without a box", "5")
    assert not judgement.equal
    assert "Error" in judgement.problem
    assert checker.equal("math_verify", "3", "$3$").equal


def test_a_worker_that_does_not_answer_is_killed_counted_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = MathChecker(limit=1.0)
    try:
        assert impatient.equal("math_verify", "5", TOWER) == Judgement(False, "timeout")
        assert impatient.timeouts == 1
        impatient.limit = 30.0
        assert impatient.equal("math_verify", "5", "$5$") == Judgement(True)
        assert impatient.timeouts == 1
    finally:
        impatient.close()


def test_time_outs_that_the_libraries_only_log_are_told() -> None:
    import logging

    log = math_worker.TimeoutsLogged()

    def gives_up(gold: str, answer: str) -> bool:
        logging.getLogger("math_verify.grader").warning("Timeout during comparison")
        return gold == answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(math_worker.QUESTIONS, "math_verify", gives_up)
        assert math_worker.judge("math_verify", "1", "2", log) == (False, "timeout")
        assert math_worker.judge("math_verify", "1", "1", log) == (True, "")
        patch.setitem(math_worker.QUESTIONS, "math_verify", lambda gold, answer: False)
        assert math_worker.judge("math_verify", "1", "2", log) == (False, "")


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    def broken() -> subprocess.Popen[bytes]:
        script = "import json; print(json.dumps('ModuleNotFoundError: no math_verify'))"
        return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(maths, "_start", broken)
    with pytest.raises(MathError, match=r"no math_verify; pip install 'softdlm\[eval\]'"):
        MathChecker().equal("math_verify", "1", "1")
