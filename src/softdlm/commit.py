"""Commit rules: which open positions harden in this pass.

Every rule is a frozen value, called as `rule(prediction, open, context) -> mask`, all "B L". It does not see the model,
so any rule combines with any feedback, family and block length. To write your own, write such a function.

A rule may declare four more things. `may_wait` is the most passes in a row in which it may commit nothing (0 where it
is not declared). `k` is the number of candidates that it reads. `needs = "probs"` asks for the full distribution in
`prediction.probs`. `init` and `update` give it a memory: see `softdlm.types.Stateful`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.registry import named, spell
from softdlm.types import Context, Prediction, Stateful

Rank = Literal["confidence", "margin", "entropy"]
Schedule = Literal["even", "eps", "power", "cosine"]


@runtime_checkable
class CommitRule(Protocol):
    def __call__(
        self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context, /
    ) -> Bool[Tensor, "B L"]: ...


def scores(prediction: Prediction, open: Bool[Tensor, "B L"], rank: Rank) -> Float[Tensor, "B L"]:
    """Larger is surer: closed positions are -inf, deferred ones below every other open one."""
    by = {
        "confidence": prediction.log_confidence,
        "margin": -prediction.one_minus_margin,
        "entropy": -prediction.entropy,
    }
    score = by[rank].masked_fill(prediction.deferred, torch.finfo(prediction.entropy.dtype).min)
    return score.masked_fill(~open, float("-inf"))


def order(prediction: Prediction, open: Bool[Tensor, "B L"], rank: Rank) -> Int[Tensor, "B L"]:
    """Positions from the surest to the least sure; ties go to the leftmost."""
    return scores(prediction, open, rank).sort(dim=1, descending=True, stable=True).indices


def places(prediction: Prediction, open: Bool[Tensor, "B L"], rank: Rank) -> Int[Tensor, "B L"]:
    """Each position's place in that order, from 0; the inverse permutation of `order`."""
    ranked = order(prediction, open, rank)
    number = torch.arange(ranked.shape[1], device=ranked.device).expand_as(ranked)
    return torch.empty_like(ranked).scatter_(1, ranked, number)


@named("commit", "topn")
@dataclass(frozen=True)
class TopN:
    """The n surest positions (section 2.1; n is the paper's tokens per step)."""

    n: int = 1
    rank: Rank = "confidence"

    def __str__(self) -> str:
        return f"{self.n} a step"

    def __post_init__(self) -> None:
        check_least("tokens per step n", self.n, 1)
        check_rank(self.rank)

    def count(self, context: Context) -> Int[Tensor, "B 1"]:
        return torch.full_like(context.left, self.n)

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        return open & (places(prediction, open, self.rank) < self.count(context))


@named("commit", "steps")
@dataclass(frozen=True)
class Steps:
    """A block spread over a number of passes.

    `even` is LLaDA's split (the remainder goes to the earliest passes), over the block's [MASK]s or, as LLaDA-2
    counts, over its positions. `eps` is Dream's: of the masks left, the share that the time grid from 1 to eps
    uncovers, rounded down, so that a pass may commit nothing; the last pass takes all. `power` and `cosine` (MaskGIT's)
    grow: by pass t the share (t / steps)**power or 1 - cos(pi t / (2 steps)) is committed, at least one in each pass.
    """

    steps: int
    schedule: Schedule = "even"
    over: Literal["masks", "block"] = "masks"
    eps: float = 1e-3
    rank: Rank = "confidence"
    power: float = 1.5

    @property
    def may_wait(self) -> int:
        return self.steps if self.schedule == "eps" else 0

    def __str__(self) -> str:
        power = f" {self.power:g}" if self.schedule == "power" else ""
        return f"{self.steps} {'step' if self.steps == 1 else 'steps'}, {self.schedule}{power}"

    def __post_init__(self) -> None:
        check_least("steps", self.steps, 1)
        check_choice("schedule", self.schedule, get_args(Schedule))
        check_choice("over", self.over, ("masks", "block"))
        check_eps(self.eps)
        check_rank(self.rank)
        if not 1 <= self.power < math.inf:
            raise UsageError(f"power must be at least 1 (an even schedule), not {self.power}")
        if self.over == "block" and self.schedule in ("power", "cosine"):
            raise UsageError(f"schedule={self.schedule!r} counts the block's [MASK]s: leave out over='block'")

    def count(self, context: Context) -> Int[Tensor, "B 1"]:
        step = context.block_passes
        count = {"even": self._even, "eps": self._eps}.get(self.schedule, self._growing)(context)
        return torch.where(step >= self.steps - (self.schedule != "even"), context.left, count)

    def _even(self, context: Context) -> Int[Tensor, "B 1"]:
        total = context.block_masks if self.over == "masks" else context.block_length
        return total // self.steps + (context.block_passes < total % self.steps)

    def _eps(self, context: Context) -> Int[Tensor, "B 1"]:
        times = torch.linspace(1, self.eps, self.steps + 1, device=context.left.device)
        step = context.block_passes.clamp(max=self.steps - 1)
        return uncovered(context.left, times[step], times[step + 1])

    def _growing(self, context: Context) -> Int[Tensor, "B 1"]:
        """What is due by the end of this pass, less what is committed already."""
        number = (context.block_passes + 1).clamp(max=self.steps)
        share = number.double() / self.steps
        grown = share**self.power if self.schedule == "power" else 1 - torch.cos(share * (math.pi / 2))
        due = (context.block_masks * grown).round().long()
        return (due - context.block_masks + context.left).clamp(min=1)

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        return open & (places(prediction, open, self.rank) < self.count(context))


