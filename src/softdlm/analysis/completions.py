"""Table 8: the comparison of Table 4 on spans of the model's own completions (appendix D.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from softdlm.analysis.divergence import conditional_reverse_kl
from softdlm.analysis.spans import BATCH, Answer, Filling, Rules, Span, factorised, hard, parallel, put
from softdlm.models.denoiser import Denoiser

LENGTHS = (2, 3, 4)
PLACES = 2
TOP = 4
SUPPORT = ("vanilla", "euclidean", "slerp")
"""The three methods whose best tokens make up the support; other rules are measured on it too."""


@dataclass(frozen=True)
class Completion:
    """A prompt and the model's answer to it, in ids."""

    task: str
    item: str
    prompt: Sequence[int]
    answer: Sequence[int]
    """Up to EOS, without it."""
    tail: Sequence[int] = ()
    """What follows the answer and stays visible: the EOS that ended it."""


@dataclass(frozen=True)
class Row:
    """One completion: length, place and support of each span, and per rule the divergence on it."""

    task: str
    item: str
    lengths: list[int]
    starts: list[int]
    support: list[int]
    reverse_kl: dict[str, list[float]]


@dataclass(frozen=True)
class Summary:
    """Mean over the spans of a completion, then over completions, in nats."""

    task: str
    rule: str
    reverse_kl: float | None
    completions: int
    spans: int
    too_short: int
    """Completions without room for any span."""


def measure(
    model: Denoiser,
    completion: Completion,
    rules: Rules,
    *,
    support: Collection[str] = SUPPORT,
    top: int = TOP,
    batch_size: int = BATCH,
) -> Row:
    """`rules` must hold those named in `support`."""
    special = special_ids(model)
    spans = list(spans_of(completion, model.mask_id))
    reverse_kl: dict[str, list[float]] = {name: [] for name in rules}
    sizes = []
    for span in spans:
        _, found = parallel(model, span, rules)
        beam = confident_beam(model, span, special, top, batch_size)
        answers = shared_support([found[name] for name in support], beam, special, top)
        reference = confidence_ordered(model, span, answers, batch_size)
        sizes.append(len(answers))
        for name, log_probs in found.items():
            reverse_kl[name].append(conditional_reverse_kl(factorised(log_probs, answers), reference))
    starts = [span.places[0] - len(completion.prompt) for span in spans]
    return Row(completion.task, completion.item, [len(span.places) for span in spans], starts, sizes, reverse_kl)


def spans_of(completion: Completion, mask_id: int) -> Iterator[Span]:
    """Each length at `PLACES` evenly spaced places; lengths that do not fit are left out, as are repeated places."""
    ids = [*completion.prompt, *completion.answer, *completion.tail]
    for length in LENGTHS:
        room = len(completion.answer) - length
        starts = [(room + 1) * (place + 1) // (PLACES + 1) for place in range(PLACES)] if room >= 0 else []
        for start in dict.fromkeys(starts):
            yield Span.inside(ids, len(completion.prompt) + start, length, mask_id)


def shared_support(
    log_probs: Sequence[Float[Tensor, "M V"]], beam: Sequence[Answer], special: Bool[Tensor, "V"], top: int
) -> list[Answer]:
    """S_r: the products of each method's r best ordinary tokens per position, joined with the beam, each once."""
    best = [scores.masked_fill(special, float("-inf")).topk(top).indices.tolist() for scores in log_probs]
    products = (answer for tokens in best for answer in product(*tokens))
    return list(dict.fromkeys([*products, *beam]))


def confident_beam(
    model: Denoiser, span: Span, special: Bool[Tensor, "V"], top: int, batch_size: int = BATCH
) -> list[Answer]:
    """Beam search that fills the surest position first: `top` ordinary tokens branch off, the best top^2 go on."""
    beam: dict[Filling, float] = {span.open: 0.0}
    for _ in span.places:
        grown = {}
        for (filling, score), (index, log_probs) in zip(
            beam.items(), _surest(model, span, list(beam), batch_size), strict=True
        ):
            best = log_probs.masked_fill(special, float("-inf")).topk(top)
            for token, log_p in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                grown[put(filling, index, token)] = score + log_p
        beam = dict(sorted(grown.items(), key=lambda item: -item[1])[: top**2])
    return [tuple(token for token in filling if token is not None) for filling in beam]


def confidence_ordered(
    model: Denoiser, span: Span, answers: Sequence[Answer], batch_size: int = BATCH
) -> Float[Tensor, "C"]:
    """log q_seq: fill in the answer's token at the surest position, look again; equal beginnings are computed once."""
    scores = dict.fromkeys(answers, 0.0)
    groups: dict[Filling, list[Answer]] = {span.open: list(scores)}
    for _ in span.places:
        grown: dict[Filling, list[Answer]] = defaultdict(list)
        for (filling, members), (index, log_probs) in zip(
            groups.items(), _surest(model, span, list(groups), batch_size), strict=True
        ):
            gained = log_probs[[answer[index] for answer in members]].tolist()
            for answer, log_p in zip(members, gained, strict=True):
                scores[answer] += log_p
                grown[put(filling, index, answer[index])].append(answer)
        groups = grown
    return torch.tensor([scores[answer] for answer in answers], dtype=torch.float64, device=model.device)


def _surest(
    model: Denoiser, span: Span, fillings: Sequence[Filling], batch_size: int
) -> Iterator[tuple[int, Float[Tensor, "V"]]]:
    """Per filling, the open position with the highest maximum probability, and its distribution; ties go left.

    [MASK] is no token to be sure of, as in decoding.
    """
    for filling, log_probs in zip(fillings, hard(model, span, fillings, batch_size), strict=True):
        sure = log_probs.index_fill(1, torch.tensor([model.mask_id], device=model.device), float("-inf")).amax(1)
        highest = sure.tolist()
        index = max((index for index, token in enumerate(filling) if token is None), key=lambda index: highest[index])
        yield index, log_probs[index]


def special_ids(model: Denoiser) -> Bool[Tensor, "V"]:
    """True at [MASK], ends of text, the tokenizer's special tokens and rows that its vocabulary does not reach."""
    special = torch.zeros(len(model.embedding), dtype=torch.bool)
    special[[model.mask_id, *model.eos_ids]] = True
    if model.tokenizer is not None:
        added = [token for token, word in model.tokenizer.added_tokens_decoder.items() if word.special]
        special[[token for token in (*added, *model.tokenizer.all_special_ids) if token < len(special)]] = True
        special[len(model.tokenizer) :] = True
    return special.to(model.device)


def summarise(rows: Sequence[Row]) -> list[Summary]:
    return [
        Summary(
            task,
            rule,
            fmean([fmean(row.reverse_kl[rule]) for row in long]) if long else None,
            len(long),
            sum(len(row.lengths) for row in long),
            len(mine) - len(long),
        )
        for task in dict.fromkeys(row.task for row in rows)
        for mine in [[row for row in rows if row.task == task]]
        for long in [[row for row in mine if row.lengths]]
        for rule in mine[0].reverse_kl
    ]
