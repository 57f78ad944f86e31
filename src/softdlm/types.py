"""The records that flow through a decode. Start reading here.

Shapes, the same letters everywhere:
    B  rows of a batch          L  positions of a canvas      V  vocabulary
    K  candidates kept          D  embedding width            N  open positions, flattened
`*S` stands for "any positions": a whole canvas ("B L") or a flat selection of it ("N").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from softdlm.errors import UsageError


def row_positions(real: Bool[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """Positions that count from each row's first real token; padding repeats its neighbour's."""
    return (real.long().cumsum(1) - 1).clamp(min=0)


@cache
def ids_on(device: torch.device, ids: tuple[int, ...]) -> Int[Tensor, "_"]:
    """Token ids as a tensor, made once: a copy to a GPU waits, and may not happen inside a captured graph."""
    return torch.tensor(ids, dtype=torch.long, device=device)


@dataclass(frozen=True)
class Canvas:
    """Prompt and answer as one row of ids; open positions hold [MASK] until they are committed."""

    ids: Int[Tensor, "B L"]
    open: Bool[Tensor, "B L"]
    free: Bool[Tensor, "B L"]
    """Positions that were open at the start: the answer, as against the prompt and the padding."""
    real: Bool[Tensor, "B L"]
    """False at padding."""

    @staticmethod
    def of(ids: Int[Tensor, "B L"], mask_id: int, real: Bool[Tensor, "B L"] | None = None) -> Canvas:
        """A canvas whose open positions are the [MASK]s already in `ids`."""
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
        open = (ids == mask_id) & real
        return Canvas(ids, open, open.clone(), real)

    @staticmethod
    def pack(prompts: Sequence[Sequence[int]], lengths: Sequence[int], mask_id: int, pad_id: int) -> Canvas:
        """Row i is prompts[i] followed by [MASK]s up to lengths[i], then padding.

        Padding stands on the right, so that each row's positions (and LLaDA-2's blocks) count from its own 0.
        """
        for prompt, length in zip(prompts, lengths, strict=True):
            if length <= len(prompt):
                raise UsageError(f"canvas length {length} leaves no room after a prompt of {len(prompt)} tokens")
        rows = [[*prompt, *[mask_id] * (length - len(prompt))] for prompt, length in zip(prompts, lengths, strict=True)]
        return Canvas.rows(rows, mask_id, pad_id)

    @staticmethod
    def rows(rows: Sequence[Sequence[int]], mask_id: int, pad_id: int) -> Canvas:
        """Whole canvases, open where they hold [MASK], padded on the right to one length."""
        ids = torch.full((len(rows), max(map(len, rows))), pad_id, dtype=torch.long)
        real = torch.zeros_like(ids, dtype=torch.bool)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(list(row), dtype=torch.long)
            real[number, : len(row)] = True
        return Canvas.of(ids, mask_id, real)

    @property
    def positions(self) -> Int[Tensor, "B L"]:
        return row_positions(self.real)

    def commit(self, chosen: Bool[Tensor, "B L"], tokens: Int[Tensor, "B L"]) -> Canvas:
        return dataclasses.replace(self, ids=torch.where(chosen, tokens, self.ids), open=self.open & ~chosen)

    def widen(self, length: int, pad_id: int) -> Canvas:
        """Padded on the right up to this length."""
        extra = (0, length - self.ids.shape[1])
        return Canvas(pad(self.ids, extra, value=pad_id), *(pad(x, extra) for x in (self.open, self.free, self.real)))

    def to(self, device: torch.device | str) -> Canvas:
        return Canvas(*(getattr(self, field.name).to(device) for field in dataclasses.fields(self)))


@dataclass(frozen=True)
class Prediction:
    """What one forward pass says about the requested positions; elsewhere `token` is -1.

    Confidence is kept as a logarithm and margin as its distance from 1, so that values that round to 1 in
    float32 still have an order.
    """

    token: Int[Tensor, "*S"]
    log_confidence: Float[Tensor, "*S"]
    entropy: Float[Tensor, "*S"]
    """Nats."""
    one_minus_margin: Float[Tensor, "*S"]
    """1 - margin, margin being the probability of the best token minus that of the second."""
    topk_ids: Int[Tensor, "*S K"]
    topk_probs: Float[Tensor, "*S K"]
    """Probabilities under the full vocabulary; rules renormalise over the candidates they use."""
    mean: Float[Tensor, "*S D"] | None = None
    """Mean embedding under the full vocabulary, for rules that declare `needs = "mean"`."""
    probs: Float[Tensor, "*S V"] | None = None
    """Probabilities of the full vocabulary, 0 for [MASK] and forbidden ids; for rules with `needs = "probs"`."""

    @property
    def confidence(self) -> Float[Tensor, "*S"]:
        return self.log_confidence.exp()

    @property
    def margin(self) -> Float[Tensor, "*S"]:
        return 1 - self.one_minus_margin

    @property
    def deferred(self) -> Bool[Tensor, "*S"]:
        """Where the token is one that the token policy wants committed last."""
        return self.log_confidence.isneginf()

    def at(self, where: Bool[Tensor, "*S"] | Int[Tensor, "M"]) -> Prediction:
        """The prediction at the chosen positions, flattened; of a flat one also by number."""
        return Prediction(**{name: value[where] for name, value in self._values().items()})

    def lay(self, places: Int[Tensor, "N"], like: Bool[Tensor, "B L"], fill: bool = True) -> Prediction:
        """A flat prediction on a canvas: value n goes to the flat position places[n].

        Nothing is predicted at the others; without `fill` they hold anything, and `only` is to follow.
        """
        laid = {}
        for name, value in self._values().items():
            size = (like.numel(), *value.shape[1:])
            full = value.new_full(size, _empty(value)) if fill else value.new_empty(size)
            laid[name] = full.index_copy_(0, places, value).unflatten(0, like.shape)
        return Prediction(**laid)

    def on(self, where: Bool[Tensor, "B L"]) -> Prediction:
        """A flat prediction of the chosen positions, laid onto their canvas; the inverse of `at`."""
        return self.lay(where.flatten().nonzero().flatten(), where)

    def only(self, where: Bool[Tensor, "B L"]) -> Prediction:
        """Nothing predicted elsewhere."""
        kept = {}
        for name, value in self._values().items():
            wide = where.view(*where.shape, *[1] * (value.ndim - 2))
            kept[name] = value.where(wide, _empty(value))
        return Prediction(**kept)

    @staticmethod
    def join(parts: Sequence[Prediction]) -> Prediction:
        """Flat predictions one after another."""
        if len(parts) == 1:
            return parts[0]
        return Prediction(**{name: torch.cat([part._values()[name] for part in parts]) for name in parts[0]._values()})

    def _values(self) -> dict[str, Tensor]:
        return {name: value for name in PREDICTED if (value := getattr(self, name)) is not None}


PREDICTED = tuple(each.name for each in fields(Prediction))
"""Names of a prediction's values: torch 2.11 cannot compile a loop over `vars`."""


