"""Table 8: the measurement of Table 4 on spans of the model's own completions (appendix D.4)."""

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
"""The methods whose best tokens form the support S_r; other rules are measured on the same support."""


@dataclass(frozen=True)
class Completion:
    """A prompt and the model's answer to it, as ids."""

    task: str
    item: str
    prompt: Sequence[int]
    answer: Sequence[int]
    """The answer up to EOS, without EOS."""
    tail: Sequence[int] = ()
    """Tokens after the answer that stay visible: the EOS that ended it."""


@dataclass(frozen=True)
class CompletionRow:
    """One completion: length, start and support size of each span, and for each rule its divergence on each span."""

    task: str
    item: str
    lengths: list[int]
    starts: list[int]
    support: list[int]
    reverse_kl: dict[str, list[float]]


@dataclass(frozen=True)
class CompletionSummary:
    """One task and rule: mean reverse KL over the spans of a completion, then over completions, in nats."""

    task: str
    rule: str
    reverse_kl: float | None
    completions: int
    spans: int
    too_short: int
    """Completions shorter than every span."""


def measure_completion(
    model: Denoiser, completion: Completion, rules: Rules, *, support: Collection[str] = SUPPORT, top: int = TOP
) -> CompletionRow:
    """Conditional reverse KL of every rule on each span; `rules` must include those named in `support`."""
    special = special_ids(model)
    spans = list(spans_of(completion, model.mask_id))
    reverse_kl: dict[str, list[float]] = {name: [] for name in rules}
    sizes = []
    for span in spans:
        _, found = parallel(model, span, rules)
        beam = confident_beam(model, span, special, top)
        answers = shared_support([found[name] for name in support], beam, special, top)
        reference = confidence_ordered(model, span, answers)
        sizes.append(len(answers))
        for name, log_probs in found.items():
            reverse_kl[name].append(conditional_reverse_kl(factorised(log_probs, answers), reference))
    starts = [span.places[0] - len(completion.prompt) for span in spans]
    return CompletionRow(
        completion.task, completion.item, [len(span.places) for span in spans], starts, sizes, reverse_kl
    )


def spans_of(completion: Completion, mask_id: int) -> Iterator[Span]:
    """Spans of each length at `PLACES` evenly spaced starts; without lengths that do not fit and repeated starts."""
    ids = [*completion.prompt, *completion.answer, *completion.tail]
    for length in LENGTHS:
        room = len(completion.answer) - length
        starts = [(room + 1) * (place + 1) // (PLACES + 1) for place in range(PLACES)] if room >= 0 else []
        for start in dict.fromkeys(starts):
            yield Span.inside(ids, len(completion.prompt) + start, length, mask_id)


def shared_support(
    log_probs: Sequence[Float[Tensor, "M V"]], beam: Sequence[Answer], special: Bool[Tensor, "V"], top: int
) -> list[Answer]:
    """S_r: all combinations of each method's r best ordinary tokens per position, plus the beam, without repeats."""
    best = [scores.masked_fill(special, float("-inf")).topk(top).indices.tolist() for scores in log_probs]
    products = (answer for tokens in best for answer in product(*tokens))
    return list(dict.fromkeys([*products, *beam]))


def confident_beam(
    model: Denoiser, span: Span, special: Bool[Tensor, "V"], top: int, batch_size: int = BATCH
) -> list[Answer]:
    """Beam search that fills the most confident position first: `top` ordinary tokens per branch, beam width top^2."""
    beam: dict[Filling, float] = {span.open: 0.0}
    for _ in span.places:
        grown = {}
        for (filling, score), (index, log_probs) in zip(
            beam.items(), _most_confident(model, span, list(beam), batch_size), strict=True
        ):
            best = log_probs.masked_fill(special, float("-inf")).topk(top)
            for token, log_p in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                grown[put(filling, index, token)] = score + log_p
        beam = dict(sorted(grown.items(), key=lambda item: -item[1])[: top**2])
    return [tuple(token for token in filling if token is not None) for filling in beam]


def confidence_ordered(
    model: Denoiser, span: Span, answers: Sequence[Answer], batch_size: int = BATCH
) -> Float[Tensor, "C"]:
    """log q_seq: fill in each answer one position at a time, the most confident first; equal contexts share passes."""
    scores = dict.fromkeys(answers, 0.0)
    groups: dict[Filling, list[Answer]] = {span.open: list(scores)}
    for _ in span.places:
        grown: dict[Filling, list[Answer]] = defaultdict(list)
        for (filling, members), (index, log_probs) in zip(
            groups.items(), _most_confident(model, span, list(groups), batch_size), strict=True
        ):
            gained = log_probs[[answer[index] for answer in members]].tolist()
            for answer, log_p in zip(members, gained, strict=True):
                scores[answer] += log_p
                grown[put(filling, index, answer[index])].append(answer)
        groups = grown
    return torch.tensor([scores[answer] for answer in answers], dtype=torch.float64, device=model.device)


def _most_confident(
    model: Denoiser, span: Span, fillings: Sequence[Filling], batch_size: int
) -> Iterator[tuple[int, Float[Tensor, "V"]]]:
    """For each filling, the open position with the highest maximum probability, and its distribution.

    Ties go to the leftmost position. The probability of [MASK] does not count, as in decoding.
    """
    for filling, log_probs in zip(fillings, hard(model, span, fillings, batch_size), strict=True):
        sure = log_probs.index_fill(1, torch.tensor([model.mask_id], device=model.device), float("-inf")).amax(1)
        highest = sure.tolist()
        index = max((index for index, token in enumerate(filling) if token is None), key=lambda index: highest[index])
        yield index, log_probs[index]


def special_ids(model: Denoiser) -> Bool[Tensor, "V"]:
    """True at [MASK], EOS ids, the tokenizer's special tokens, and rows beyond the tokenizer's vocabulary."""
    special = torch.zeros(len(model.embedding), dtype=torch.bool)
    special[[model.mask_id, *model.eos_ids]] = True
    if model.tokenizer is not None:
        added = [token for token, word in model.tokenizer.added_tokens_decoder.items() if word.special]
        special[[token for token in (*added, *model.tokenizer.all_special_ids) if token < len(special)]] = True
        special[len(model.tokenizer) :] = True
    return special.to(model.device)


def summarise(rows: Sequence[CompletionRow]) -> list[CompletionSummary]:
    return [
        CompletionSummary(
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
