"""Rules that were tried in the search for better decoding (docs/when-soft-tokens-help.md) and are no part of softdlm.

Each can be used by its file: `--feedback "benchmarks/rules_tried.py:Halves(lam=0.5)"`. They are measured by
benchmarks/beyond.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from softdlm import EntropyBound, Slerp, TopN
from softdlm.commit import places
from softdlm.distributions import js, none_yet, probs_of
from softdlm.feedback import aggregate, slerp
from softdlm.types import Context, Embeddings, Prediction, RuleState


@dataclass(frozen=True)
class Halves:
    """Alternation in stretches: neighbours of one stretch of `width` positions are soft in the same passes."""

    width: int = 8
    k: int = 1
    lam: float = 0.5

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Tensor:
        soft = Slerp(self.k, self.lam)(prediction, embeddings, context)
        turn = (context.index // self.width + context.passes + 1) % 2 == 0
        return torch.where(turn.unsqueeze(-1), soft, embeddings.mask)


@dataclass(frozen=True)
class Drawn:
    """Random alternation: each position is soft with probability `share`, anew in every pass."""

    share: float = 0.5
    k: int = 1
    lam: float = 0.5

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Tensor:
        soft = Slerp(self.k, self.lam)(prediction, embeddings, context)
        mixed = (context.index * 2654435761 + (context.passes + 1) * 40503 * 65537) % 4294967291
        turn = (mixed * 2246822519 % 4294967291).double() / 4294967291 < self.share
        return torch.where(turn.unsqueeze(-1), soft, embeddings.mask)


@dataclass(frozen=True)
class BySureness:
    """Alternation by confidence: sure positions are soft in even passes, the others in odd ones."""

    bar: float = 0.9
    k: int = 1
    lam: float = 0.5

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Tensor:
        soft = Slerp(self.k, self.lam)(prediction, embeddings, context)
        turn = (prediction.topk_probs[:, 0] > self.bar) == (context.passes % 2 == 0)
        return torch.where(turn.unsqueeze(-1), soft, embeddings.mask)


@dataclass(frozen=True)
class TwoStrengths:
    """Alternation between two strengths instead of a strength and [MASK]."""

    k: int = 1
    lam: float = 0.5
    low: float = 0.2

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Tensor:
        turn = ((context.index + context.passes + 1) % 2 == 0).unsqueeze(-1)
        mean = aggregate(prediction, embeddings, self.k)
        return torch.where(turn, slerp(embeddings.mask, mean, self.lam), slerp(embeddings.mask, mean, self.low))


@dataclass(frozen=True)
class Shaped:
    """Strength by certainty or progress: lam times a factor in [0, 1] that `by` names.

    confidence, confidence**2; entropy: 1 - H / (scale log V), LRD's weight; fade and rise: by the share still open;
    unsure: 1 below `bar`; sure: 1 from `bar` on; middle: 1 between 1 - bar and bar.
    """

    lam: float = 0.5
    by: str = "confidence"
    k: int = 1
    scale: float = 0.3
    bar: float = 0.9

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Tensor:
        first = prediction.topk_probs[:, 0].float()
        left = (context.left / context.block_masks.clamp(min=1)).float()
        factor = {
            "confidence": first,
            "square": first**2,
            "entropy": 1 - prediction.entropy.float() / (self.scale * math.log(len(embeddings.table))),
            "fade": left,
            "rise": 1 - left,
            "unsure": (first < self.bar).float(),
            "sure": (first >= self.bar).float(),
            "middle": ((first > 1 - self.bar) & (first < self.bar)).float(),
        }[self.by]
        return slerp(embeddings.mask, aggregate(prediction, embeddings, self.k), self.lam * factor.clamp(0, 1)[:, None])


@dataclass(frozen=True)
class NoEnd:
    """SLERP, but a position whose best candidate is EOS stays [MASK]: the answer's length is not fed back."""

    k: int = 1
    lam: float = 0.5
    eos: int = 1

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Tensor:
        soft = Slerp(self.k, self.lam)(prediction, embeddings, context)
        return torch.where(prediction.topk_ids[:, :1] == self.eos, embeddings.mask, soft)


