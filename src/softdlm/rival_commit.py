"""Commit rules of other published methods."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.commit import (
    CommitRule,
    Rank,
    Steps,
    TopN,
    check_eps,
    check_inner,
    check_least,
    check_rank,
    places,
    rate_label,
    uncovered,
    wait_of,
)
from softdlm.distributions import kl, none_yet, probs_of
from softdlm.errors import UsageError
from softdlm.registry import named
from softdlm.types import Context, Prediction, RuleState
from softdlm.wrapped_commit import Around

MIDDLE, LATE = 0.33, 0.67
"""Where Prophet's middle and last thirds begin."""


@named("commit", "topn-eps")
@dataclass(frozen=True)
class TopNEps:
    """n tokens a step by Dream's time grid: `steps` with schedule "eps" and as many steps as the block's [MASK]s / n.

    The share of a pass is rounded down, so that the first passes commit less than n and later ones more.
    """

    n: int = 1
    eps: float = 1e-3
    rank: Rank = "confidence"
    may_wait = sys.maxsize
    """The passes that round down to nothing grow with the block; the grid's last pass commits all, so the wait ends."""

    def __str__(self) -> str:
        return str(TopN(self.n))

    def __post_init__(self) -> None:
        check_least("tokens per step n", self.n, 1)
        check_eps(self.eps)
        check_rank(self.rank)

    def count(self, context: Context) -> Int[Tensor, "B 1"]:
        steps = (context.block_masks + self.n - 1) // self.n
        now, after = (1 - (1 - self.eps) * (context.block_passes + i).double() / steps for i in (0, 1))
        return torch.where(context.block_passes >= steps - 1, context.left, uncovered(context.left, now, after))

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        return open & (places(prediction, open, self.rank) < self.count(context))


@named("commit", "lrd")
@dataclass(frozen=True)
class LRDCommit:
    """Nothing until the mean KL(now, last) is below `warm`, for at most `most` passes; then `then`; below `stop` all.

    The two phases of LRD (arXiv 2510.11052), whose phase 2 takes the position of least entropy. The mean is over the
    open positions of the row's block. The pass that ends phase 1 commits nothing. `stop` compares two passes of phase
    2, so it acts in the second one at the earliest; None: never. `then` sees the passes of phase 2 alone.
    """

    then: CommitRule = field(default_factory=lambda: TopN(1, "entropy"))
    warm: float = 0.1
    most: int = 20
    stop: float | None = 0.1
    needs = "probs"

    @property
    def may_wait(self) -> int:
        return self.most + wait_of(self.then)

    def __str__(self) -> str:
        return f"LRD, {rate_label(self.then)}"

    def __post_init__(self) -> None:
        check_inner(self.then)
        check_least("passes of phase 1 most", self.most, 0)
        for name, bar in (("warm", self.warm), ("stop", self.stop)):
            if bar is not None and not bar >= 0:
                raise UsageError(f"the bar {name} must be at least 0 nats, not {bar}")

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
        return {
            "last": none_yet(rows, length, device, vocabulary),
            "refined": torch.full((rows, 1), self.most == 0, device=device),
            "since": torch.zeros(rows, 1, dtype=torch.long, device=device),
            "drift": torch.zeros(rows, 1, device=device),
        }

    def update(self, state: RuleState, prediction: Prediction, context: Context) -> RuleState:
        """`refined`: phase 1 is over after this pass; `since`: passes of phase 2, this one included."""
        probs = probs_of(prediction)
        drift = mean_over(kl(probs, state["last"]), context.in_block & (prediction.token >= 0))
        over = (drift < self.warm) | (context.passes + 1 >= self.most)
        return {
            "last": probs,
            "refined": state["refined"] | over,
            "since": state["since"] + state["refined"],
            "drift": drift,
        }

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        since, drift = context.state["since"], context.state["drift"]
        before = (since - 1).clamp(min=0)
        own = replace(context, passes=before, block_passes=torch.minimum(context.block_passes, before), state={})
        stopped = (since > 1) & (drift < (float("-inf") if self.stop is None else self.stop))
        return open & (since > 0) & (stopped | self.then(prediction, open, own))


