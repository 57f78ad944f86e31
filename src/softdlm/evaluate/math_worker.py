"""The process behind `softdlm.evaluate.maths`: JSON lines [question, gold, answer] in, a verdict a line out.

Replies leave by a descriptor of their own, so that nothing a library prints can pass for one.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any


def math_verify(gold: str, answer: str) -> bool:
    from math_verify import parse, verify

    return bool(verify(gold=parse(rf"\boxed{{{gold}}}"), target=parse(answer)))


def minerva(solution: str, answer: str) -> bool:
    """lm-eval's minerva_math: the final-answer sentence, Minerva's normalisation, then sympy."""
    import lm_eval.tasks.minerva_math.utils as stock

    box: Any = stock.last_boxed_only_string(solution)
    gold = stock.normalize_final_answer(stock.remove_boxed(box))
    return bool(stock.is_equiv(stock.normalize_final_answer(stock.get_unnormalized_answer(answer)), gold))


QUESTIONS = {"math_verify": math_verify, "minerva": minerva}


class TimeoutsLogged(logging.Handler):
    """The libraries give up a comparison after five seconds and only say so in their logs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.seen = False
        for name in ("math_verify", "lm_eval.tasks.minerva_math.utils"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [self], False
            logger.setLevel(logging.DEBUG)

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = self.seen or record.getMessage().startswith(("Timeout", "Timed out"))


def judge(question: str, gold: str, answer: str, log: TimeoutsLogged) -> tuple[bool, str]:
    log.seen = False
    try:
        equal = QUESTIONS[question](gold, answer)
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"
    return equal, "timeout" if log.seen and not equal else ""


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(value: object) -> None:
        print(json.dumps(value), file=replies, flush=True)

    try:
        import lm_eval.tasks.minerva_math.utils  # noqa: F401  (slow, so before the clock of the first question starts)
        import math_verify  # noqa: F401
    except Exception as error:
        reply(f"{type(error).__name__}: {error}")
        return
    log = TimeoutsLogged()
    reply("ready")
    for line in sys.stdin:
        question, gold, answer = json.loads(line)
        reply(judge(question, gold, answer, log))


if __name__ == "__main__":
    main()
