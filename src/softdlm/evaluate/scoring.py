"""Scores of answers, one function per benchmark; what a task file's `scoring` names.

A score is a dict with `correct` (the headline metric), `reason` (why, in a word or a line) and the metrics that the
task file lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from softdlm.evaluate import extract
from softdlm.evaluate.maths import Judgement, checker

Doc = Mapping[str, Any]
Score = dict[str, Any]


class Program(NamedTuple):
    """What the sandbox runs: the candidate, then its checks in the same namespace."""

    code: str
    checks: str


@dataclass(frozen=True)
class TextScoring:
    """Scored by looking at the answer."""

    score: Callable[[Doc, str], Score]
    reference: Callable[[Doc], str]
    """The data's own solution in the words that this scoring expects: scores as correct, by construction."""


@dataclass(frozen=True)
class CodeScoring:
    """Scored by running a program."""

    program: Callable[[Doc, str], Program]
    reference: Callable[[Doc], str]


Scoring = TextScoring | CodeScoring


def _gsm8k(phrase: str) -> Callable[[Doc, str], Score]:
    def score(doc: Doc, text: str) -> Score:
        gold = extract.plain_number(doc["answer"].split("####")[-1].strip())
        found = {"flexible": extract.last_number(text), "strict": extract.stated_number(text, phrase)}
        metrics = {name: extract.plain_number(number) == gold for name, number in found.items()}
        reason = f"{found['flexible']} for {gold}"
        return {"correct": metrics["flexible"], "reason": reason, "extracted": found["flexible"], **metrics}

    return score


def _gsm8k_said(doc: Doc) -> str:
    solution, _, number = doc["answer"].partition("####")
    return f"{solution}The answer is {number.strip()}."


def _math500(doc: Doc, text: str) -> Score:
    verified = checker().equal("math_verify", doc["answer"], text)
    minerva = checker().equal("minerva", doc["solution"], text)
    return _mathematics(verified, minerva.equal, verified.problem or minerva.problem)


def _math500_boxed(doc: Doc, text: str) -> Score:
    """String equality after hendrycks' normalisation, with Math-Verify beside it."""
    from lm_eval.tasks.hendrycks_math.utils import is_equiv

    extracted = extract.between_dollars(extract.first_box(text))
    exact = bool(is_equiv(extracted, doc["answer"]))
    verified = checker().equal("math_verify", doc["answer"], text)
    return {**_mathematics(verified, exact, verified.problem), "extracted": extracted}


def _mathematics(verified: Judgement, exact: bool, problem: str) -> Score:
    """Both scores; the reading `math500` may take the other one for its headline."""
    only = "equal by exact match only" if exact else "equal by Math-Verify only"
    agreed = "equal" if exact else "not equal"
    metrics = {"exact_match": exact, "math_verify": verified.equal, "timeout": problem == "timeout"}
    return {"correct": exact, "reason": problem or (agreed if exact == verified.equal else only), **metrics}


def _minerva_sentence(doc: Doc) -> str:
    return f"{doc['solution']}\nFinal Answer: The final answer is ${doc['answer']}$. I hope it is correct."


def _humaneval_checks(doc: Doc) -> str:
    return f"{doc['test']}\ncheck({doc['entry_point']})"


def _humaneval(doc: Doc, text: str) -> Program:
    return Program(extract.first_block(text), _humaneval_checks(doc))


def _humaneval_dream(doc: Doc, text: str) -> Program:
    checks = _humaneval_checks(doc)
    return Program(extract.after_prompt(doc["prompt"], text, checks), checks)


def _humaneval_solution(doc: Doc) -> str:
    return f"```python\n{doc['prompt']}{doc['canonical_solution']}\n```"


def _mbpp_checks(doc: Doc, compatible: bool) -> str:
    """The three asserts, after `test_setup_code`, which the stock lm-eval task forgets (two tasks need it)."""
    setup = [] if compatible else [doc["test_setup_code"]]
    return "\n".join([*setup, *doc["test_list"]])


def _mbpp(code: Callable[[str], str], compatible: bool = False) -> Callable[[Doc, str], Program]:
    return lambda doc, text: Program(code(text), _mbpp_checks(doc, compatible))


def _fenced(text: str) -> str:
    return extract.begin_done("```python" + text)


def _mbpp_block(doc: Doc) -> str:
    return f"\n{doc['code']}\n```"


SCORINGS: dict[str, Scoring] = {
    "gsm8k-cot": TextScoring(_gsm8k("the-answer-is"), _gsm8k_said),
    "gsm8k-hashes": TextScoring(_gsm8k("hashes"), lambda doc: doc["answer"]),
    "math500": TextScoring(_math500, _minerva_sentence),
    "math500-boxed": TextScoring(_math500_boxed, lambda doc: rf"\boxed{{{doc['answer']}}}"),
    "humaneval": CodeScoring(_humaneval, _humaneval_solution),
    "humaneval-dream": CodeScoring(_humaneval_dream, _humaneval_solution),
    "mbpp": CodeScoring(_mbpp(_fenced), _mbpp_block),
    "mbpp-compat": CodeScoring(_mbpp(_fenced, compatible=True), _mbpp_block),
    "mbpp-begin": CodeScoring(_mbpp(extract.begin_done), lambda doc: f"[BEGIN]\n{doc['code']}\n[DONE]"),
    "mbpp-dream": CodeScoring(_mbpp(str), lambda doc: doc["code"]),
    "mbpp-dream-compat": CodeScoring(_mbpp(str, compatible=True), lambda doc: doc["code"]),
}