@dataclass(frozen=True)
class Embeddings:
    """What a feedback rule may know of the model: its input table and the [MASK] row of it."""

    table: Float[Tensor, "V D"]
    mask: Float[Tensor, "D"]


RuleState = dict[str, Tensor]
"""The memory of one rule: tensors "B L ..." (a value per position) or "B 1 ..." (a value per row)."""


@dataclass(frozen=True)
class Context:
    """What a rule may know besides the prediction. Values per row are "B 1" and broadcast against positions.

    Feedback rules are called on a flat selection of positions; there every value has the shape "N".
    """

    passes: Int[Tensor, "*S"]
    """Forward passes of the row before this one."""
    block_passes: Int[Tensor, "*S"]
    """Forward passes of the row within the current block, before this one."""
    block_length: Int[Tensor, "*S"]
    """Positions of the current block, those of the prompt included where blocks count from position 0."""
    block_masks: Int[Tensor, "*S"]
    """[MASK]s at the start of the current block."""
    left: Int[Tensor, "*S"]
    """[MASK]s left in the current block."""
    index: Int[Tensor, "*I"] = field(default_factory=lambda: torch.tensor(0), kw_only=True)
    """Each position's index, counted from the start of the answer; negative in the prompt."""
    soft: Bool[Tensor, "*J"] = field(default_factory=lambda: torch.tensor(False), kw_only=True)
    """Whether this pass's input at the position was a soft token; a [MASK] or a committed token is not."""
    ends: Bool[Tensor, "*E"] = field(default_factory=lambda: torch.tensor(False), kw_only=True)
    """Whether the likeliest candidate at the position is an EOS id; False where nothing was predicted."""
    in_block: Bool[Tensor, "*G"] = field(default_factory=lambda: torch.tensor(True), kw_only=True)
    """Whether the position lies in the row's current block, where commits may happen."""
    state: RuleState = field(default_factory=dict, kw_only=True)
    """The memory of the rule that is called, already updated with this pass's prediction."""

    def at(self, where: Bool[Tensor, "B L"] | Int[Tensor, "N"]) -> Context:
        """The context of the chosen positions, flat: by mask, or by number on the canvas without synchronising."""
        shape = where.shape if where.dtype == torch.bool else self.index.shape
        values = {name: _chosen(value, where, shape) for name, value in vars(self).items() if name != "state"}
        return Context(**values, state={name: _chosen(value, where, shape) for name, value in self.state.items()})


