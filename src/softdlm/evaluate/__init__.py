"""Evaluation: cells, grids, executors, benchmarks. The package can be called: `softdlm.evaluate(model, task, ...)`."""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that is also the function of its name: importing any module of it sets `softdlm.evaluate` to it."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from softdlm.evaluate.api import evaluate

        return evaluate(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
