"""Rules around a feedback rule: where and when its soft tokens are fed, and whole decodes of every family."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

import softdlm
from softdlm import (
    KLASS,
    Additive,
    Alternate,
    Canvas,
    Euclidean,
    Mask,
    NoEos,
    ReMix,
    Slerp,
    TopN,
    UsageError,
)
from softdlm.engine.slots import Slots
from softdlm.feedback import FeedbackRule, feed_back
from softdlm.predict import Sampling, reduce_logits
from softdlm.types import Context, Embeddings, Prediction, RuleState
from tests.conftest import plan_of, tiny
from tests.engine.test_slots import RAGGED, canvas_of
from tests.strategies import MASK_ID, VOCABULARY, generator, random_logits
from tests.test_cache import model_of

ROWS, LENGTH, WIDTH = 2, 7, 6
seeds = st.integers(0, 2**31)
turns = st.integers(1, 5).flatmap(lambda period: st.tuples(st.just(period), st.integers(1, period)))
networks = st.sampled_from(["llada", "dream", "llada2", "llada2 full"])
settings_of_blocks: Any = st.sampled_from(
    [
        {},
        {"block_length": 4},
        {"block_length": 5, "cache": "prefix"},
        {"block_length": 5, "cache": "dual"},
        {"block_length": 8, "cache": "dual", "refresh": 2},
    ]
)
INNER = (Slerp(lam=0.5), Euclidean(k=2), Additive(), ReMix(), Mask(), Alternate(Slerp(), 3, 2))


@dataclass(frozen=True)
class World:
    """A prediction of every position of a canvas, with whatever a rule may ask for."""

    prediction: Prediction
    embeddings: Embeddings
    context: Context

    def told(self, rule: Any) -> Context:
        """The context with the rule's memory after this pass."""
        if not hasattr(rule, "init"):
            return self.context
        memory = rule.init(ROWS, LENGTH, torch.device("cpu"), VOCABULARY)
        return replace(self.context, state=rule.update(memory, self.prediction, replace(self.context, state=memory)))

    def flat(self, rule: FeedbackRule) -> Tensor:
        """The rule's rows, position by position."""
        return rule(self.prediction.at(WHOLE), self.embeddings, self.told(rule).at(WHOLE))


WHOLE = torch.ones(ROWS, LENGTH, dtype=torch.bool)


def world(seed: int, passes: int | None = None, shift: int = 0) -> World:
    """Rows in different passes, unless one is given; positions count from -2, as behind a prompt of two."""
    rng = generator(seed)
    table = torch.randn(VOCABULARY, WIDTH, generator=rng)
    sampling = Sampling(mask_id=MASK_ID, k=3, needs=frozenset({"mean", "probs"}))
    flat = reduce_logits(random_logits(seed, ROWS * LENGTH, 2.0), sampling, table=table)
    count = torch.randint(0, 9, (ROWS, 1), generator=rng) if passes is None else torch.full((ROWS, 1), passes)
    index = torch.arange(LENGTH).expand(ROWS, -1) - 2 + shift
    context = Context(count, count, count + 20, count + 20, count + 20, index=index, in_block=WHOLE)
    return World(flat.on(WHOLE), Embeddings(table, table[MASK_ID]), context)


def soft_at(scene: World, rule: FeedbackRule) -> Tensor:
    return (scene.flat(rule) != scene.embeddings.mask).any(1).view(ROWS, LENGTH)


@given(seeds, turns, st.sampled_from(INNER))
def test_soft_in_its_turn_and_mask_to_the_bit_else(seed: int, turn: tuple[int, int], inner: Any) -> None:
    """Position and pass count together; the pass is the next one, which is fed."""
    period, soft = turn
    scene = world(seed)
    ours, theirs = scene.flat(Alternate(inner, period, soft)), scene.flat(inner)
    places = [(row, place) for row in range(ROWS) for place in range(LENGTH)]
    for number, (row, place) in enumerate(places):
        fed = int(scene.context.passes[row, 0]) + 1
        its_turn = (place - 2 + fed) % period < soft
        assert torch.equal(ours[number], theirs[number] if its_turn else scene.embeddings.mask)


