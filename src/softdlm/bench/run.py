"""Runs all suites of all shapes, one after another."""

from __future__ import annotations

import gc
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from softdlm.bench.context import Bench, NotHere
from softdlm.bench.measure import TimeBudget, profile
from softdlm.bench.report import BenchReport, SuiteOutcome, free_stem, verdict_row
from softdlm.bench.shapes import NetworkShape, build_model
from softdlm.bench.suites import SUITES
from softdlm.bench.targets import Check
from softdlm.bench.workload import Decode
from softdlm.engine.pick_engine import EngineKind
from softdlm.errors import UsageError
from softdlm.models.weights import Precision
from softdlm.parsing import one_of
from softdlm.records.files import ready_folder
from softdlm.version import __version__

PACKAGES = ("torch", "transformers", "triton")
Say = Callable[[str], None]


def bench(
    shapes: Sequence[NetworkShape],
    device: torch.device,
    dtype: torch.dtype | Precision,
    out: Path,
    *,
    only: Sequence[str] = (),
    engine: str = "auto",
    seconds: float = 1400.0,
    say: Say = lambda text: None,
) -> BenchReport:
    """Measure and write the report after every suite. A suite that fails is reported; the others still run."""
    check_suites(shapes, only)
    chosen = one_of(EngineKind)("engine", engine)
    ready_folder(out)
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    budget = TimeBudget(seconds)
    found = conditions(shapes, device, dtype, engine, seconds)
    report = BenchReport(free_stem(out, f"{found['date']}-bench-{slug(found['device'])}"), found)
    for shape, suites in schedule(shapes, only):
        for outcome in measure_shape(shape, suites, device, dtype, chosen, budget, say):
            report.add(outcome)
            say(f"{outcome.shape}: {outcome.part} {outcome.status}, {outcome.seconds:.0f} s")
    return report


def schedule(shapes: Sequence[NetworkShape], only: Sequence[str]) -> list[tuple[NetworkShape, list[str]]]:
    """Every shape's suites, then those of every shape that may wait; a shape that is alone is built once."""
    turns = [(shape, shape.suites) for shape in shapes] + [(shape, shape.later) for shape in shapes]
    if len(shapes) == 1:
        turns = [(shapes[0], (*shapes[0].suites, *shapes[0].later))]
    chosen = [(shape, [suite for suite in suites if not only or suite in only]) for shape, suites in turns]
    return [(shape, suites) for shape, suites in chosen if suites]


def measure_shape(
    shape: NetworkShape,
    suites: Sequence[str],
    device: torch.device,
    dtype: torch.dtype | Precision,
    engine: EngineKind,
    budget: TimeBudget,
    say: Say,
) -> Iterator[SuiteOutcome]:
    """The outcomes of a shape's suites; a single failed outcome if its network cannot be built."""
    over = f"the time budget of {budget.seconds:g} seconds was used up"
    if budget.left <= 0:
        yield from (SuiteOutcome(shape.name, suite, "no time", error=over) for suite in suites)
        return
    say(f"{shape.name}: building the network")
    clean(device)
    try:
        model = build_model(shape, device, dtype)
    except Exception as error:
        yield SuiteOutcome(shape.name, "network", "failed", error=error_text(error))
        return
    model.warm()
    context = Bench(shape, model, engine, budget, lambda text: say(f"{shape.name}: {text}"))
    for suite in suites:
        if budget.left <= 0:
            yield SuiteOutcome(shape.name, suite, "no time", error=over)
            continue
        yield run_suite(suite, context)
        clean(device)


def run_suite(suite: str, context: Bench) -> SuiteOutcome:
    began, shape, device = time.monotonic(), context.shape.name, context.model.device
    outcome = SuiteOutcome(shape, suite, "measured")
    context.say(suite)
    try:
        found = SUITES[suite](context)
        outcome.rows, outcome.notes = found.rows, found.notes
        outcome.verdicts = [
            verdict_row(check.target, check.value, shape, device_name(device)) for check in found.checks
        ]
        outcome.profiles = profiles(context, found.checks, outcome.verdicts)
    except NotHere as reason:
        outcome.status, outcome.error = "not here", str(reason)
    except Exception as error:
        outcome.status, outcome.error = "failed", error_text(error)
    outcome.seconds = time.monotonic() - began
    return outcome


def profiles(context: Bench, checks: Sequence[Check], verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Profiles of a few passes of each decode that missed its target; of the first decode if no target applies."""
    seen = [(check.decode, row["verdict"]) for check, row in zip(checks, verdicts, strict=True) if check.decode]
    missed = [decode for decode, verdict in seen if verdict not in ("met", None)]
    if all(verdict is None for _, verdict in seen):
        missed = [decode for decode, _ in seen[:1]]
    short = dict.fromkeys(few_passes(decode) for decode in missed)
    return {str(decode): profile(context.call(decode), context.model.device) for decode in short}


def few_passes(decode: Decode) -> Decode:
    """The end of a decode, short enough to profile: one block or eight passes."""
    return decode.ending(min(decode.new, decode.block or 8 * decode.rate), decode.rate)


def error_text(error: Exception) -> str:
    """The message in the first line, then the traceback."""
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error))}"


def clean(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def check_suites(shapes: Sequence[NetworkShape], only: Sequence[str]) -> None:
    known = list(dict.fromkeys(suite for _, suites in schedule(shapes, ()) for suite in suites))
    unknown = [suite for suite in only if suite not in known]
    if unknown:
        raise UsageError(f"unknown suite {', '.join(unknown)}; these shapes have {', '.join(known)}")


def conditions(
    shapes: Sequence[NetworkShape], device: torch.device, dtype: torch.dtype | Precision, engine: str, seconds: float
) -> dict[str, Any]:
    """Everything that is needed to repeat the bench."""
    gpu = device.type == "cuda"
    now = datetime.now().astimezone()
    return {
        "date": now.date().isoformat(),
        "began": now.time().isoformat("seconds"),
        "device": device_name(device),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "load before": load(device),
        "dtype": str(dtype).removeprefix("torch."),
        "engine": engine,
        "kernels": os.environ.get("SOFTDLM_KERNELS", "auto"),
        "softdlm": __version__,
        **{name: installed(name) for name in PACKAGES},
        "CUDA": torch.version.cuda if gpu else None,
        "seconds": seconds,
        **{shape.name: str(shape.sizes) for shape in shapes},
    }


def load(device: torch.device) -> str:
    busy = os.getloadavg()[0]
    crowded = device.type == "cpu" and busy > 0.75 * (os.cpu_count() or 1)
    return f"{busy:.2f}{' (busy: times are not reliable)' if crowded else ''}"


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def slug(name: str) -> str:
    return "-".join(name.lower().split())
