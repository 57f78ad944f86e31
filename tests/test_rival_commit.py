"""Commit rules of other methods on numbers worked by hand, and in a decode."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import softdlm
from softdlm import KLASS, LRD, Canvas, LeadIn, LRDCommit, Prophet, ReMix, ReMixCommit, Slerp, Steps, TopN, TopNEps
from softdlm.commit import rate_label
from softdlm.engine.memory import need, row_bytes
from softdlm.engine.pick_engine import pick_engine
from softdlm.engine.state import Buffers
from softdlm.errors import UsageError
from softdlm.predict import Sampling, reduce_logits
from softdlm.registry import build, spell
from softdlm.types import Context, Prediction
from tests.conftest import plan_of, tiny
from tests.strategies import Scene, scenes
from tests.test_batches import prompts_of, story

Row = list[list[float]]


def predicted(logits: Row) -> Prediction:
    """One row of positions; [MASK] is the last id of the vocabulary."""
    values = torch.tensor(logits)
    sampling = Sampling(values.shape[1] - 1, k=2, needs=frozenset({"probs"}))
    return reduce_logits(values, sampling).on(torch.ones(1, len(logits), dtype=torch.bool))


def likely(*probs: float) -> list[float]:
    """Logits of a position of these probabilities, [MASK] having none."""
    return [math.log(p) for p in probs] + [-math.inf]


def context_of(length: int, **values: Any) -> Context:
    """Of the first pass of one row and block that is open as a whole, but for these values."""
    zero, whole = torch.zeros(1, 1, dtype=torch.long), torch.full((1, 1), length)
    return replace(Context(zero, zero, whole, whole, whole, index=torch.arange(length)[None]), **values)


def chosen(rule: Any, logits: Row, **values: int) -> list[int]:
    context = context_of(len(logits), **{name: torch.tensor([[value]]) for name, value in values.items()})
    mask = rule(predicted(logits), torch.ones(1, len(logits), dtype=torch.bool), context)
    return mask[0].nonzero().flatten().tolist()


def commits(rule: Any, *passes: Row, in_block: list[bool] | None = None, block_passes: int = 0) -> Iterator[list[int]]:
    """What a rule with a memory commits in each pass, were nothing closed in between."""
    inside = torch.tensor([in_block or [True] * len(passes[0])])
    state = rule.init(1, len(passes[0]), torch.device("cpu"), len(passes[0][0]))
    for number, logits in enumerate(passes):
        count = torch.tensor([[number]])
        context = context_of(len(logits), passes=count, block_passes=count + block_passes, in_block=inside, state=state)
        state = rule.update(state, predicted(logits), context)
        yield rule(predicted(logits), inside, replace(context, state=state))[0].nonzero().flatten().tolist()


EVEN, LEAN = likely(0.5, 0.5), likely(0.25, 0.75)
START, MOVED = [EVEN, EVEN], [LEAN, EVEN]
# KL(LEAN, EVEN) = 0.25 log(1/2) + 0.75 log(3/2) = 0.130812, on average over the two positions 0.065406


def test_lrd_waits_then_takes_the_least_entropy_then_all() -> None:
    """Pass 2 moves by 0.0654 on average, below 0.1: it ends phase 1. Pass 4 compares two passes of phase 2."""
    assert list(commits(LRDCommit(), START, MOVED, MOVED, MOVED)) == [[], [], [0], [0, 1]]
    assert list(commits(LRDCommit(stop=None), START, MOVED, MOVED, MOVED)) == [[], [], [0], [0]]
    assert list(commits(LRDCommit(warm=0.0655), START, MOVED, MOVED)) == [[], [], [0]]
    assert list(commits(LRDCommit(warm=0.0653), START, MOVED, MOVED, MOVED)) == [[], [], [], [0]]
    assert list(commits(LRDCommit(stop=0), START, MOVED, MOVED, MOVED)) == [[], [], [0], [0]]


def test_lrd_stops_where_the_mean_has_moved_little() -> None:
    still = [START, START, START]
    assert list(commits(LRDCommit(stop=0.0655), *still, MOVED))[-1] == [0, 1]
    assert list(commits(LRDCommit(stop=0.0653), *still, MOVED))[-1] == [0]


def test_lrd_waits_at_most_so_many_passes() -> None:
    never: Any = {"warm": 0, "stop": None}
    for most in range(4):
        found = list(commits(LRDCommit(most=most, **never), *[START] * 5))
        assert found == [[]] * most + [[0]] * (5 - most)
    assert LRDCommit(most=7).may_wait == 7
    assert LRDCommit(Steps(5, schedule="eps"), most=7).may_wait == 12


def test_lrd_looks_at_the_open_positions_of_the_block() -> None:
    """Outside the block the distribution jumps in every pass; inside it stays."""
    one, other = [EVEN, likely(0.99, 0.01)], [EVEN, likely(0.01, 0.99)]
    passes = [one, other, one, other]
    assert list(commits(LRDCommit(), *passes, in_block=[True, False])) == [[], [], [0], [0]]
    assert list(commits(LRDCommit(), *passes)) == [[]] * 4


def test_lrd_tells_its_inner_rule_of_phase_two_alone() -> None:
    seen = []

    def spy(prediction: Any, open: Any, context: Any) -> Tensor:
        seen.append((context.passes.item(), context.block_passes.item()))
        return open & False

    list(commits(LRDCommit(spy, most=2, warm=0, stop=None), *[START] * 5))
    assert seen[2:] == [(0, 0), (1, 1), (2, 2)]


A, B, C = likely(0.95, 0.05), likely(0.97, 0.03), likely(0.6, 0.4)


def test_klass_takes_what_is_sure_and_calm() -> None:
    """Calm since pass 2. In pass 3 the first position is sure and calm twice; B turned over, C is calm and unsure."""
    passes = [[A, B, C], [A, B, C], [A, likely(0.03, 0.97), C]]
    assert list(commits(KLASS(), *passes)) == [[1], [1], [0]]
    assert list(commits(KLASS(passes=1), *passes)) == [[1], [0, 1], [0]]
    assert list(commits(KLASS(tau=0.96), *passes))[2] == [1], "nothing is ready, so the surest goes"
    assert list(commits(KLASS(tau=0.5), *passes))[2] == [0, 2]
    assert next(commits(KLASS(floor=TopN(2)), *passes)) == [0, 1]
    assert list(commits(KLASS(passes=3), *passes, passes[2]))[3] == [0]


def test_klass_needs_calm_in_a_row_below_its_bar() -> None:
    """KL(C', C) with C' = (0.55, 0.45) is 0.55 log(11/12) + 0.45 log(9/8) = 0.005147, twice."""
    near = likely(0.55, 0.45)
    passes = [[C, B], [near, B], [C, B]]
    assert list(commits(KLASS(tau=0.5, kl=0.006), *passes))[2] == [0, 1]
    assert list(commits(KLASS(tau=0.5, kl=0.0051), *passes))[2] == [1]
    assert list(commits(KLASS(tau=0.5), [C, B], [A, B], [A, B]))[2] == [1]


def test_klass_takes_the_floor_at_the_start_of_a_block() -> None:
    """Calm counts from the block before, but not before the block's own passes are as many."""
    rule, passes = KLASS(tau=0.5), [[A, B, C]] * 4
    assert list(commits(rule, *passes))[2] == [0, 1, 2]
    assert list(commits(rule, *passes, block_passes=-2))[2:] == [[1], [0, 1, 2]]


def gaps(*values: float) -> Row:
    """Positions whose two best logits differ by so much."""
    return [[value, 0.0, -1.0, -50.0] for value in values]


@pytest.mark.parametrize(
    ("rule", "left", "mean", "all_of_them"),
    [
        (Prophet(), 12, 7.6, True),  # 1 of 12 closed after this pass
        (Prophet(), 12, 7.4, False),
        (Prophet(), 10, 7.4, False),  # 3 of 12: 0.25 < 0.33
        (Prophet(), 9, 5.1, True),  # 4 of 12: 0.333
        (Prophet(), 9, 4.9, False),
        (Prophet(), 5, 4.9, False),  # 8 of 12: 0.667 < 0.67
        (Prophet(), 4, 2.6, True),  # 9 of 12
        (Prophet(), 4, 2.4, False),
        (Prophet(TopN(4)), 12, 5.1, True),  # 4 of 12 after the first pass
        (Prophet(early=1), 12, 1.1, True),
        (Prophet(mid=1), 9, 1.1, True),
        (Prophet(late=1), 4, 1.1, True),
    ],
)
def test_prophet_by_hand(rule: Prophet, left: int, mean: float, all_of_them: bool) -> None:
    """Gaps mean - 0.5, mean + 0.5, ...: the mean counts, and only over open positions."""
    logits = gaps(*[mean - 0.5, mean + 0.5] * 3)
    found = chosen(rule, logits, block_masks=12, left=left)
    assert found == (list(range(6)) if all_of_them else [1])


def test_prophet_leaves_closed_positions_out() -> None:
    """A closed position is not predicted; the mean of the two open gaps, 8 and 7.2, is 7.6."""
    open = torch.tensor([[True, False, True]])
    prediction = predicted(gaps(8, 0.1, 7.2)).only(open)
    rule = Prophet()
    mask = rule(prediction, open, context_of(3, block_masks=torch.tensor([[12]]), left=torch.tensor([[12]])))
    assert mask.tolist() == open.tolist()


def test_prophet_asks_for_two_candidates() -> None:
    model = tiny("llada")
    assert plan_of(model, commit=Prophet(), feedback="vanilla", candidates=1).sampling.k == 2
    assert plan_of(model, commit=LeadIn(Prophet()), feedback=Slerp(k=3), candidates=1).sampling.k == 3
    assert plan_of(model, commit=LeadIn(Prophet()), feedback="vanilla", candidates=1).sampling.k == 2
    one = reduce_logits(torch.zeros(2, 4), Sampling(3)).on(torch.ones(1, 2, dtype=torch.bool))
    with pytest.raises(UsageError, match="k of at least 2"):
        Prophet()(one, torch.ones(1, 2, dtype=torch.bool), context_of(2))


def sure(*probs: float) -> Row:
    return [likely(p, 1 - p) for p in probs]


def test_remix_commits_what_is_sure_within_its_room() -> None:
    """Of 10 open positions at most 7, of 3 at most 5, of 40 at most 20; at least one."""
    nine = sure(0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.6, 0.99)
    assert chosen(ReMixCommit(), nine) == [2, 3, 4, 5, 6, 7, 9]
    assert chosen(ReMixCommit(), sure(0.95, 0.6, 0.92)) == [0, 2]
    assert chosen(ReMixCommit(), sure(0.5, 0.7, 0.6)) == [1]
    assert chosen(ReMixCommit(), sure(*[0.95] * 40)) == list(range(20))
    assert chosen(ReMixCommit(most=30), sure(*[0.95] * 40)) == list(range(28)), "0.7 x 40"
    assert chosen(ReMixCommit(tau=0.8), sure(0.81, 0.79, 0.95)) == [0, 2]


@given(scenes(last=True), st.integers(1, 9), st.sampled_from(["confidence", "entropy"]))
def test_topn_eps_is_dreams_grid_of_as_many_steps(scene: Scene, n: int, rank: Any) -> None:
    for row in range(len(scene.open)):
        masks = int(scene.context.block_masks[row])
        steps = Steps(-(-masks // n), schedule="eps", rank=rank)
        parts = [rule(scene.prediction, scene.open, scene.context)[row] for rule in (TopNEps(n, rank=rank), steps)]
        assert torch.equal(*parts)


@pytest.mark.parametrize(("masks", "n"), [(12, 1), (13, 4), (64, 4), (3, 8)])
def test_topn_eps_takes_the_passes_of_its_rate(masks: int, n: int) -> None:
    model = tiny("llada")
    canvas = Canvas.pack([[3, 4, 5]], [3 + masks], model.mask_id, 0)
    counts = [int(step.committed.sum()) for step in softdlm.denoise(model, canvas, commit=TopNEps(n))]
    assert sum(counts) == masks
    assert len(counts) == math.ceil(masks / n)
    left, by_hand = masks, []
    for index in range(len(counts)):
        now, after = (1 - 0.999 * (index + i) / len(counts) for i in (0, 1))
        by_hand.append(left if index == len(counts) - 1 else int(left * (1 - after / now)))
        left -= by_hand[-1]
    assert counts == by_hand
    assert rate_label(TopNEps(n)) == rate_label(TopN(n))


STATEFUL: list[Any] = [LRDCommit(), KLASS()]


@pytest.mark.parametrize("inner", STATEFUL, ids=spell)
@pytest.mark.parametrize("outer", [LeadIn, LRDCommit, Prophet])
def test_a_rule_with_a_memory_cannot_stand_inside_another(outer: Any, inner: Any) -> None:
    with pytest.raises(UsageError, match=r"(lrd|klass)\(.*\) has a memory and cannot stand inside another rule"):
        outer(inner)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lrd(then=3)", "inner rule must be a commit rule, such as topn\\(1\\), not 3"),
        ("lrd(warm=-1)", "warm must be at least 0 nats, not -1"),
        ("lrd(stop=-1)", "stop must be at least 0 nats, not -1"),
        ("lrd(most=-1)", "most must be at least 0, not -1"),
        ("lrd(then=klass)", "klass.* has a memory"),
        ("klass(-1)", "tau must be at least 0, not -1"),
        ("klass(kl=-1)", "kl must be at least 0, not -1"),
        ("klass(passes=0)", "passes must be at least 1, not 0"),
        ("prophet(early=-1)", "early must be at least 0, not -1"),
        ("prophet(then=null)", "inner rule must be a commit rule"),
        ("remix(-1)", "tau must be at least 0, not -1"),
        ("remix(share=1.5)", r"share must lie in \[0, 1\], not 1.5"),
        ("remix(least=0)", "least=0 most=20"),
        ("remix(least=9, most=8)", "least=9 most=8"),
        ("topn-eps(0)", "n must be at least 1, not 0"),
        ("topn-eps(eps=1)", r"eps must lie in \[0, 1\), not 1"),
        ("topn-eps(rank='luck')", "rank must be one of confidence, margin, entropy, not 'luck'"),
    ],
)
def test_bad_values_are_named(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        build("commit", text)


METHODS: list[dict[str, Any]] = [
    {"commit": LRDCommit(warm=1e-3, stop=1e-4), "feedback": LRD(r_f=0.5)},
    {"commit": LRDCommit(TopN(2), most=2, stop=None), "feedback": ReMix(reject=0.02), "block_length": 5},
    {"commit": ReMixCommit(0.02), "feedback": ReMix(reject=0.02, forget=False), "block_length": 4},
    {"commit": KLASS(0.02, 0.05), "feedback": Slerp(), "block_length": 4},
    {"commit": KLASS(0.02, 0.5), "feedback": "vanilla", "temperature": 0.6, "seed": 3},
    {"commit": Prophet(TopN(1), 0.5, 0.3, 0.2), "feedback": LRD()},
    {"commit": KLASS(0.02, 0.05), "feedback": ReMix(reject=0.02), "block_length": 4, "cache": "dual"},
    {"commit": LRDCommit(TopN(2)), "feedback": LRD(), "block_length": 5, "cache": "prefix", "refresh": 3},
    {"commit": TopNEps(3), "feedback": ReMix(), "block_length": 6},
]


@pytest.mark.parametrize("family", ["llada", "dream", "llada2"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_row_in_a_batch_is_the_row_alone(family: str, method: dict[str, Any]) -> None:
    model = tiny(family, torch.float64)
    prompts, options = prompts_of([3, 9, 9, 5], 3), {**method, "max_new_tokens": 12, "early_finish": False}
    alone = softdlm.generate(model, prompts, batch_size=1, **options)
    queued = softdlm.generate(model, prompts, batch_size=3, **options)
    assert [story(each) for each in queued] == [story(each) for each in alone]


@pytest.mark.parametrize("method", METHODS[:4], ids=str)
def test_in_float64_shared_products_change_nothing(method: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows in one padded product, as on a GPU."""
    monkeypatch.setattr("softdlm.cache.rows_apart", lambda device: False)
    model = tiny("llada", torch.float64)
    prompts, options = prompts_of([3, 9, 5], 3), {**method, "max_new_tokens": 12, "early_finish": False}
    alone = softdlm.generate(model, prompts, batch_size=1, **options)
    together = softdlm.generate(model, prompts, batch_size=3, **options)
    assert [story(each) for each in together] == [story(each) for each in alone]


@pytest.mark.parametrize("method", METHODS[:5], ids=str)
def test_the_full_distribution_runs_uncaptured(method: dict[str, Any]) -> None:
    plan = plan_of(tiny("llada"), **method)
    assert pick_engine(plan, "auto") == "dynamic"
    with pytest.raises(UsageError, match="the static engine cannot do this: a rule needs the full distribution"):
        pick_engine(plan, "static")


@pytest.mark.parametrize("commit", [Prophet(TopN(1), 0.5, 0.3, 0.2), ReMixCommit(0.02), TopNEps(3)], ids=spell)
def test_the_others_run_in_rounded_passes(commit: Any) -> None:
    model = tiny("llada", torch.float64)
    options: Any = {"commit": commit, "feedback": "soft-token", "max_new_tokens": 12, "block_length": 7}
    one, other = (
        softdlm.generate(model, prompts_of([3, 9, 5], 3), engine=each, **options) for each in ("dynamic", "static")
    )
    assert [story(each) for each in one] == [story(each) for each in other]


def test_a_memory_of_distributions_is_counted_without_being_made() -> None:
    """One row of 10 positions keeps 10 x V probabilities of 4 bytes, twice where both rules do."""
    model = tiny("llada")
    both, none = (plan_of(model, commit=c, feedback=f) for c, f in ((KLASS(), ReMix()), (TopN(1), LRD())))
    more = row_bytes(both, 10) - row_bytes(none, 10)
    assert more == 10 * (2 * len(model.embedding) * 4 + 8 + 1 + 1)
    grown = Buffers.empty(both, 3, 10).bytes - Buffers.empty(none, 3, 10).bytes
    assert grown == 3 * more
    assert need(both, 3, 10).a_pass - need(none, 3, 10).a_pass == 6 * 3 * more
    assert row_bytes(both, 10**11) > 10**11 * len(model.embedding) * 8
