"""Beyond the paper: does a soft token mislead the position that it stands at?

At a state met while decoding, open positions are predicted from four inputs: every open position [MASK] (`hard`), only
the position itself soft (`own`), only the others soft (`neighbours`), all of them soft (`both`, as in the paper). Each
prediction has a confidence and is right or not, so that the four can be compared as calibration does.

The truth of a state is what one-at-a-time decoding from [MASK]s makes of it, and only states count of which it makes a
right answer: an answer has many right wordings, and a state is on its way to one of them.

Dimensions in addition to those of softdlm.types: M positions that are asked at, R rows, Q pairs of row and position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softdlm.analysis.calibration import Calibration, Seen, calibration, joined
from softdlm.analysis.questions import Question, decode
from softdlm.analysis.spans import BATCH, Rules
from softdlm.analysis.states import Ending, Scorer, State, completed, open_places, states_of
from softdlm.decoding import Decoding
from softdlm.errors import UsageError
from softdlm.models.denoiser import Denoiser
from softdlm.predict import Sampling, reduce_logits
from softdlm.registry import needs_of
from softdlm.threads import map_parts, rows_apart
from softdlm.types import Context, Embeddings, Prediction, Stateful, ids_on

INPUTS = ("hard", "own", "neighbours", "both")
STATES = 2
POSITIONS = 6


@dataclass(frozen=True)
class ReliabilityRow:
    """One state of an item's decode."""

    task: str
    item: str
    passes: int | None
    """Passes made before the state; None if the decode was too short to have another state."""
    solved: bool
    """Whether one-at-a-time decoding makes a right answer of the state; only then predictions have a truth."""
    places: list[int]
    """The open positions that were looked at, counted from the start of the answer."""
    seen: dict[str, dict[str, Seen]]
    """By rule and input: the prediction at each of the places."""


@dataclass(frozen=True)
class ReliabilitySummary:
    """One task, rule and input, over all places of all states that count."""

    task: str
    rule: str
    input: str
    states: int
    """States that count."""
    met: int
    """States in all."""
    calibration: Calibration


def check(rules: Rules, decoding: Decoding) -> None:
    """What this measure cannot look at."""
    if decoding.temperature:
        raise UsageError(f"reliability looks at likeliest tokens: use temperature 0, not {decoding.temperature}")
    if decoding.block_length is not None or decoding.cache is not None:
        raise UsageError("reliability looks at decodes in one block: leave out block_length and cache")
    if more := [name for name, rule in rules.items() if isinstance(rule, Stateful)]:
        raise UsageError(f"reliability gives rules no memory and no turns: leave out {', '.join(more)}")


def measure_reliability(
    model: Denoiser,
    batch: Sequence[Question],
    rules: Rules,
    decoding: Decoding,
    score: Scorer,
    *,
    states: int = STATES,
    positions: int = POSITIONS,
) -> Iterator[ReliabilityRow]:
    """For each question `states` rows: decode it, take it up at as many passes, complete these states, look at them.

    The seed of the Decoding chooses the passes, and at most `positions` open positions of each state.
    """
    check(rules, decoding)
    settled = decoding.settled(model.own)
    made = decode(model, batch, settled)
    groups = [states_of(each.trace, states, _random(settled, item)) for item, each in zip(batch, made, strict=True)]
    asked = [question for question, group in zip(batch, groups, strict=True) for _ in group]
    endings = iter(completed(model, asked, [state for group in groups for state in group], settled, score))
    for question, group in zip(batch, groups, strict=True):
        for _ in group:
            yield _row(model, question, next(endings), rules, settled, positions)
        for _ in range(states - len(group)):
            yield ReliabilityRow(question.task, question.item, None, False, [], _nothing(rules))


def look(
    model: Denoiser, ending: Ending, places: Sequence[int], rules: Rules, settled: Decoding
) -> dict[str, dict[str, Seen]]:
    """By rule and input, the prediction at each place held against the token that it ends with.

    Distributions are the model's own, without temperature; soft tokens are made of those of the hard input.
    """
    sampling = Sampling(
        model.mask_id,
        forbid=settled.token_policy(model)["forbid"],
        k=max(1, *(rule.k for rule in rules.values())),
        needs=needs_of(rules.values()),
    )
    ids = torch.tensor(ending.state.ids, device=model.device)
    open, asked = (ids == model.mask_id).nonzero().flatten(), torch.tensor(places, device=model.device)
    canvas, truth = model.embed(ids[None]), torch.tensor(ending.ids, device=model.device)[asked]
    first = predict_at(model, canvas, torch.zeros_like(open), open, sampling)
    context = replace(
        _context(ending.state, open), ends=torch.isin(first.topk_ids[:, 0], ids_on(ids.device, model.eos_ids))
    )
    embeddings = Embeddings(model.embedding, model.embedding[model.mask_id])
    found = {}
    for name, rule in rules.items():
        embeds = four_inputs(canvas, open, asked, rule(first, embeddings, context), embeddings.mask)
        made = predict_at(model, embeds, *_queries(asked), sampling)
        confidence, right = made.confidence.tolist(), (made.token == truth.repeat(len(INPUTS))).tolist()
        parts = [slice(start, start + len(places)) for start in range(0, len(right), len(places))]
        found[name] = {each: Seen(confidence[part], right[part]) for each, part in zip(INPUTS, parts, strict=True)}
    return found


