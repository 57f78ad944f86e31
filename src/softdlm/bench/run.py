"""All parts of all shapes, one after another."""

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
from softdlm.bench.measure import Clock, profile
from softdlm.bench.report import Outcome, Report, free_stem, verdict_row
from softdlm.bench.shapes import Shape, build_model
from softdlm.bench.suites import PARTS
from softdlm.bench.targets import Check
from softdlm.bench.workload import Decode, engine_option
from softdlm.errors import UsageError
from softdlm.version import __version__

PACKAGES = ("torch", "transformers", "triton")
Say = Callable[[str], None]


def bench(
    shapes: Sequence[Shape],
    device: torch.device,
    dtype: torch.dtype,
    out: Path,
    *,
    only: Sequence[str] = (),
    engine: str = "auto",
    seconds: float = 600.0,
    say: Say = lambda text: None,
) -> Report:
    """Measure, writing after every part; a part that fails is told and the next one goes on."""
    check_parts(shapes, only)
    engine_option(engine)
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    clock = Clock(seconds)
    found = conditions(shapes, device, dtype, engine, seconds)
    report = Report(free_stem(out, f"{found['date']}-bench-{slug(found['device'])}"), found)
    for shape in shapes:
        for outcome in measure(shape, device, dtype, only, engine, clock, say):
            report.add(outcome)
            say(f"{outcome.shape}: {outcome.part} {outcome.status}, {outcome.seconds:.0f} s")
    return report


def measure(
    shape: Shape,
    device: torch.device,
    dtype: torch.dtype,
    only: Sequence[str],
    engine: str,
    clock: Clock,
    say: Say,
) -> Iterator[Outcome]:
    """The outcomes of a shape. Where its network cannot be built, the one outcome is that."""
    parts = [part for part in shape.parts if not only or part in only]
    if not parts:
        return
    say(f"{shape.name}: making the network")
    clean(device)
    try:
        model = build_model(shape, device, dtype)
    except Exception as error:
        yield Outcome(shape.name, "network", "failed", error=told(error))
        return
    subject = Bench(shape, model, engine, clock, lambda text: say(f"{shape.name}: {text}"))
    for part in parts:
        if clock.left <= 0:
            yield Outcome(shape.name, part, "no time", error=f"the {clock.seconds:g} seconds were over")
            continue
        yield carry_out(part, subject)
        clean(device)


def carry_out(part: str, subject: Bench) -> Outcome:
    began, shape, device = time.monotonic(), subject.shape.name, subject.model.device
    outcome = Outcome(shape, part, "measured")
    subject.say(part)
    try:
        found = PARTS[part](subject)
        outcome.rows, outcome.notes = found.rows, found.notes
        outcome.verdicts = [verdict_row(check.target, check.value, shape, name_of(device)) for check in found.checks]
        outcome.profiles = profiles(subject, found.checks, outcome.verdicts)
    except NotHere as reason:
        outcome.status, outcome.error = "not here", str(reason)
    except Exception as error:
        outcome.status, outcome.error = "failed", told(error)
    outcome.seconds = time.monotonic() - began
    return outcome


def profiles(subject: Bench, checks: Sequence[Check], verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Where the time goes in the decodes that missed their target, where there is none in the first; a few passes."""
    seen = [(check.decode, row["verdict"]) for check, row in zip(checks, verdicts, strict=True) if check.decode]
    missed = [decode for decode, verdict in seen if verdict not in ("met", None)]
    if all(verdict is None for _, verdict in seen):
        missed = [decode for decode, _ in seen[:1]]
    short = dict.fromkeys(few_passes(decode) for decode in missed)
    return {str(decode): profile(subject.call(decode), subject.model.device) for decode in short}


def few_passes(decode: Decode) -> Decode:
    return decode.ending(min(decode.new, decode.block or 8 * decode.rate), decode.rate)


def told(error: Exception) -> str:
    """The message in the first line, then the trace."""
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error))}"


def clean(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def check_parts(shapes: Sequence[Shape], only: Sequence[str]) -> None:
    known = list(dict.fromkeys(part for shape in shapes for part in shape.parts))
    unknown = [part for part in only if part not in known]
    if unknown:
        raise UsageError(f"no part {', '.join(unknown)} here; there are {', '.join(known)}")


def conditions(
    shapes: Sequence[Shape], device: torch.device, dtype: torch.dtype, engine: str, seconds: float
) -> dict[str, Any]:
    """Everything that a reader needs to do the same again."""
    gpu = device.type == "cuda"
    now = datetime.now().astimezone()
    return {
        "date": now.date().isoformat(),
        "began": now.time().isoformat("seconds"),
        "device": name_of(device),
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
    return f"{busy:.2f}{' (busy: these times tell little)' if crowded else ''}"


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def slug(name: str) -> str:
    return "-".join(name.lower().split())
