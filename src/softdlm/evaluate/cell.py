"""A cell: one model on one task with one method at one rate, and every setting that can change an answer.

The protocol of a cell is all of that, resolved and written out; its digest names the cell's folder. What is not in it
cannot change an answer: the batch size (bit for bit on a CPU; on a GPU up to rounding, docs/evaluation.md), the
executor, which card of a kind, an early finish.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from softdlm.blocks import check_block_length
from softdlm.cache import CacheKind, check_cache
from softdlm.commit import CommitRule, Rank
from softdlm.decode import DecodeOptions
from softdlm.errors import UsageError
from softdlm.feedback import FeedbackRule
from softdlm.models.denoiser import Attention, Denoiser
from softdlm.models.load import Checkpoint, find_checkpoint, find_device, find_dtype, load
from softdlm.models.weights import digest as weights_digest
from softdlm.predict import Sampling
from softdlm.tasks import TASKS
from softdlm.tasks.task import SPLITS

if TYPE_CHECKING:
    from softdlm.evaluate.task import EvalTask

PROTOCOL = 1
"""Raised when our own code changes an answer or a verdict under an unchanged protocol."""

BENCHMARKS = ("gsm8k", "math500", "humaneval", "mbpp")
"""Names of tasks that are not built in begin with one of these; what follows names a variant."""
RATES = ("tokens_per_step", "threshold", "entropy_bound", "factor")

EosWord = Literal["allow", "last", "forbid", "forbid-first"]
"""decode's policies, and `forbid-first`: EOS itself is forbidden, end of turn allowed (the paper's HumanEval)."""
Reading = Literal["plain", "dream-dllm", "dream-greedy"]
"""How Dream's vanilla is read (recipes/paper.py); `plain` is exactly what the other settings say."""


def eos_options(eos: EosWord, eos_ids: Sequence[int]) -> DecodeOptions:
    """The options of `denoise` for a policy; EOS is the first of the model's EOS ids, end of turn the others."""
    return {"eos": "allow", "forbid": tuple(eos_ids[:1])} if eos == "forbid-first" else {"eos": eos}


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

    def __post_init__(self) -> None:
        if self.attention not in get_args(Attention):
            raise UsageError(f"attention must be one of {', '.join(get_args(Attention))}, not {self.attention!r}")

    @staticmethod
    def of(
        name: str, *, device: str | None = None, dtype: str | None = None, here: bool = True, **rest: Any
    ) -> ModelSpec:
        """Not `here`: a cluster's workers will load it, and this machine need not have the device."""
        place = find_device(device, here=here)
        return ModelSpec(name, str(place), str(find_dtype(dtype, place)).removeprefix("torch."), **rest)

    def checkpoint(self) -> Checkpoint:
        return find_checkpoint(self.name, revision=self.revision, mask_id=self.mask_id, eos_ids=self.eos_ids)

    def load(self) -> Denoiser:
        return load(
            self.name,
            revision=self.revision,
            dtype=self.dtype,
            device=self.device,
            attention=self.attention,
            mask_id=self.mask_id,
            eos_ids=self.eos_ids,
        )

    def record(self, found: Checkpoint) -> dict[str, Any]:
        """Whose answers these are. A folder counts by its content, so it may be moved and must not be changed."""
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


@dataclass(frozen=True)
class TaskSpec:
    """How a task is loaded."""

    name: str
    split: str = "test"
    limit: int | None = None
    data_dir: str | None = None
    allow_unsandboxed: bool = False
    """Run generated code as a limited process where there is no sandbox."""

    def __post_init__(self) -> None:
        if self.name not in TASKS and not self.name.startswith(BENCHMARKS):
            raise UsageError(f"unknown task {self.name!r}: one of {', '.join((*TASKS, *BENCHMARKS))}")
        if self.split not in (SPLITS if self.name in TASKS else ("test",)):
            raise UsageError(
                f"{self.name} has no split {self.split!r}: test, or of a built-in task {', '.join(SPLITS)}"
            )
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"limit must be at least 1, not {self.limit}")


@dataclass(frozen=True)
class Rate:
    """How many tokens a pass may commit, in a user's words: one of RATES and its value."""

    name: str
    value: float

    def __post_init__(self) -> None:
        if self.name not in RATES:
            raise UsageError(f"unknown rate {self.name!r}: one of {', '.join(RATES)}")
        if self.name == "tokens_per_step" and not float(self.value).is_integer():
            raise UsageError(f"tokens_per_step must be a whole number, not {self.value}")

    def __str__(self) -> str:
        if self.name == "tokens_per_step":
            return f"{self.value:g} a step"
        return f"{self.name.replace('_', ' ')} {self.value:g}"


SINGLE = Rate("tokens_per_step", 1)
"""Single-token prediction, what recovery is measured against (appendix C)."""


