"""LRD's and ReMix's soft tokens on numbers worked by hand, and in a decode."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import softdlm
from softdlm import LRD, Canvas, ReMix, SoftToken, TopN, UsageError
from softdlm.distributions import js
from softdlm.registry import build, spell, title
from softdlm.types import Context, Embeddings, Prediction, RuleState
from tests.conftest import tiny
from tests.test_batches import prompts_of, story


def seen(probs: Tensor) -> Prediction:
    """A prediction with this distribution and nothing else."""
    flat = torch.zeros(probs.shape[:-1])
    return Prediction(flat.long(), flat, flat, flat, flat.long()[..., None], flat[..., None], probs=probs)


def context_of(passes: int, in_block: Tensor, state: RuleState) -> Context:
    count = torch.full((1, 1), passes)
    return Context(*[count] * 5, index=torch.zeros_like(in_block, dtype=torch.long), in_block=in_block, state=state)


def fed(rule: Any, table: list[list[float]], *passes: list[list[float]], block: list[bool] | None = None) -> Tensor:
    """The soft tokens after these passes over one row; the table's last row is [MASK]."""
    embeddings = Embeddings(torch.tensor(table), torch.tensor(table[-1]))
    in_block = torch.tensor([block or [True] * len(passes[0])])
    state = rule.init(1, len(passes[0]), torch.device("cpu"), len(table)) if isinstance(rule, ReMix) else {}
    predictions = [seen(torch.tensor([rows])) for rows in passes]
    for number, prediction in enumerate(predictions):
        state = rule.update(state, prediction, context_of(number, in_block, state)) if state else state
    everywhere = torch.ones_like(in_block)
    context = context_of(len(passes) - 1, in_block, state).at(everywhere)
    return rule(predictions[-1].at(everywhere), embeddings, context)


LRD_TABLE = [[3.0, 0.0], [0.0, 3.0], [9.0, 9.0], [1.0, 1.0]]


def test_lrd_by_hand() -> None:
    """H(0.6, 0.3, 0.1) = 0.897946, so a = 0.2 (1 - 0.897946 / log 4) = 0.0704536; the nucleus mean is (2, 1).

    A sure position has a = r_f, a flat one a = 0.
    """
    soft = fed(LRD(r_f=0.2, p=0.8), LRD_TABLE, [[0.6, 0.3, 0.1, 0], [1, 0, 0, 0], [0.25] * 4])
    torch.testing.assert_close(soft[0], torch.tensor([1.0704536, 1.0]))
    torch.testing.assert_close(soft[1], torch.tensor([0.8 + 0.2 * 3, 0.8]))
    torch.testing.assert_close(soft[2], torch.tensor([1.0, 1.0]))


def test_lrd_reads_the_distribution_without_what_is_no_candidate() -> None:
    """Probabilities that sum to less than 1, because [MASK] took a share, give the same soft token."""
    rows = torch.tensor([0.6, 0.3, 0.1, 0])
    one, other = (fed(LRD(r_f=0.2, p=0.8), LRD_TABLE, [(rows * part).tolist()]) for part in (1, 0.3))
    torch.testing.assert_close(one, other)