@given(seeds, turns, st.integers(0, 9))
def test_a_step_to_the_right_is_a_pass_later(seed: int, turn: tuple[int, int], passes: int) -> None:
    rule = Alternate(Slerp(lam=0.5), *turn)
    assert torch.equal(soft_at(world(seed, passes + 1), rule), soft_at(world(seed, passes, shift=1), rule))


@given(seeds, turns, st.integers(0, 9))
def test_in_a_period_every_position_is_soft_so_many_times(seed: int, turn: tuple[int, int], passes: int) -> None:
    period, soft = turn
    rule = Alternate(Slerp(lam=0.5), period, soft)
    times = sum(soft_at(world(seed, passes + number), rule).long() for number in range(period))
    assert torch.equal(torch.as_tensor(times), torch.full((ROWS, LENGTH), soft))


@given(seeds, turns, turns, st.sampled_from(INNER), st.floats(0, 1))
def test_on_a_canvas_it_is_the_rule_at_the_chosen_positions(
    seed: int, one: tuple[int, int], other: tuple[int, int], inner: Any, share: float
) -> None:
    """Also a rule in turns inside another one, a rule with a memory, and places in any order, chosen or not."""
    scene = world(seed)
    for rule in (Alternate(inner, *one), Alternate(Alternate(inner, *one), *other)):
        chosen = torch.rand(ROWS, LENGTH, generator=generator(seed + 1)) < share
        places = torch.randperm(ROWS * LENGTH, generator=generator(seed + 2))
        embeds = scene.embeddings.mask.repeat(ROWS, LENGTH, 1)
        embeds[~chosen] = 7.0
        expected = torch.where(chosen[..., None], scene.flat(rule).view(ROWS, LENGTH, WIDTH), embeds)
        flat = scene.prediction.at(WHOLE).at(places)
        feed_back(rule, scene.prediction, scene.embeddings, scene.told(rule), chosen, embeds, flat, places)
        torch.testing.assert_close(embeds, expected, atol=1e-6, rtol=1e-6)


@given(seeds, turns)
def test_the_memory_is_the_inner_rules(seed: int, turn: tuple[int, int]) -> None:
    scene = world(seed)
    inner, outer = scene.told(ReMix()).state, scene.told(Alternate(ReMix(), *turn)).state
    assert inner.keys() == outer.keys()
    assert all(torch.equal(inner[name], outer[name]) for name in inner)
    assert scene.told(Alternate(Slerp(), *turn)).state == {}


@dataclass(frozen=True)
class Counting:
    """Says by the length of its soft token in how many passes the position was predicted."""

    k = 1

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> RuleState:
        return {"seen": torch.zeros(rows, length, dtype=torch.long, device=device)}

    def update(self, state: RuleState, prediction: Prediction, context: Context) -> RuleState:
        return {"seen": state["seen"] + 1}

    def __call__(self, prediction: Prediction, embeddings: Embeddings, context: Context) -> Tensor:
        return embeddings.mask * (1 + context.state["seen"].unsqueeze(-1))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("cache", [None, "dual"])
def test_a_memory_counts_every_pass_not_only_the_rules_turns(exact: bool, cache: Any) -> None:
    model = tiny("llada", torch.float64)
    canvas = canvas_of(model, RAGGED)
    plan = plan_of(model, commit=TopN(2), feedback=Alternate(Counting(), 3, 1), block_length=6, cache=cache)
    slots = Slots(plan, *canvas.ids.shape, exact=exact)
    slots.admit(canvas)
    mask, seen = plan.embeddings.mask, torch.zeros_like(canvas.ids)
    while slots.running:
        step = slots.step(read=True)
        seen = seen + step.requested
        assert torch.equal(slots.state.feedback["seen"], seen)
        fed = step.requested & step.canvas.open
        turn = (step.context.index + step.context.passes + 1) % 3 == 0
        length = torch.where(turn, 1 + seen, 1)
        assert torch.equal(slots.state.embeds[fed], (length[..., None] * mask)[fed])
    assert seen.max() > 3