@runtime_checkable
class Stateful(Protocol):
    """A rule with a memory. The loop keeps the memory per row; the rule itself stays a frozen value.

    In each pass the loop calls `update` first, keeps its result where the row took part and the position was predicted,
    and then calls the rule with the new memory in `context.state`.
    """

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
        """The memory before the first pass; it keeps these shapes and types.

        The device may be "meta", where tensors have a size and no content: so memory is counted before it is made.
        """
        ...

    def update(self, state: RuleState, prediction: Prediction, context: Context) -> RuleState:
        """The next memory, from "B L" predictions; values at positions that were not predicted are ignored."""
        ...


def first_memory(rule: Any, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
    """A rule's memory before the first pass; empty where it has none."""
    return rule.init(rows, length, device, vocabulary) if isinstance(rule, Stateful) else {}


@dataclass(frozen=True)
class Step:
    """One forward pass. Traces, streaming, displays, analyses and tests read Steps and nothing else."""

    index: int
    """Counts from 1."""
    canvas: Canvas
    """After this pass's commits."""
    prediction: Prediction
    """"B L", at the positions of `requested`."""
    requested: Bool[Tensor, "B L"]
    """Open positions that this pass predicted."""
    active: Bool[Tensor, "B L"]
    """Of these, the ones in the row's current block, where commits may happen."""
    committed: Bool[Tensor, "B L"]
    context: Context

    @property
    def running(self) -> Bool[Tensor, "B"]:
        """Rows that took part in this pass."""
        return self.active.any(1)

    @property
    def block_closed(self) -> Bool[Tensor, "B"]:
        return ~(self.active & ~self.committed).any(1)


def _chosen(value: Tensor, where: Tensor, shape: Sequence[int]) -> Tensor:
    """The values of some positions, by mask or by number; `value` has a size for rows and one for positions, or 1."""
    whole = value.expand(*shape, *value.shape[2:])
    return whole[where] if where.dtype == torch.bool else whole.flatten(0, 1)[where]


def _empty(value: Tensor) -> float:
    """What stands where nothing was predicted."""
    return -1 if value.dtype == torch.long else float("nan")