REMIX_TABLE = [[4.0, 0.0], [0.0, 4.0], [8.0, 8.0], [16.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("probs", "mean"),
    [
        # share clip(1.0) = 0.9: three tokens (0.875), the rest 0.125 is [MASK]
        ([0.5, 0.25, 0.125, 0.125, 0], [3.125, 2.125]),
        # share 0.625: two tokens (0.59375)
        ([0.3125, 0.28125, 0.21875, 0.1875, 0], [1.65625, 1.53125]),
        # share 0.9 is less than the first token's own: the first in any case
        ([0.96875, 0.03125, 0, 0, 0], [3.90625, 0.03125]),
    ],
)
@pytest.mark.parametrize("mix", [0.5, 0.25, 1.0])
def test_remix_by_hand(probs: list[float], mean: list[float], mix: float) -> None:
    soft = fed(ReMix(mix=mix), REMIX_TABLE, [probs], [probs])
    torch.testing.assert_close(soft[0], (1 - mix) * torch.ones(2) + mix * torch.tensor(mean))


@pytest.mark.parametrize(
    ("probs", "weight"),
    [
        ([1 / 32] * 32 + [0], 6 / 32),  # 2 p = 1/16 is raised to 0.2: six tokens fit, seven do not
        ([0.4] + [0.006] * 100 + [0], 0.4 + 49 * 0.006),  # 0.8 has room for 67 tokens: 50 are taken
    ],
)
def test_remix_takes_at_most_so_much(probs: list[float], weight: float) -> None:
    """Every token is (11), [MASK] is (1): the mean says how much probability the tokens have."""
    soft = fed(ReMix(mix=1.0), [[11.0]] * (len(probs) - 1) + [[1.0]], [probs], [probs])
    assert soft.item() == pytest.approx(1 + 10 * weight)


SURE, OTHER = [0.875, 0.125, 0, 0, 0], [0.125, 0.875, 0, 0, 0]


def is_mask(soft: Tensor) -> list[bool]:
    return [row == [1.0, 1.0] for row in soft.tolist()]


def test_remix_sends_a_jump_back_to_mask() -> None:
    """Position 0 jumps, 1 stays, 2 jumps outside the block, where everything is [MASK] anyway."""
    first, second = [SURE, SURE, SURE], [OTHER, SURE, OTHER]
    block = [True, True, False]
    assert is_mask(fed(ReMix(), REMIX_TABLE, first, second, block=block)) == [True, False, True]
    assert is_mask(fed(ReMix(), REMIX_TABLE, first, block=block)) == [True] * 3, "the second pass of a decode is hard"
    assert is_mask(fed(ReMix(reject=0.5), REMIX_TABLE, first, second, block=block)) == [False, False, True]


def test_remix_rejects_above_the_bar_only() -> None:
    moved = js(torch.tensor(OTHER), torch.tensor(SURE)).item()
    assert is_mask(fed(ReMix(reject=moved), REMIX_TABLE, [SURE], [OTHER])) == [False]
    assert is_mask(fed(ReMix(reject=moved - 1e-6), REMIX_TABLE, [SURE], [OTHER])) == [True]


def test_a_rejected_position_forgets_as_in_the_published_code() -> None:
    """Against nothing JS is log(2) / 2 = 0.3466: with reject 0.3 [MASK] stays, with 0.35 it is over at once."""
    jump, calm = [[SURE], [OTHER]], [OTHER]
    assert is_mask(fed(ReMix(), REMIX_TABLE, *jump, calm, calm)) == [True]
    assert is_mask(fed(ReMix(forget=False), REMIX_TABLE, *jump, calm)) == [False]
    assert is_mask(fed(ReMix(reject=math.log(2) / 2 + 1e-3), REMIX_TABLE, *jump, calm)) == [False]


@pytest.mark.parametrize(
    ("family", "attention", "block_length"),
    [("llada", "auto", None), ("llada", "auto", 4), ("llada2", "block-causal", 4)],
)
def test_remix_in_a_decode_is_hard_at_the_start_of_a_block_and_outside_it(
    family: str, attention: Any, block_length: int | None
) -> None:
    model = tiny(family, torch.float64, attention)
    canvas = Canvas.pack([[3, 4, 5], [6, 7]], [11, 14], model.mask_id, 0)
    fields: Any = {"commit": TopN(1), "feedback": ReMix(reject=10), "block_length": block_length}
    open = canvas.open
    for step in softdlm.denoise(model, canvas, **fields):
        soft_pass = (step.context.block_passes >= 1) & (step.context.passes >= 2)
        expected = open & step.context.in_block & soft_pass
        running = step.running[:, None]
        assert torch.equal(step.context.soft & running, expected & running)
        open = step.canvas.open


def test_what_was_never_predicted_before_has_not_jumped() -> None:
    """Under block-causal attention a block is predicted for the first time when it begins, late in a decode."""
    rule, inside = ReMix(), torch.tensor([[True]])
    before = rule.init(1, 1, torch.device("cpu"), 5)
    state = rule.update(before, seen(torch.tensor([[SURE]])), context_of(7, inside, before))
    assert not state["rejected"].any()
    state = rule.update(state, seen(torch.tensor([[OTHER]])), context_of(8, inside, state))
    assert state["rejected"].all()


FREE = [LRD(r_f=0), ReMix(mix=0)]


@pytest.mark.parametrize("rule", FREE, ids=spell)
@pytest.mark.parametrize("family", ["llada", "dream", "llada2"])
@pytest.mark.parametrize(
    "fields", [{"commit": TopN(2)}, {"block_length": 4, "temperature": 0.7, "commit": TopN(1)}], ids=str
)
def test_without_strength_it_is_vanilla(rule: Any, family: str, fields: Any) -> None:
    model = tiny(family, torch.float64)
    options = {**fields, "max_new_tokens": 10, "early_finish": False, "seed": 3}
    plain, soft = (
        softdlm.generate(model, prompts_of([3, 7], 3), feedback=each, **options) for each in ("vanilla", rule)
    )
    assert [story(each) for each in soft] == [story(each) for each in plain]


def test_soft_token_has_its_published_names() -> None:
    assert build("feedback", "soft-token-5") == SoftToken(k=5, extra=0.5)
    assert title(SoftToken()) == "soft-token-5"
    assert title(SoftToken(k=3)) == "soft-token"
    with pytest.raises(UsageError, match="the name itself fixes k"):
        build("feedback", "soft-token-5(k=3)")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lrd(r_f=1.5)", r"r_f must lie in \[0, 1\], not 1.5"),
        ("lrd(r_f=-0.1)", "not -0.1"),
        ("lrd(p=0)", r"p must lie in \(0, 1\], not 0"),
        ("lrd(p=1.1)", "not 1.1"),
        ("remix(mix=2)", r"mix must lie in \[0, 1\], not 2"),
        ("remix(reject=-1)", "reject must be at least 0 nats, not -1"),
    ],
)
def test_bad_values_are_named(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        build("feedback", text)
