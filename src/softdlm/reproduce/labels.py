"""Names and notes that several tables share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from softdlm.reproduce.study import Study, task_title

METHODS = {
    "vanilla": "vanilla",
    "euclidean": "Euclidean",
    "slerp": "SLERP",
    "slerp-candidate-norm": "SLERP, candidate norm",
    "euclidean-mask-norm": "linear, [MASK] norm",
    "additive": "Additive",
    "norm-mix": "NormMix",
    "sequential": "sequential",
}
INTERVAL = "Brackets: 95 % intervals (Wilson). p: exact McNemar test against the first column, same items."
BOOTSTRAP = "Brackets: 95 % intervals (bootstrap over {})."


def method_title(name: str) -> str:
    return METHODS.get(name, name)


def paper_notes(study: Study, places: Mapping[str, str] | None, there: bool) -> tuple[str, ...]:
    """Whose the paper's numbers are. `places`: task -> benchmark, None where the paper's table has no benchmarks."""
    printed = study.printed
    if not there:
        return (f"The paper prints no such numbers of {printed.model}.",)
    beside = "".join(
        f", {task_title(name)} beside {task}" for task, name in (places or {}).items() if task_title(task) == task
    )
    if printed.same:
        return (f"Paper: the same model{beside}.",)
    return (f"Paper: {printed.model}{beside}. Another model, so its numbers are for orientation only.",)


def strength_note(study: Study, tasks: Iterable[str]) -> str:
    """k and lambda, once where all tasks share them."""
    found = {task: "k = {}, λ = {:g}".format(*study.strength(task)) for task in tasks}
    if len(set(found.values())) == 1:
        return f"Soft tokens with {next(iter(found.values()))}."
    return "Soft tokens with " + "; ".join(f"{each} ({task_title(task)})" for task, each in found.items()) + "."


def items_note(counts: Mapping[str, int]) -> str:
    return "Items: " + ", ".join(f"{count:,} {task_title(task)}" for task, count in counts.items()) + "."
