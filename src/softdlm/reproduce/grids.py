"""Which cells each table and figure is made of. Cells that several of them ask for have the same key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from softdlm.evaluate.cell import Rate
from softdlm.evaluate.grid import Grid
from softdlm.reproduce.study import FIRST, STAND_INS, Study

PAPER_METHODS = ("vanilla", "euclidean", "slerp")
NORM_ABLATION = ("slerp", "slerp-candidate-norm", "euclidean-mask-norm")
OTHERS = ("additive", "norm-mix")
RATES = (2, 4, 8)
THRESHOLD, BOUND = 0.9, 0.1
"""Table 6's."""
MAIN = ("gsm8k", "math500", "humaneval", "mbpp")
ADAPTIVE = ("gsm8k", "humaneval")
ABLATED = ("math500", "humaneval")


def per_step(*numbers: int) -> tuple[Rate, ...]:
    return tuple(Rate("tokens_per_step", number) for number in numbers)


def table2(study: Study) -> list[Grid]:
    return _grid(study, study.places(*MAIN), PAPER_METHODS, per_step(*RATES))


def table5(study: Study) -> list[Grid]:
    return _grid(study, study.places(*ABLATED), NORM_ABLATION, per_step(2))


def figure2(study: Study) -> list[Grid]:
    """SLERP over lambda at the task's k, over k at its lambda, and vanilla for comparison."""
    tasks, rates = sensitivity_tasks(study), per_step(study.sensitivity_rate)
    return [
        *_grid(study, tasks, ("vanilla",), rates),
        *_grid(study, tasks, ("slerp",), rates, lams=study.scale.lams),
        *_grid(study, tasks, ("slerp",), rates, ks=study.scale.ks),
    ]


def sensitivity_tasks(study: Study) -> dict[str, str]:
    """HumanEval; of the built-in tasks, which are cheap, both."""
    both = study.places("gsm8k", "humaneval")
    return {task: name for task, name in both.items() if name == "humaneval" or task in STAND_INS}


def table6(study: Study) -> list[Grid]:
    rates = (Rate("threshold", THRESHOLD), Rate("entropy_bound", BOUND))
    return _adaptive(study, ("vanilla", "slerp"), rates)


def table7(study: Study) -> list[Grid]:
    """Table 2's cells, and vanilla at one token a step."""
    return _grid(study, study.places(*MAIN), PAPER_METHODS, per_step(*RATES), single=True)


def frontier(study: Study) -> list[Grid]:
    """Table 6 over many thresholds and bounds; beside them the fixed rates, where Table 7 has the same items."""
    thresholds = tuple(Rate("threshold", value) for value in study.scale.thresholds)
    bounds = tuple(Rate("entropy_bound", value) for value in study.scale.bounds)
    whole = [task for task in study.places(*ADAPTIVE) if _most(study, task) is None]
    return [
        *_adaptive(study, study.scale.frontier, (*thresholds, *bounds)),
        *_grid(study, whole, study.scale.frontier, per_step(*RATES), single=True),
    ]


def extras(study: Study) -> list[Grid]:
    """Two rules that others have published, beside the paper's."""
    rates = per_step(*study.scale.extra_rates)
    return _grid(study, study.places(*MAIN), (*PAPER_METHODS, *OTHERS), rates)


def _adaptive(study: Study, methods: Sequence[str], rates: tuple[Rate, ...]) -> list[Grid]:
    places = study.places(*ADAPTIVE)
    return [grid for task in places for grid in _grid(study, [task], methods, rates, most=_most(study, task))]


def _most(study: Study, task: str) -> int | None:
    """GSM8K's first 500 items in Table 6, unless told otherwise."""
    return FIRST if task == "gsm8k" and study.adaptive_items == "first-500" else None


def _grid(
    study: Study,
    tasks: Iterable[str],
    methods: Sequence[str],
    rates: tuple[Rate, ...],
    *,
    most: int | None = None,
    single: bool = False,
    **swept: Any,
) -> list[Grid]:
    """None where no task takes part."""
    specs = tuple(study.spec(task, most) for task in tasks)
    if not specs:
        return []
    return [
        Grid(
            models=(study.model,),
            tasks=specs,
            methods=tuple(methods),
            rates=rates,
            recipe="paper",
            reading=study.reading,
            max_new_tokens=study.max_new_tokens,
            single=single,
            **swept,
        )
    ]
