"""What every Denoiser must hold, tried on a model by `check_denoiser` (the laws are in laws.py).

The laws need no training and no reference: each compares passes of the model with one another. They cannot see whether
the model is any good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from softdlm.errors import UsageError
from softdlm.models.denoiser import Denoiser
from softdlm.models.laws import FIRST, LAWS, Trial


class ContractError(UsageError):
    """A Denoiser that breaks a law."""


@dataclass(frozen=True)
class Finding:
    """One law, and why the model breaks it; None: it holds."""

    law: str
    why: str | None
    tried: bool = True
    """False: a law that this one rests on is broken."""

    def __str__(self) -> str:
        word = "not tried" if not self.tried else "holds" if self.why is None else "BROKEN"
        return f"{word:<11}{self.law:<12}{self.why or LAWS[self.law].__doc__}"


@dataclass(frozen=True)
class ContractReport:
    """A finding for each law; printed, one line for each."""

    model: str
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(each.law for each in self.findings if each.why is not None)

    @property
    def passed(self) -> bool:
        return not self.broken

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


@torch.no_grad()
def check_denoiser(model: Denoiser, *, strict: bool = True) -> ContractReport:
    """Try the laws on a model with a few small passes (about twenty over rows of a dozen tokens).

    Returns a report that prints as one line for each law. A broken law is an error that names it; with strict=False it
    is only in the report (`report.broken`).
    """
    if not isinstance(model, Denoiser):
        raise UsageError(
            f"check_denoiser takes a Denoiser, not {type(model).__name__}: softdlm.wrap makes one of a network"
        )
    trial = Trial(model)
    findings: list[Finding] = []
    for law, check in LAWS.items():
        tried = not any(each.why and each.law in FIRST for each in findings)
        findings.append(Finding(law, _outcome(check, trial) if tried else None, tried))
    report = ContractReport(model.source.name, tuple(findings))
    if strict and report.broken:
        reasons = "; ".join(f"{each.law}: {each.why}" for each in findings if each.why)
        raise ContractError(f"{model.source.name} breaks {len(report.broken)} of {len(LAWS)} laws: {reasons}")
    return report


def _outcome(check: Callable[[Trial], str | None], trial: Trial) -> str | None:
    try:
        return check(trial)
    except Exception as error:
        return f"raised {type(error).__name__}: {' '.join(str(error).split())[:200]}"