def four_inputs(
    canvas: Float[Tensor, "1 L D"],
    open: Int[Tensor, "N"],
    asked: Int[Tensor, "M"],
    soft: Float[Tensor, "N D"],
    mask: Float[Tensor, "D"],
) -> Float[Tensor, "R L D"]:
    """One row `hard`, a row for each asked position `own`, as many `neighbours`, and one row `both`."""
    own = asked[:, None] == open
    none = torch.zeros_like(own[:1])
    fed = torch.cat([none, own, ~own, ~none])
    rows = canvas.repeat(len(fed), 1, 1)
    rows[:, open] = torch.where(fed[..., None], soft, mask)
    return rows


def _queries(asked: Int[Tensor, "M"]) -> tuple[Int[Tensor, "Q"], Int[Tensor, "Q"]]:
    """For each of the inputs and asked positions, the row of `four_inputs` and the position on it."""
    each = torch.arange(len(asked), device=asked.device)
    first, last = torch.zeros_like(each), torch.full_like(each, 2 * len(each) + 1)
    return torch.cat([first, 1 + each, 1 + len(each) + each, last]), asked.repeat(len(INPUTS))


@torch.no_grad()
def predict_at(
    model: Denoiser,
    embeds: Float[Tensor, "R L D"],
    rows: Int[Tensor, "Q"],
    places: Int[Tensor, "Q"],
    sampling: Sampling,
) -> Prediction:
    """What the model says at places of rows, with the attention of decoding in one block.

    A CPU computes each row by itself, so that equal rows give equal bits.
    """

    def part(some: Float[Tensor, "B L D"]) -> Float[Tensor, "B L H"]:
        return model.hidden(some, block_length=model.attention_block(None))

    apart = rows_apart(embeds.device)
    parts = embeds.split(1 if apart else BATCH)
    hidden = torch.cat(map_parts(part, parts) if apart else [part(each) for each in parts])
    return reduce_logits(
        model.head(hidden[rows, places]), sampling, table=model.embedding if "mean" in sampling.needs else None
    )


def _row(
    model: Denoiser, question: Question, ending: Ending, rules: Rules, settled: Decoding, positions: int
) -> ReliabilityRow:
    state = ending.state
    open = open_places(model, ending) if ending.solved else []
    chosen = sorted(_random(settled, question, state.passes).sample(open, min(positions, len(open))))
    seen = look(model, ending, chosen, rules, settled) if chosen else _nothing(rules)
    within = [place - state.prompt for place in chosen]
    return ReliabilityRow(question.task, question.item, state.passes, ending.solved, within, seen)


def _nothing(rules: Rules) -> dict[str, dict[str, Seen]]:
    return {name: {each: Seen([], []) for each in INPUTS} for name in rules}


def _random(settled: Decoding, question: Question, *more: int) -> Random:
    """Draws that depend on the seed and the item only, so that a batch or a resumed run changes none."""
    return Random("/".join(map(str, [settled.seed, question.item, *more])))


def _context(state: State, open: Int[Tensor, "N"]) -> Context:
    """What a rule knows after a pass over the state."""
    passes, length, left = (
        torch.full_like(open, value) for value in (state.passes, len(state.ids) - state.prompt, len(open))
    )
    whole = torch.ones_like(open, dtype=torch.bool)
    return Context(passes, passes, length, length, left, index=open - state.prompt, soft=~whole, in_block=whole)


def summarise(rows: Sequence[ReliabilityRow]) -> list[ReliabilitySummary]:
    return [
        _summary([row for row in rows if row.task == task], rule, each)
        for task in dict.fromkeys(row.task for row in rows)
        for rule in rows[0].seen
        for each in INPUTS
    ]


def _summary(rows: Sequence[ReliabilityRow], rule: str, each: str) -> ReliabilitySummary:
    numbers = calibration(joined([row.seen[rule][each] for row in rows]))
    met = [row for row in rows if row.passes is not None]
    return ReliabilitySummary(rows[0].task, rule, each, sum(row.solved for row in met), len(met), numbers)