@settings(max_examples=25, phases=(Phase.explicit, Phase.generate))
@given(networks, st.integers(0, 99), turns, settings_of_blocks, st.sampled_from(["dynamic", "static"]))
def test_a_decode_feeds_what_the_rule_says_and_the_context_knows_it(
    network: str, seed: int, turn: tuple[int, int], fields: dict[str, Any], engine: Any
) -> None:
    """A position is as it was fed after the last pass that predicted it; the first pass is hard."""
    period, soft = turn
    model = model_of(network)
    engine = "dynamic" if network == "llada2" else engine
    canvas = canvas_of(model, RAGGED, seed)
    options: Any = {"commit": TopN(2), "feedback": Alternate(Slerp(lam=0.5), period, soft), **fields}
    fed = torch.zeros_like(canvas.open)
    for step in softdlm.denoise(model, canvas, engine=engine, **options):
        running = step.running[:, None]
        assert torch.equal(step.context.soft & running, fed & running)
        its_turn = (step.context.index + step.context.passes + 1) % period < soft
        fed = torch.where(step.requested, its_turn, fed) & step.canvas.open


def told(model: Any, canvas: Canvas, **options: Any) -> list[tuple[Any, ...]]:
    """Every pass of a decode: what was asked, what was soft, what came out, to the bit."""
    steps = softdlm.denoise(model, canvas, **options)
    return [
        (
            *(each.tolist() for each in (step.canvas.ids, step.requested, step.context.soft)),
            step.prediction.topk_probs[step.requested].tolist(),
        )
        for step in steps
    ]


@settings(max_examples=16, phases=(Phase.explicit, Phase.generate))
@given(networks, st.integers(0, 99), st.integers(1, 4), settings_of_blocks, st.sampled_from(INNER))
def test_soft_in_every_turn_is_the_inner_rule(
    network: str, seed: int, period: int, fields: dict[str, Any], inner: Any
) -> None:
    model = model_of(network)
    canvas = canvas_of(model, RAGGED, seed)
    options: Any = {"commit": TopN(2), **fields}
    rule = Alternate(inner, period, period)
    assert told(model, canvas, feedback=rule, **options) == told(model, canvas, feedback=inner, **options)


@settings(max_examples=16, phases=(Phase.explicit, Phase.generate))
@given(networks, st.integers(0, 99), turns, settings_of_blocks, st.sampled_from([TopN(2), KLASS(0.3, 0.1)]))
def test_without_strength_it_is_vanilla(
    network: str, seed: int, turn: tuple[int, int], fields: dict[str, Any], commit: Any
) -> None:
    """Around [MASK] it is vanilla also in what a pass predicts, which a commit rule with a memory sees."""
    model = model_of(network)
    canvas = canvas_of(model, RAGGED, seed)
    vanilla = told(model, canvas, feedback=Mask(), commit=commit, **fields)
    masks = Alternate(Alternate(Mask(), *turn))
    assert told(model, canvas, feedback=masks, commit=commit, **fields) == vanilla
    soft = told(model, canvas, feedback=Alternate(Slerp(lam=0.0), *turn), commit=TopN(2), **fields)
    assert [ids for ids, *_ in soft] == [
        ids for ids, *_ in told(model, canvas, feedback=Mask(), commit=TopN(2), **fields)
    ]