@dataclass(frozen=True)
class Decoding:
    """Every option of a decode, settled."""

    method: str
    feedback: FeedbackRule
    rate: Rate
    commit: CommitRule
    max_new_tokens: int
    eos: EosWord = "allow"
    block_length: int | None = None
    rank: Rank | None = None
    reading: Reading = "plain"
    temperature: float = 0.0
    top_p: float | None = None
    seed: int = 0
    cache: CacheKind | None = None
    refresh: int | None = None
    renew: int = 1

    def __post_init__(self) -> None:
        Sampling(mask_id=0, temperature=self.temperature, top_p=self.top_p)  # checks both
        check_block_length(self.block_length)
        check_cache(self.cache, self.refresh, self.renew)
        if self.max_new_tokens < 1:
            raise UsageError(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        for name, value, words in (("eos", self.eos, EosWord), ("reading", self.reading, Reading)):
            if value not in get_args(words):
                raise UsageError(f"{name} must be one of {', '.join(get_args(words))}, not {value!r}")

    @property
    def label(self) -> str:
        """The method with its strength: `slerp k=3 lam=0.3`."""
        if not hasattr(self.feedback, "lam"):
            return self.method
        return f"{self.method} k={self.feedback.k} lam={self.feedback.lam:g}"  # type: ignore[attr-defined]

    def options(self, eos_ids: Sequence[int]) -> DecodeOptions:
        """The keywords of `denoise`."""
        return {
            "feedback": self.feedback,
            "commit": self.commit,
            "block_length": self.block_length,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "cache": self.cache,
            "refresh": self.refresh,
            "renew": self.renew,
            **eos_options(self.eos, eos_ids),
        }

    def record(self) -> dict[str, Any]:
        """What the methods and rates of one comparison share; what is not used is no entry, as before it was there."""
        names = ("max_new_tokens", "eos", "block_length", "rank", "reading", "temperature", "top_p", "seed")
        cached = () if self.cache is None else ("cache", "refresh")
        renewed = () if self.renew == 1 else ("renew",)
        return {name: getattr(self, name) for name in (*names, *cached, *renewed)}


@dataclass(frozen=True)
class Cell:
    model: ModelSpec
    task: TaskSpec
    decoding: Decoding

    @property
    def labels(self) -> dict[str, str]:
        """The cell in words, for tables; its identity is the protocol."""
        return {
            "model": self.model.name,
            "task": self.task.name,
            "method": self.decoding.label,
            "rate": str(self.decoding.rate),
        }

    def __str__(self) -> str:
        return " · ".join(self.labels.values())


def protocol(cell: Cell, model: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that can change an answer or a verdict, as plain JSON values; `model` and `task` are their records."""
    decoding = cell.decoding
    return canonical(
        {
            "softdlm_protocol": PROTOCOL,
            "model": model,
            "task": task,
            "method": {"name": decoding.method, **rule_record(decoding.feedback)},
            "rate": {"name": decoding.rate.name, "value": decoding.rate.value, **rule_record(decoding.commit)},
            "decoding": decoding.record(),
        }
    )


def task_record(task: EvalTask) -> dict[str, Any]:
    """The task's own protocol and its items as the model reads them, template and all."""
    items = [[item.id, item.prompt, list(item.stop)] for item in task.items]
    doubled = [name for name, times in Counter(name for name, *_ in items).items() if times > 1]
    if doubled or not items:
        raise UsageError(f"a task needs items, each with an id of its own; doubled: {doubled[:5]}")
    return {**task.protocol(), "count": len(items), "items": short_digest(items)}


def rule_record(rule: Any) -> dict[str, Any]:
    """A rule's name and settings; one from outside softdlm also by its source, so that editing it is a change."""
    plain = inspect.isfunction(rule) and rule.__closure__ is None
    if not plain and not is_dataclass(rule):
        raise UsageError(f"the settings of {rule!r} cannot be read: write the rule as a dataclass or a plain function")
    kind: Any = rule if plain else type(rule)
    settings = {name: getattr(rule, name) for name in getattr(kind, "__dataclass_fields__", ())}
    record = {"rule": kind.__qualname__}
    record |= {name: rule_record(value) if is_dataclass(value) else value for name, value in settings.items()}
    ours = (kind.__module__ or "").startswith("softdlm.")
    return record if ours else {**record, "source": short_digest(_source(kind))}


def _source(kind: Any) -> str:
    """The module's text where there is one: a rule may call its neighbours."""
    for place in (inspect.getmodule(kind), kind):
        try:
            return inspect.getsource(place)  # type: ignore[arg-type]
        except (OSError, TypeError):
            continue
    raise UsageError(f"the source of {kind.__qualname__} cannot be read, so an edit would go unseen: save it in a file")


def canonical(value: Any) -> Any:
    """Plain JSON values, whole numbers as integers: 1.0 and 1 are the same setting."""
    if isinstance(value, Mapping):
        return {str(key): canonical(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(each) for each in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError(f"a setting must be a finite number, not {value}")
        return int(value) if value.is_integer() else value
    if value is None or isinstance(value, str | bool | int):
        return value
    raise UsageError(f"a setting must be a number, a word or a list of them, not {value!r}")


def short_digest(value: Any) -> str:
    """20 hexadecimal digits of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]
