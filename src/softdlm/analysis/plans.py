"""Each analysis as a plan: what decides its numbers, its rows in order, its summary. `run` carries one out."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from softdlm import registry
from softdlm.analysis import agreement, completions, consistency, geometry, joint, mixtures, reliability
from softdlm.analysis.prompts import Case
from softdlm.analysis.questions import Question, batches, complete
from softdlm.analysis.spans import BATCH, Rules
from softdlm.analysis.states import Scorer
from softdlm.decoding import Decoding
from softdlm.feedback import Mask
from softdlm.models.denoiser import Denoiser
from softdlm.records.canonical import content_digest
from softdlm.records.row_file import RowFile
from softdlm.rule_files import source_digest
from softdlm.version import __version__

R = TypeVar("R")
Progress = Callable[[int, int], None]
"""Called with the rows done and the rows in all."""


@dataclass(frozen=True)
class Plan(Generic[R]):
    settings: dict[str, Any]
    """All that decides the numbers; two runs with equal settings may be joined."""
    total: int
    row: type[R]
    rows: Callable[[int], Iterable[R]]
    """The rows after the first so many."""
    summarise: Callable[[Sequence[R]], Sequence[Any]]


@dataclass(frozen=True)
class Result:
    settings: dict[str, Any]
    environment: dict[str, Any]
    summary: Sequence[Any]
    rows: list[Any]

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run(model: Denoiser, plan: Plan[R], out: Path | None = None, progress: Progress | None = None) -> Result:
    """All rows, going on with those in `out` where it holds some already."""
    environment = describe_environment(model)
    with RowFile(out, plan.settings, environment, plan.row) if out else nullcontext() as file:
        rows: list[R] = file.rows if file else []
        for row in plan.rows(len(rows)):
            (file or rows).append(row)
            if progress:
                progress(len(rows), plan.total)
    return Result(plan.settings, environment, plan.summarise(rows), rows)


def mixtures_plan(
    model: Denoiser, cases: Sequence[Case], rules: Rules, *, k: int = 3, lam: float = 0.3, batch_size: int = BATCH
) -> Plan[mixtures.MixtureRow]:
    """Table 1, over all prompts."""
    for case in cases:
        mixtures.check_size(k, lam, len(case.span.places))
    measure = partial(mixtures.measure_mixtures, model, rules=rules, k=k, lam=lam, batch_size=batch_size)
    settings = _settings(model, "mixtures", rules, cases) | {"k": k, "lam": lam}
    return Plan(settings, len(cases), mixtures.MixtureRow, _each(measure, cases), mixtures.summarise)


def consistency_plan(
    model: Denoiser, cases: Sequence[Case], rules: Rules, *, batch_size: int = BATCH
) -> Plan[consistency.ConsistencyRow]:
    """Table 4, over the prompts whose alternatives fill the masks exactly."""
    fitting = [case for case in cases if case.qualifies]
    measure = partial(consistency.measure_consistency, model, rules=rules, batch_size=batch_size)
    counts = {"qualify": len(fitting), "of": len(cases)}
    settings = _settings(model, "consistency", rules, fitting) | counts
    return Plan(settings, len(fitting), consistency.ConsistencyRow, _each(measure, fitting), consistency.summarise)


def joint_plan(
    model: Denoiser, cases: Sequence[Case], rules: Rules, *, order: joint.Order = "average", batch_size: int = BATCH
) -> Plan[joint.JointRow]:
    """Figure 1."""
    joint.check(cases, order)
    measure = partial(joint.measure_joint, model, rules=rules, order=order, batch_size=batch_size)
    settings = _settings(model, "joint", rules, cases) | {"order": order}
    return Plan(settings, len(cases), joint.JointRow, _each(measure, cases), list)


def geometry_plan(
    model: Denoiser,
    questions: Sequence[Question],
    rules: Rules,
    decoding: Decoding,
    *,
    k: int = 3,
    line_k: int = 4,
    batch_size: int = 16,
) -> Plan[geometry.Row]:
    """Table 3 and appendix B.1."""
    measure = partial(geometry.measure, model, rules=rules, decoding=decoding, k=k, line_k=line_k)
    narrow = {"measured_in": "float32"} if torch.finfo(model.dtype).bits < 32 else {}
    settings = _settings(model, "geometry", rules, questions, decoding) | {"k": k, "line_k": line_k} | narrow
    return Plan(settings, len(questions), geometry.Row, _batched(measure, questions, batch_size), geometry.summarise)


def agreement_plan(
    model: Denoiser, questions: Sequence[Question], rules: Rules, decoding: Decoding, *, batch_size: int = 16
) -> Plan[agreement.AgreementRow]:
    """When predictions become final; the feedback of `decoding` does not count, the rules take its place."""
    decoding = replace(decoding, feedback=Mask(), k=None, lam=None)
    measure = partial(agreement.measure_agreement, model, rules=rules, decoding=decoding)
    settings = _settings(model, "agreement", rules, questions, decoding)
    rows = _batched(measure, questions, batch_size)
    return Plan(settings, len(questions), agreement.AgreementRow, rows, agreement.summarise)


def completions_plan(
    model: Denoiser, questions: Sequence[Question], rules: Rules, decoding: Decoding, *, batch_size: int = 16
) -> Plan[completions.CompletionRow]:
    """Table 8: the answers are decoded first, a batch at a time."""

    def measure(batch: list[Question]) -> Iterator[completions.CompletionRow]:
        for completion in complete(model, batch, decoding):
            yield completions.measure_completion(model, completion, rules)

    spans = {"lengths": list(completions.LENGTHS), "places": completions.PLACES}
    support = {"support": list(completions.SUPPORT), "top": completions.TOP}
    settings = _settings(model, "completions", rules, questions, decoding) | spans | support
    rows = _batched(measure, questions, batch_size)
    return Plan(settings, len(questions), completions.CompletionRow, rows, completions.summarise)


def reliability_plan(
    model: Denoiser,
    questions: Sequence[Question],
    rules: Rules,
    decoding: Decoding,
    *,
    score: Scorer,
    states: int = reliability.STATES,
    positions: int = reliability.POSITIONS,
    batch_size: int = 16,
) -> Plan[reliability.ReliabilityRow]:
    """Whether predictions are as often right as they are sure; each question has `states` rows."""
    reliability.check(rules, decoding)
    how = {"rules": rules, "decoding": decoding, "score": score, "states": states, "positions": positions}
    by_question = _batched(partial(reliability.measure_reliability, model, **how), questions, batch_size)
    settings = _settings(model, "reliability", rules, questions, decoding) | {"states": states, "positions": positions}

    def rows(done: int) -> Iterator[reliability.ReliabilityRow]:
        return islice(by_question(done // states), done % states, None)

    return Plan(settings, states * len(questions), reliability.ReliabilityRow, rows, reliability.summarise)


def _each(measure: Callable[[Any], R], items: Sequence[Any]) -> Callable[[int], Iterator[R]]:
    return lambda done: map(measure, items[done:])


def _batched(
    measure: Callable[[list[Question]], Iterable[R]], questions: Sequence[Question], batch_size: int
) -> Callable[[int], Iterator[R]]:
    return lambda done: (row for batch in batches(questions[done:], batch_size) for row in measure(batch))


def _decoded(decoding: Decoding) -> dict[str, Any]:
    """A record without the length, which each question has, but with what decides how many passes are made."""
    written = decoding.record() | {"early_finish": decoding.early_finish, "stop": list(decoding.stop)}
    return {name: value for name, value in written.items() if name != "max_new_tokens"}


def _settings(
    model: Denoiser, name: str, rules: Rules, items: Sequence[Case | Question], decoding: Decoding | None = None
) -> dict[str, Any]:
    """Items, weights and the files of a user's rules go in as digests: under the same name they may change."""
    row = model.embedding[model.mask_id].float().cpu().numpy().tobytes()
    return {
        "analysis": name,
        "model": model.source.name,
        "revision": model.source.revision,
        "mask_embedding": content_digest(row, length=16),
        "dtype": model.precision,
        "attention": str(model.attention_block(None) or "full"),
        "rules": {name: registry.spell(rule) for name, rule in rules.items()},
        "rule_sources": {name: source for name, rule in rules.items() if (source := source_digest(rule))},
        "items": content_digest(repr(items), length=16),
        "chat": any(item.chat for item in items),
        **({"decoding": _decoded(decoding.settled(model.own))} if decoding else {}),
    }


def describe_environment(model: Denoiser) -> dict[str, Any]:
    gpu = model.device.type == "cuda"
    return {
        "softdlm": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(model.device) if gpu else f"{model.device.type} ({platform.machine()})",
    }
