"""A cell: one model on one task with one Decoding, and every setting that can change an answer.

The protocol of a cell is all of that, settled and written out; its digest names the cell's folder. What is not in it
cannot change an answer: the batch size and the engine (bit for bit on a CPU; on a GPU up to rounding,
docs/evaluation.md), the executor, which card of a kind, an early finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softdlm import parsing
from softdlm.commit import TopN, rate_label
from softdlm.decoding import Decoding
from softdlm.errors import CheckpointError, UsageError
from softdlm.evaluate.readings import READINGS
from softdlm.feedback import Mask
from softdlm.models.attention import Attention
from softdlm.models.denoiser import Denoiser
from softdlm.models.folder import CheckpointFolder
from softdlm.models.load import Checkpoint, find_checkpoint, find_device, find_precision, load
from softdlm.models.own_settings import OwnSettings
from softdlm.models.pace import EngineKind
from softdlm.models.weights import Weights
from softdlm.models.weights import digest as weights_digest
from softdlm.records.canonical import canonical, digest
from softdlm.registry import inside, names, parameters, title
from softdlm.tasks import TASKS
from softdlm.tasks.task import SPLITS

if TYPE_CHECKING:
    from softdlm.evaluate.task import EvalTask

PROTOCOL = 2
"""Raised when our own code changes an answer or a verdict under an unchanged protocol."""

BENCHMARKS = ("gsm8k", "math500", "humaneval", "mbpp")
"""Names of tasks that are not built in begin with one of these; what follows names a variant."""
FILE = ".jsonl"
"""How the name of a task ends that is a file of problems."""
SINGLE = Decoding(commit=TopN(1), feedback=Mask())
"""Single-token prediction, what recovery is measured against (appendix C)."""


def read_own(file: str | Path) -> OwnSettings:
    """The settings in a file, whose rules must exist: what is wrong with it is said before a model is loaded."""
    own = OwnSettings.of(file)
    try:
        Decoding().settled(own)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error
    return own


@dataclass(frozen=True)
class ModelSpec:
    """How a model is loaded. Make it with `of`, which settles the device and the type."""

    name: str
    device: str
    dtype: str
    revision: str | None = None
    attention: Attention = "auto"
    mask_id: int | None = None
    eos_ids: tuple[int, ...] | None = None
    settings: OwnSettings | None = None
    """Decoding settings instead of the checkpoint's own. A protocol holds the settled Decoding, so not these."""
    engine: EngineKind = "auto"
    """How passes are run. It changes answers by rounding at most, so it is recorded beside the protocol, not in it."""

    def __post_init__(self) -> None:
        parsing.one_of(Attention)("attention", self.attention)
        parsing.one_of(EngineKind)("engine", self.engine)

    @staticmethod
    def of(
        name: str, *, device: str | None = None, dtype: str | None = None, here: bool = True, **rest: Any
    ) -> ModelSpec:
        """With here=False the workers of a cluster load it, and this machine need not have the device."""
        place = find_device(device, here=here)
        return ModelSpec(name, str(place), str(find_precision(dtype, place, here=here)), **rest)

    def checkpoint(self) -> Checkpoint:
        named = ("revision", "mask_id", "eos_ids", "settings")
        return find_checkpoint(self.name, **{name: getattr(self, name) for name in named})

    def load(self, record: Mapping[str, Any] | None = None) -> Denoiser:
        """With the `record` that a plan was made with, no other checkpoint: answers are filed under what it says."""
        how = {name: value for name, value in vars(self).items() if name != "name"}
        if record is not None and "commit" in record:
            how["revision"] = record["commit"]
        return load(self.name, **how, digest=(record or {}).get("digest"))

    def check(self, model: Denoiser, record: Mapping[str, Any]) -> None:
        """Refuse a model that was loaded already, unless the files are as it found them and those of the record.

        Its digest is not known, since loading does not need one: it is taken now, of files that have not changed.
        """
        found = self.checkpoint()
        same = model.source.revision == record["commit"] if found.from_hub else found.stamp == model.stamp
        if not same or ("digest" in record and weights_digest(found.folder) != record["digest"]):
            raise CheckpointError(f"{self.name} has changed since it was loaded: load it again")

    def record(self, found: Checkpoint) -> dict[str, Any]:
        """Whose answers these are. A folder counts by its content, so it may be moved and must not be changed."""
        with Weights(CheckpointFolder(found.folder)) as weights:
            weights.check(found.family, found.config)  # what does not fit is said now, not after the other cells
        hub = {"id": self.name, "commit": found.source.revision}
        return {
            **(hub if found.from_hub else {"digest": weights_digest(found.folder)}),
            "family": found.source.family,
            "device": self.device.split(":")[0],
            "dtype": self.dtype,
            "attention": self.attention,
            "mask_id": found.mask_id,
            "eos_ids": list(found.eos_ids),
        }