@named("commit", "klass")
@dataclass(frozen=True)
class KLASS:
    """Confidence above tau and KL(now, last) below `kl` in each of the last `passes` passes; if none, `floor` (KLASS).

    As in the published code (shkim0116/KLASS), the first passes of a block, one less than `passes`, take the floor.
    """

    tau: float = 0.9
    kl: float = 0.01
    passes: int = 2
    floor: TopN | Steps = field(default_factory=TopN)
    needs = "probs"

    @property
    def may_wait(self) -> int:
        return wait_of(self.floor)

    def __str__(self) -> str:
        return f"KLASS {self.tau:g}, KL {self.kl:g}"

    def __post_init__(self) -> None:
        _check_bars(tau=self.tau, kl=self.kl)
        check_least("passes", self.passes, 1)

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
        calm = torch.zeros(rows, length, dtype=torch.long, device=device)
        return {"last": none_yet(rows, length, device, vocabulary), "calm": calm}

    def update(self, state: RuleState, prediction: Prediction, context: Context) -> RuleState:
        """`calm`: passes in a row in which the position's distribution stayed as it was."""
        probs = probs_of(prediction)
        return {"last": probs, "calm": (state["calm"] + 1).where(kl(probs, state["last"]) < self.kl, 0)}

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        calm = (context.state["calm"] >= self.passes) & (context.block_passes >= self.passes - 1)
        ready = open & calm & (prediction.log_confidence > _log(self.tau))
        least = open & (places(prediction, open, self.floor.rank) < self.floor.count(context))
        return torch.where(ready.any(1, keepdim=True), ready, least)


@named("commit", "prophet")
@dataclass(frozen=True)
class Prophet(Around):
    """Everything once the mean gap of the two best logits reaches early, mid or late, by thirds; else `then` (Prophet).

    The mean is over the open positions of the row's block, and a third is one of the block's [MASK]s: how many are
    closed after this pass, as the published code (pixeli99/Prophet) counts its steps. In one block that is the whole
    answer. A gap counts up to 87, where float32 ends.
    """

    then: CommitRule = field(default_factory=TopN)
    early: float = 7.5
    mid: float = 5.0
    late: float = 2.5
    k = 2

    def __str__(self) -> str:
        return f"Prophet, {rate_label(self.then)}"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bars(early=self.early, mid=self.mid, late=self.late)

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        chosen = open & self.then(prediction, open, context)
        done = (context.block_masks - context.left + chosen.sum(1, keepdim=True)) / context.block_masks
        bar = torch.where(done < MIDDLE, self.early, torch.where(done < LATE, self.mid, self.late))
        return chosen | (open & (mean_over(_logit_gap(prediction), open) >= bar))


@named("commit", "remix")
@dataclass(frozen=True)
class ReMixCommit:
    """Confidence above tau, the surest first, at most min(max(share x open, least), most), at least one (ReMix)."""

    tau: float = 0.9
    share: float = 0.7
    least: int = 5
    most: int = 20

    def __str__(self) -> str:
        return f"ReMix {self.tau:g}"

    def __post_init__(self) -> None:
        _check_bars(tau=self.tau)
        if not 0 <= self.share <= 1:
            raise UsageError(f"share must lie in [0, 1], not {self.share}")
        if not 1 <= self.least <= self.most:
            raise UsageError(f"need 1 <= least <= most, not least={self.least} most={self.most}")

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        place = places(prediction, open, "confidence")
        room = (context.left * self.share).long().clamp(self.least, self.most)
        sure = prediction.log_confidence > _log(self.tau)
        return open & ((sure & (place < room)) | (place == 0))


def mean_over(values: Float[Tensor, "B L"], where: Bool[Tensor, "B L"]) -> Float[Tensor, "B 1"]:
    """Each row's mean at the chosen positions; 0 where there is none."""
    return values.where(where, 0).sum(1, keepdim=True) / where.sum(1, keepdim=True).clamp(min=1)


def _logit_gap(prediction: Prediction) -> Float[Tensor, "B L"]:
    """Between the two best candidates: their log-probabilities differ by as much as their logits."""
    if prediction.topk_probs.shape[-1] < 2:
        raise UsageError("this rule reads two candidates: make the prediction with k of at least 2")
    logs = prediction.topk_probs.clamp(min=torch.finfo(torch.float32).tiny).log()
    return logs[..., 0] - logs[..., 1]


def _log(tau: float) -> float:
    return math.log(tau) if tau > 0 else float("-inf")


def _check_bars(**bars: float) -> None:
    for name, bar in bars.items():
        if not bar >= 0:
            raise UsageError(f"the bar {name} must be at least 0, not {bar}")