@dataclass(frozen=True)
class Reset:
    """ReMix's reset on the arc: [MASK] for one pass where JS(now, last) > reject, or where the best token changed."""

    reject: float | None = 0.2
    k: int = 1
    lam: float = 0.5
    needs = "probs"

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
        return {
            "last": none_yet(rows, length, device, vocabulary),
            "token": torch.full((rows, length), -1, device=device),
            "jumped": torch.zeros(rows, length, dtype=torch.bool, device=device),
        }

    def update(self, state: RuleState, prediction: Prediction, context: Context) -> RuleState:
        probs, best = probs_of(prediction), prediction.topk_ids[..., 0]
        changed = state["token"] != best if self.reject is None else js(probs, state["last"]) > self.reject
        return {"last": probs, "token": best, "jumped": changed & (state["token"] >= 0)}

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Tensor:
        soft = Slerp(self.k, self.lam)(prediction, embeddings, context)
        return torch.where(context.state["jumped"].unsqueeze(-1), embeddings.mask, soft)


@dataclass(frozen=True)
class Warm:
    """LRD's first phase with a fixed length: nothing is committed in the first passes."""

    then: Any = field(default_factory=lambda: TopN(8))
    passes: int = 1

    @property
    def may_wait(self) -> int:
        return self.passes

    def __call__(self, prediction: Prediction, open: Tensor, context: Context) -> Tensor:
        late = replace(context, block_passes=(context.block_passes - self.passes).clamp(min=0))
        return self.then(prediction, open, late) & (context.passes >= self.passes)


@dataclass(frozen=True)
class Discount:
    """Soft positions count as less sure than they say: their entropy is multiplied by `factor`."""

    then: Any = field(default_factory=lambda: EntropyBound(0.1))
    factor: float = 3.0

    def __call__(self, prediction: Prediction, open: Tensor, context: Context) -> Tensor:
        factor = torch.where(context.soft, self.factor, 1.0)
        sure = prediction.log_confidence * factor
        return self.then(replace(prediction, entropy=prediction.entropy * factor, log_confidence=sure), open, context)


@dataclass(frozen=True)
class Agreed:
    """Only positions whose token is that of the last pass; one of the two passes saw them hard. At least one."""

    then: Any = field(default_factory=lambda: EntropyBound(0.1))

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
        nothing = torch.full((rows, length), -1, device=device)
        return {"token": nothing, "same": torch.zeros(rows, length, dtype=torch.bool, device=device)}

    def update(self, state: RuleState, prediction: Prediction, context: Context) -> RuleState:
        return {"token": prediction.token, "same": prediction.token == state["token"]}

    def __call__(self, prediction: Prediction, open: Tensor, context: Context) -> Tensor:
        ready = open & (context.state["same"] | (context.passes == 0))
        return self.then(prediction, torch.where(ready.any(1, keepdim=True), ready, open), context)


@dataclass(frozen=True)
class Doubted:
    """Of the last two passes, the larger entropy counts: one of them was made without the position's own guess."""

    then: Any = field(default_factory=lambda: EntropyBound(0.1))

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
        return {"last": torch.zeros(rows, length, device=device), "entropy": torch.zeros(rows, length, device=device)}

    def update(self, state: RuleState, prediction: Prediction, context: Context) -> RuleState:
        now = prediction.entropy.float()
        return {"last": now, "entropy": torch.maximum(now, state["last"])}

    def __call__(self, prediction: Prediction, open: Tensor, context: Context) -> Tensor:
        doubted = context.state["entropy"].to(prediction.entropy.dtype)
        return self.then(replace(prediction, entropy=doubted), open, context)


@dataclass(frozen=True)
class GrowingBound:
    """An entropy bound that is strict in the first passes, when soft tokens know least: gamma min(1, passes / over)."""

    gamma: float = 0.1
    over: int = 4

    def __call__(self, prediction: Prediction, open: Tensor, context: Context) -> Tensor:
        share = ((context.passes + 1) / self.over).clamp(max=1.0)
        loose = EntropyBound(self.gamma)(replace(prediction, entropy=prediction.entropy / share), open, context)
        return loose | (open & (places(prediction, open, "entropy") == 0))