def test_neighbours_take_turns() -> None:
    """With the defaults a position is soft in every second pass, and its neighbours in the passes between."""
    model = tiny("llada", torch.float64)
    canvas = Canvas.pack([[3, 4]], [12], model.mask_id, 0)
    steps = list(softdlm.denoise(model, canvas, commit=TopN(1), feedback=Alternate(Slerp(lam=0.5))))
    kinds = [step.context.soft[0, 2:].tolist() for step in steps[:3]]
    open = [[True] * 10, *(step.canvas.open[0, 2:].tolist() for step in steps[:2])]
    checks = [[False] * 10, [False, True] * 5, [True, False] * 5]
    for soft, before, check in zip(kinds, open, checks, strict=True):
        assert soft == [one and other for one, other in zip(before, check, strict=True)]


@given(seeds, st.floats(0, 1), st.sampled_from(INNER))
def test_no_eos_is_mask_where_the_best_candidate_ends_the_answer(seed: int, share: float, inner: Any) -> None:
    scene = world(seed)
    ends = torch.rand(ROWS, LENGTH, generator=generator(seed)) < share
    scene = replace(scene, context=replace(scene.context, ends=ends))
    ours, theirs = scene.flat(NoEos(inner)), scene.flat(inner)
    assert torch.equal(ours, torch.where(ends[WHOLE][:, None], scene.embeddings.mask, theirs))
    outside, within = scene.flat(NoEos(Alternate(inner))), scene.flat(Alternate(NoEos(inner)))
    assert torch.equal(outside, within)


@given(networks, settings_of_blocks, st.integers(0, 30))
@settings(max_examples=8, deadline=None, phases=[Phase.generate])
def test_in_a_decode_no_position_that_leans_to_eos_is_soft(network: str, fields: Any, end: int) -> None:
    """The context says where the best candidate is EOS; there, and only there, the next input is [MASK]."""
    model = model_of(network)
    canvas = Canvas.pack([[3, 4, 5]], [15], model.mask_id, 0)
    model.eos_ids = (end, end + 1)
    ends, last = torch.tensor(model.eos_ids), None
    for step in softdlm.denoise(model, canvas, commit=TopN(1), feedback=NoEos(Slerp(lam=0.5)), **fields):
        leans = torch.isin(step.prediction.topk_ids[..., 0], ends)
        assert torch.equal(step.context.ends, leans)
        if last is not None:
            seen = step.requested & last.requested
            assert torch.equal(step.context.soft & seen, ~last.context.ends & seen)
        last = step


def test_no_eos_changes_what_a_position_that_leans_to_eos_is_fed() -> None:
    """EOS is the token that most positions lean to, so that the law is about something."""
    model = tiny("llada", torch.float64)
    canvas = Canvas.pack([[3, 4]], [10], model.mask_id, 0)
    (first, *_) = softdlm.denoise(model, canvas, commit=TopN(1), feedback=Mask())
    best = first.prediction.topk_ids[0, :, 0]
    ending = int(best[best >= 0].mode().values)
    model.eos_ids = (ending,)
    steps = [list(softdlm.denoise(model, canvas, commit=TopN(1), feedback=rule)) for rule in (NoEos(Slerp()), Slerp())]
    leaning = steps[0][0].context.ends & steps[0][1].requested
    assert leaning.any()
    assert not (steps[0][1].context.soft & leaning).any()
    assert (steps[1][1].context.soft & leaning).any()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Alternate(Slerp(), 2, 3), "need 1 <= soft <= period, not soft=3 period=2"),
        (lambda: Alternate(Slerp(), 2, 0), "not soft=0 period=2"),
        (lambda: Alternate(Slerp(), 0), "not soft=1 period=0"),
        (lambda: Alternate(Slerp(), 2.5), "period must be a whole number, not 2.5"),  # type: ignore[arg-type]
        (lambda: Alternate(3), "alternate needs a feedback rule inside, such as slerp"),  # type: ignore[arg-type]
        (lambda: NoEos(3), "no_eos needs a feedback rule inside, such as slerp"),  # type: ignore[arg-type]
        (lambda: Alternate(TopN()), "alternate needs a feedback rule inside"),  # type: ignore[arg-type]
    ],
)
def test_bad_values_are_named(make: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()
