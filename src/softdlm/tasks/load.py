"""Tasks by name. Names, splits and sizes are checked here and nowhere else in the package."""

from collections.abc import Callable, Iterator

from softdlm.errors import UsageError
from softdlm.sandbox.run import Sandbox
from softdlm.tasks import code, either_or, math
from softdlm.tasks.task import SPLITS, Item, Split, Task, TaskSource, draw_distinct, stream

_SOURCES: dict[str, TaskSource] = {s.name: s for s in (math.SOURCE, code.SOURCE, either_or.SOURCE)}
TASKS = tuple(_SOURCES)


def load_task(
    name: str, *, seed: int = 0, size: int | None = None, split: str = "test", sandbox: Sandbox | None = None
) -> Task:
    """A fixed set of items; with the default seed and size, the official set of that split.

    The test set of either-or is the paper's prompts in the paper's order for every seed. `sandbox` runs the answers of
    a task that `runs_code`; by default they run as processes with limits.
    """
    source, known = _source(name), _split(split)
    scorer = _scorer(source, sandbox)
    size = source.sizes[known] if size is None else size
    if size < 1:
        raise UsageError(f"size must be at least 1, not {size}")
    if source is either_or.SOURCE and known == "test":
        items = either_or.paper_items(size)
    else:
        items = draw_distinct(source, seed, known, size)
    return Task(name, known, items, source.max_new_tokens, scorer, source.consistent)


def runs_code(name: str) -> bool:
    """Whether the answers of this task are programs, which run in a sandbox."""
    return _source(name).score_in is not None


def official_size(name: str, split: str = "test") -> int:
    """Number of items in the official set of a split."""
    return _source(name).sizes[_split(split)]


def training_stream(name: str, *, seed: int | str = 0) -> Iterator[tuple[str, str]]:
    """Endless (prompt, response) pairs for training, without validation and test problems."""
    return ((item.prompt, item.target) for item in stream(_source(name), seed))


def _source(name: str) -> TaskSource:
    if name not in _SOURCES:
        raise UsageError(f"unknown task {name!r}: one of {', '.join(TASKS)}")
    return _SOURCES[name]


def _scorer(source: TaskSource, sandbox: Sandbox | None) -> Callable[[Item, str], bool]:
    if sandbox is None:
        return source.score
    if source.score_in is None:
        raise ValueError(f"{source.name} runs no code: leave sandbox={sandbox.backend!r} out")
    return source.score_in(sandbox)


def _split(name: str) -> Split:
    for split in SPLITS:
        if split == name:
            return split
    raise UsageError(f"unknown split {name!r}: one of {', '.join(SPLITS)}")
