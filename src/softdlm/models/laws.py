"""The laws that every Denoiser must keep, each a function of a model and the rows that it is tried on.

A law returns why it is broken, or None. Its docstring says what must hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.models.denoiser import Denoiser
from softdlm.models.kv_memory import Window

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Largest difference, as a share of the largest logit, that counts as rounding."""
COARSE = 3e-2
"""The same for narrower types."""
LEAST = 12
"""Positions of a row that is tried; under block-causal attention it has two blocks."""


class Trial:
    """A model and the rows that it is tried on; nothing in them depends on the ids that are under trial."""

    def __init__(self, model: Denoiser) -> None:
        self.model = model

    @cached_property
    def block(self) -> int | None:
        """Of block-causal attention; None is full attention."""
        try:
            return self.model.attention_block(None)
        except UsageError:
            return self.model.attention_block(LEAST // 2)

    @cached_property
    def ids(self) -> Int[Tensor, "2 L"]:
        length, size = max(LEAST, 2 * (self.block or 0)), len(self.model.embedding)
        special = {self.model.mask_id, *self.model.eos_ids}
        plain = torch.tensor([each for each in range(size) if each not in special] or [0])
        drawn = torch.randint(len(plain), (2, length), generator=torch.Generator().manual_seed(5))
        return plain[drawn].to(self.model.device)

    @cached_property
    def other(self) -> Int[Tensor, "2 L"]:
        """Another token at every position."""
        size = len(self.model.embedding)
        moved = (self.ids + size // 2 + 1) % size
        return torch.where(moved == self.ids, (self.ids + 1) % size, moved)

    @cached_property
    def logits(self) -> Float[Tensor, "2 L V"]:
        return self.passed(self.ids)

    def passed(self, ids: Int[Tensor, "B L"], real: Tensor | None = None) -> Float[Tensor, "B L V"]:
        return self.model.logits(ids, attention_mask=real, block_length=self.block)

    def with_other(self, place: int) -> Float[Tensor, "2 L V"]:
        """Logits after the token at one position was replaced."""
        ids = self.ids.clone()
        ids[:, place] = self.other[:, place]
        return self.passed(ids)

    def differ(self, found: Tensor, expected: Tensor) -> float | None:
        """The largest difference if it is more than rounding."""
        gap, scale = (found - expected).abs().max().item(), 1 + expected.abs().max().item()
        if not math.isfinite(gap):
            return math.inf
        return None if gap <= TOLERANCE.get(self.model.dtype, COARSE) * scale else gap


def table(trial: Trial) -> str | None:
    """the embedding table is V x D, floating-point and finite, and its [MASK] row is not zero"""
    rows = trial.model.embedding
    if rows.ndim != 2 or not rows.is_floating_point():
        return f"the table is {rows.dtype} {list(rows.shape)}; it must be floating-point with two dimensions"
    if not rows.isfinite().all():
        return "the table holds values that are not finite"
    inside = 0 <= trial.model.mask_id < len(rows)
    return (
        "the [MASK] row is zero: a soft token has no direction to turn from"
        if inside and not rows[trial.model.mask_id].any()
        else None
    )


def mask_id(trial: Trial) -> str | None:
    """[MASK] is an id of the table, does not end a text, and is the tokenizer's"""
    model = trial.model
    if type(model.mask_id) is not int or not 0 <= model.mask_id < len(model.embedding):
        return f"mask_id {model.mask_id!r} is no row of a table of {len(model.embedding)}"
    if model.mask_id in model.eos_ids:
        return f"mask_id {model.mask_id} is one of the EOS ids {list(model.eos_ids)}"
    declared = getattr(model.tokenizer, "mask_token_id", None)
    return (
        f"mask_id is {model.mask_id}, the tokenizer's [MASK] is {declared}"
        if declared not in (None, model.mask_id)
        else None
    )


def eos_ids(trial: Trial) -> str | None:
    """EOS ids are different rows of the table, the tokenizer's among them"""
    model = trial.model
    if wrong := [each for each in model.eos_ids if type(each) is not int or not 0 <= each < len(model.embedding)]:
        return f"EOS ids {wrong} are no rows of a table of {len(model.embedding)}"
    if len(set(model.eos_ids)) < len(model.eos_ids):
        return f"EOS ids {list(model.eos_ids)} name one twice"
    declared = getattr(model.tokenizer, "eos_token_id", None)
    return (
        f"the tokenizer's EOS {declared} is not among {list(model.eos_ids)}"
        if declared not in (None, *model.eos_ids)
        else None
    )


def shape(trial: Trial) -> str | None:
    """logits have a row for each position and a column for each row of the table"""
    expected = (*trial.ids.shape, len(trial.model.embedding))
    found = tuple(trial.logits.shape)
    return None if found == expected else f"logits are {list(found)}; they must be {list(expected)}"


def finite(trial: Trial) -> str | None:
    """logits are finite"""
    return None if trial.logits.isfinite().all() else "some logits are NaN or infinite"


def repeatable(trial: Trial) -> str | None:
    """the same pass gives the same logits"""
    gap = trial.differ(trial.passed(trial.ids), trial.logits)
    return None if gap is None else f"logits differ by {gap:.2g} from one pass to the next: is dropout on?"


def embeddings(trial: Trial) -> str | None:
    """embeddings in give what ids in give"""
    embeds = trial.model.embedding[trial.ids]
    gap = trial.differ(trial.model.logits(embeds=embeds, block_length=trial.block), trial.logits)
    return None if gap is None else f"rows of the table as input differ by {gap:.2g} from their ids as input"


def head(trial: Trial) -> str | None:
    """the head reads each state by itself"""
    model = trial.model
    states = model.hidden(model.embed(trial.ids), block_length=trial.block).flatten(0, 1)
    gap = trial.differ(model.head(states[1::3]), model.head(states)[1::3])
    return None if gap is None else f"the head of some states differs by {gap:.2g} from the head of all"


def attention(trial: Trial) -> str | None:
    """every position sees those before and after it, under block-causal attention those of its block and before"""
    length, block, first = trial.ids.shape[1], trial.block, trial.model.first_open
    end = (block or length) - 1
    if trial.with_other(end)[:, first].equal(trial.logits[:, first]):
        return f"position {first} does not see position {end} behind it: is the network causal?"
    if trial.with_other(0)[:, -1].equal(trial.logits[:, -1]):
        return f"position {length - 1} does not see position 0"
    if block and (gap := trial.differ(trial.with_other(length - 1)[:, : end + 1], trial.logits[:, : end + 1])):
        return f"the first block of {block} sees a later one (difference {gap:.2g})"
    return None


def padding(trial: Trial) -> str | None:
    """padding on either side changes nothing"""
    width = 3
    for side in ("right", "left"):
        parts = [trial.ids, trial.other[:, :width]]
        ids = torch.cat(parts if side == "right" else parts[::-1], 1)
        where = slice(0, -width) if side == "right" else slice(width, None)
        real = torch.zeros_like(ids, dtype=torch.bool)
        real[:, where] = True
        back = trial.model.first_open
        gap = trial.differ(trial.passed(ids, real)[:, where][:, back:], trial.logits[:, back:])
        if gap:
            return f"padding on the {side} changes logits by {gap:.2g}"
    return None


def batch(trial: Trial) -> str | None:
    """a row gives the same alone, in a batch, and in any order"""
    if gap := trial.differ(trial.passed(trial.ids[:1]), trial.logits[:1]):
        return f"a row alone differs by {gap:.2g} from the row in a batch"
    gap = trial.differ(trial.passed(trial.ids.flip(0)), trial.logits.flip(0))
    return None if gap is None else f"another order of rows changes logits by {gap:.2g}"


def alignment(trial: Trial) -> str | None:
    """the row at j comes from the state that predicts j: at j, or with first_open = 1 at j - 1"""
    shift, length = trial.model.first_open, trial.ids.shape[1]
    offsets: Counter[int] = Counter()
    for place in range(1, length - 2):
        moved = (trial.with_other(place) - trial.logits).float().norm(dim=-1)
        offsets.update((moved.argmax(1) - place).tolist())
    (most, count), total = offsets.most_common(1)[0], sum(offsets.values())
    if most == shift or 2 * count <= total:
        return None  # or nothing in the model ties a row to one position, as in a table of probabilities
    return f"a token at j moves most the row at j {most:+d}, which first_open = {shift} says is that at j {shift:+d}"


def caches(trial: Trial) -> str | None:
    """passes with remembered keys and values give what whole passes give, where the model has them"""
    model, (rows, length) = trial.model, trial.ids.shape
    try:
        memory = model.memory(rows, length)
    except UsageError:
        return None
    every, half = torch.arange(length, device=model.device), length // 2
    numbers, places = torch.arange(rows, device=model.device), every.expand(rows, -1)
    embeds = model.embed(trial.ids)
    whole = model.hidden(embeds, block_length=trial.block)
    window = Window(numbers, every, places, places, None)
    sight = {"position_ids": places, "block_length": trial.block}
    if gap := trial.differ(model.hidden_in(window, memory, embeds, **sight), whole):
        return f"a whole pass that stores keys and values differs by {gap:.2g}"
    part = Window(
        numbers, every, places[:, half:], places[:, half:], torch.ones_like(places[:, half:], dtype=torch.bool)
    )
    found, back = model.hidden_in(part, memory, embeds[:, half:], **sight), model.first_open
    gap = trial.differ(found[:, back:], whole[:, half + back :])
    return (
        None if gap is None else f"a pass over the second half with keys and values of the first differs by {gap:.2g}"
    )


LAWS: dict[str, Callable[[Trial], str | None]] = {
    each.__name__.replace("_", " "): each
    for each in (
        table,
        mask_id,
        eos_ids,
        shape,
        finite,
        repeatable,
        embeddings,
        head,
        attention,
        padding,
        batch,
        alignment,
        caches,
    )
}
"""In the order in which they are tried."""
FIRST = ("shape", "finite", "repeatable")
"""Laws that the later ones rest on: where one is broken, those are not tried."""