@named("commit", "threshold")
@dataclass(frozen=True)
class Threshold:
    """Every position at or above confidence tau, and in any case the `floor` surest (Fast-dLLM; appendix B.4).

    LLaDA-2's rule is `Threshold(0.95, floor=Steps(32, over="block"), strict=True)`. With `budget=steps`, Fast-dLLM's
    rule for Dream without a cache: by pass i at most an even share of i / steps of the block.
    """

    tau: float
    floor: TopN | Steps = field(default_factory=TopN)
    strict: bool = False
    budget: int | None = None

    @property
    def may_wait(self) -> int:
        return wait_of(self.floor)

    def __str__(self) -> str:
        return f"threshold {self.tau:g}"

    def __post_init__(self) -> None:
        if not self.tau >= 0:
            raise UsageError(f"threshold tau must be at least 0, not {self.tau}")
        if self.budget is not None:
            check_least("budget", self.budget, 1)

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        bar = math.log(self.tau) if self.tau > 0 else float("-inf")
        sure = prediction.log_confidence > bar if self.strict else prediction.log_confidence >= bar
        place = places(prediction, open, self.floor.rank)
        chosen = open & (sure | (place < self.floor.count(context)))
        if self.budget is None:
            return chosen
        due = context.block_masks * (context.block_passes + 1).clamp(max=self.budget) // self.budget
        return chosen & (place < (due - context.block_masks + context.left).clamp(min=1))


@named("commit", "factor")
@dataclass(frozen=True)
class Factor:
    """The r-th surest while its confidence is at least 1 - f / (r + 1), the first in any case (Fast-dLLM).

    The `original` code takes the last open position too when it alone fails; the `dllm` port does not.
    """

    f: float
    variant: Literal["original", "dllm"] = "original"

    def __str__(self) -> str:
        return f"factor {self.f:g}"

    def __post_init__(self) -> None:
        if not self.f >= 0:
            raise UsageError(f"factor f must be at least 0, not {self.f}")
        check_choice("variant", self.variant, ("original", "dllm"))

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        place = places(prediction, open, "confidence")
        fails = open & (place > 0) & (prediction.confidence < 1 - self.f / (place + 2))
        first = place.masked_fill(~fails, place.shape[1]).amin(1, keepdim=True).clamp(max=context.left)
        if self.variant == "original":
            first = first + (first == context.left - 1).long()
        return open & (place < first)


@named("commit", "entropy")
@dataclass(frozen=True)
class EntropyBound:
    """The largest prefix of the order with sum H - max H <= gamma nats, at least one (EB-Sampler; appendix B.4).

    The sum without its maximum grows by min(H_j, running maximum) at each position, which needs no subtraction
    and so stays exact for entropies of any size.
    """

    gamma: float
    rank: Rank = "entropy"

    def __str__(self) -> str:
        return f"entropy bound {self.gamma:g}"

    def __post_init__(self) -> None:
        if not self.gamma >= 0:
            raise UsageError(f"entropy bound gamma must be at least 0, not {self.gamma}")
        check_rank(self.rank)

    def __call__(self, prediction: Prediction, open: Bool[Tensor, "B L"], context: Context) -> Bool[Tensor, "B L"]:
        ranked = order(prediction, open, self.rank)
        entropy = prediction.entropy.masked_fill(~open, 0).gather(1, ranked)
        largest_before = entropy.cummax(1).values.roll(1, dims=1)
        growth = torch.minimum(entropy, largest_before)
        growth[:, 0] = 0
        within = growth.cumsum(1) <= self.gamma
        return open & torch.zeros_like(open).scatter(1, ranked, within)


def uncovered(left: Int[Tensor, "B 1"], now: Float[Tensor, "B 1"], after: Float[Tensor, "B 1"]) -> Int[Tensor, "B 1"]:
    """Dream's count: of the masks left, the share that going from time `now` to `after` uncovers, rounded down."""
    return (left * (1 - after / now)).long()


def wait_of(rule: CommitRule) -> int:
    """The most passes in a row in which a rule may commit nothing in a row of the batch."""
    return getattr(rule, "may_wait", 0)


def rate_label(rule: CommitRule) -> str:
    """How many tokens a pass commits, in a table's words: `4 a step`, `entropy bound 0.1`; else the rule's spelling
    without its file.
    """
    return str(rule) if type(rule).__str__ is not object.__str__ else spell(rule).rpartition(".py:")[2]


def check_inner(rule: CommitRule) -> None:
    """A rule inside a rule: the loop keeps the memory of the outer one only."""
    if not callable(rule):
        raise UsageError(f"the inner rule must be a commit rule, such as topn(1), not {rule!r}")
    if isinstance(rule, Stateful):
        raise UsageError(f"{spell(rule)} has a memory and cannot stand inside another rule: use it on its own")


def check_eps(eps: float) -> None:
    if not 0 <= eps < 1:
        raise UsageError(f"eps must lie in [0, 1), not {eps}")


def check_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(f"{name} must be at least {least}, not {value}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def check_rank(rank: str) -> None:
    check_choice("rank", rank, get_args(Rank))