def is_file(task: str) -> bool:
    """Whether a task is a file of problems, by its name."""
    return task.endswith(FILE)


@dataclass(frozen=True)
class TaskSpec:
    """How a task is loaded."""

    name: str
    split: str = "test"
    limit: int | None = None
    data_dir: str | None = None
    allow_unsandboxed: bool = False
    """Run generated code as a limited process where there is no sandbox."""
    math500: str = READINGS["math500"].values[0]
    """The headline score, for MATH-500: exact-match or math-verify."""

    def __post_init__(self) -> None:
        READINGS["math500"].check(self.math500)
        if self.name not in TASKS and not is_file(self.name) and not self.name.startswith(BENCHMARKS):
            raise UsageError(f"unknown task {self.name!r}: one of {', '.join((*TASKS, *BENCHMARKS))}, or a .jsonl file")
        if self.split not in (SPLITS if self.name in TASKS else ("test",)):
            raise UsageError(
                f"{self.name} has no split {self.split!r}: test, or of a built-in task {', '.join(SPLITS)}"
            )
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"limit must be at least 1, not {self.limit}")


@dataclass(frozen=True)
class Cell:
    model: ModelSpec
    task: TaskSpec
    decoding: Decoding
    """Settled."""
    readings: str = ""
    """The readings of the paper that make it what it is, in words; empty where there are none."""

    @property
    def labels(self) -> dict[str, str]:
        """The cell in words, for tables; its identity is the protocol."""
        commit, _ = self.decoding.rules
        named = {
            "model": self.model.name,
            "task": self.task.name,
            "method": method_label(self.decoding),
            "rate": rate_label(commit),
        }
        return named | ({"readings": self.readings} if self.readings else {})

    def __str__(self) -> str:
        return " · ".join(value for name, value in self.labels.items() if name != "readings")


def method_label(decoding: Decoding) -> str:
    """The feedback rule with its parameters: `slerp k=3 lam=0.3`, `alternate-slerp period=3 k=1 lam=0.3`."""
    feedback = decoding.rules[1]
    return " ".join([title(feedback), *(text for rule in inside(feedback) for text in _parameters(rule))])


def _parameters(rule: Any) -> list[str]:
    """Of a named rule with a strength only that: its name says the rest."""
    named = title(rule) in names("feedback") and hasattr(rule, "lam")
    return [f"k={rule.k}", f"lam={rule.lam:g}"] if named else parameters(rule)


def protocol(cell: Cell, model: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that can change an answer or a verdict, as plain JSON values; `model` and `task` are their records."""
    return canonical({"softdlm_protocol": PROTOCOL, "model": model, "task": task, "decoding": cell.decoding.record()})


def task_record(task: EvalTask) -> dict[str, Any]:
    """The task's own protocol and its items as the model reads them, template and all."""
    items = [[item.id, item.prompt, list(item.stop)] for item in task.items]
    doubled = [name for name, times in Counter(name for name, *_ in items).items() if times > 1]
    if doubled or not items:
        raise UsageError(f"a task needs items, each with an id of its own; doubled: {doubled[:5]}")
    return {**task.protocol(), "count": len(items), "items": digest(items)}
