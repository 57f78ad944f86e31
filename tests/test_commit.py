"""Commit rules against their laws and against the published rules written out position by position."""

import math
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import softdlm
from softdlm import (
    Canvas,
    EntropyBound,
    Factor,
    HardOnly,
    LeadIn,
    Prophet,
    ReMixCommit,
    Steps,
    Threshold,
    TopN,
    TopNEps,
    UsageError,
)
from softdlm.commit import CommitRule, Rank, order, places, scores
from softdlm.types import Context, Prediction
from tests.conftest import tiny
from tests.strategies import Scene, scenes

RANKS: list[Rank] = ["confidence", "margin", "entropy"]
bounds = st.sampled_from([0.0, 1e-6, 0.02, 0.3, 0.9, 1.5, 5.0, 100.0])
rules = st.one_of(
    st.builds(TopN, st.integers(1, 12), st.sampled_from(RANKS)),
    st.builds(Steps, st.integers(1, 12), over=st.sampled_from(["masks", "block"]), rank=st.sampled_from(RANKS)),
    st.builds(Steps, st.integers(1, 12), schedule=st.just("eps"), rank=st.sampled_from(RANKS)),
    st.builds(Steps, st.integers(1, 12), schedule=st.sampled_from(["power", "cosine"]), rank=st.sampled_from(RANKS)),
    st.builds(Threshold, bounds, strict=st.booleans()),
    st.builds(Threshold, bounds, budget=st.integers(1, 12)),
    st.builds(Threshold, bounds, floor=st.builds(Steps, st.integers(1, 12), over=st.just("block"))),
    st.builds(Factor, bounds, st.sampled_from(["original", "dllm"])),
    st.builds(EntropyBound, bounds, st.sampled_from(RANKS)),
    st.builds(Prophet, st.builds(TopN, st.integers(1, 12)), bounds, bounds, bounds),
    st.builds(ReMixCommit, bounds),
    st.builds(TopNEps, st.integers(1, 12), rank=st.sampled_from(RANKS)),
)
PROMISE_ONE = (TopN, Threshold, Factor, EntropyBound, Prophet, ReMixCommit)


def ranked(scene: Scene, row: int, rank: Rank = "confidence") -> list[int]:
    """Open positions of a row, surest first, ties to the left: plain Python."""
    score = scores(scene.prediction, scene.open, rank)[row].tolist()
    open = scene.open[row].nonzero().flatten().tolist()
    return sorted(open, key=lambda place: (-score[place], place))


def chosen(scene: Scene, rule: object, row: int) -> set[int]:
    mask = rule(scene.prediction, scene.open, scene.context)  # type: ignore[operator]
    return set(mask[row].nonzero().flatten().tolist())


@given(scenes(last=True), rules)
def test_only_open_positions_are_committed(scene: Scene, rule: object) -> None:
    mask = rule(scene.prediction, scene.open, scene.context)  # type: ignore[operator]
    assert not (mask & ~scene.open).any()
    floor = rule.floor if isinstance(rule, Threshold) else rule  # a schedule as floor may be at its end
    if isinstance(rule, PROMISE_ONE) and not isinstance(floor, Steps):
        assert mask.any(1).all()


@given(scenes(last=True), st.sampled_from(RANKS))
def test_order_puts_open_before_closed_and_deferred_last(scene: Scene, rank: Rank) -> None:
    deferred = scene.prediction.deferred
    for row in range(len(scene.open)):
        sequence = order(scene.prediction, scene.open, rank)[row].tolist()
        kinds = [(not bool(scene.open[row, place]), bool(deferred[row, place])) for place in sequence]
        assert kinds[: sum(not closed for closed, _ in kinds)] == sorted(kinds)[: sum(not c for c, _ in kinds)]
        late = [place for place in sequence if scene.open[row, place] and deferred[row, place]]
        assert late == sorted(late)
        assert places(scene.prediction, scene.open, rank)[row][torch.tensor(sequence)].tolist() == list(
            range(len(sequence))
        )


@given(scenes(), st.integers(1, 12), st.sampled_from(RANKS))
def test_top_n_takes_the_n_surest(scene: Scene, n: int, rank: Rank) -> None:
    for row in range(len(scene.open)):
        assert chosen(scene, TopN(n, rank), row) == set(ranked(scene, row, rank)[:n])


@given(scenes(last=True), st.floats(1.0001, 5))
def test_threshold_above_one_is_top_one(scene: Scene, tau: float) -> None:
    for row in range(len(scene.open)):
        assert chosen(scene, Threshold(tau), row) == chosen(scene, TopN(1), row)


@given(scenes(last=True), st.floats(0.01, 0.999), st.integers(1, 5))
def test_threshold_written_out(scene: Scene, tau: float, least: int) -> None:
    """Fast-dLLM's rule, and LLaDA-2's: all above the bar if they are enough, else the scheduled number."""
    rule = Threshold(tau, floor=TopN(least))
    for row in range(len(scene.open)):
        line = ranked(scene, row)
        sure = [place for place in line if scene.prediction.log_confidence[row, place] >= math.log(tau)]
        assert chosen(scene, rule, row) == set(sure if len(sure) >= least else line[:least])


def test_threshold_counts_at_the_bar_unless_strict() -> None:
    bar = math.log(0.9)
    scene = _scene_with_entropy(torch.tensor([[-bar, -bar + 1e-6, -bar, 0.01]]))
    assert chosen(scene, Threshold(0.9), 0) == {0, 2, 3}
    assert chosen(scene, Threshold(0.9, strict=True), 0) == {3}


@pytest.mark.parametrize("rank", RANKS)
def test_ties_go_to_the_leftmost(rank: Rank) -> None:
    scene = _scene_with_entropy(torch.full((1, 100), 0.5))
    assert chosen(scene, TopN(7, rank), 0) == set(range(7))


@given(scenes(), st.floats(0.1, 3), st.sampled_from(["original", "dllm"]))
def test_factor_written_out(scene: Scene, f: float, variant: str) -> None:
    for row in range(len(scene.open)):
        line = ranked(scene, row)
        taken = 1
        while taken < len(line):
            if scene.prediction.confidence[row, line[taken]] < 1 - f / (taken + 2):
                break
            taken += 1
        if variant == "original" and taken == len(line) - 1:
            taken = len(line)
        assert chosen(scene, Factor(f, variant), row) == set(line[:taken])  # type: ignore[arg-type]


@given(scenes(last=True), st.floats(0, 3), st.sampled_from(RANKS))
def test_entropy_bound_written_out(scene: Scene, gamma: float, rank: Rank) -> None:
    """The largest prefix with sum H - max H <= gamma; sums in double, so stay off the edge of the bound."""
    for row in range(len(scene.open)):
        line = ranked(scene, row, rank)
        entropies = [float(scene.prediction.entropy[row, place]) for place in line]
        excess = [sum(entropies[: n + 1]) - max(entropies[: n + 1]) for n in range(len(line))]
        if any(0 < abs(value - gamma) < 1e-5 for value in excess):
            continue
        largest = max(n for n, value in enumerate(excess) if value <= gamma + 1e-9)
        assert chosen(scene, EntropyBound(gamma, rank), row) == set(line[: largest + 1])


@given(scenes(last=True), st.sampled_from(RANKS))
def test_entropy_bound_zero_is_one_at_a_time(scene: Scene, rank: Rank) -> None:
    for row in range(len(scene.open)):
        if bool((scene.prediction.entropy[row][scene.open[row]] > 0).all()):
            assert chosen(scene, EntropyBound(0.0, rank), row) == chosen(scene, TopN(1, rank), row)


def test_entropy_bound_zero_takes_certain_positions_together() -> None:
    prediction = torch.tensor([[0.0, 0.0, 0.4, 0.0]])
    scene = _scene_with_entropy(prediction)
    assert chosen(scene, EntropyBound(0.0), 0) == {0, 1, 2, 3}  # 0.4 is the maximum, and leaves nothing over


@given(scenes(last=True), bounds, bounds)
def test_a_looser_bound_commits_a_superset(scene: Scene, one: float, other: float) -> None:
    tight, loose = sorted([one, other])
    pairs = [
        (Threshold(loose), Threshold(tight)),
        (EntropyBound(tight), EntropyBound(loose)),
        (Factor(tight, "dllm"), Factor(loose, "dllm")),
        (TopN(1 + int(tight)), TopN(1 + int(loose))),
    ]
    for few, many in pairs:
        for row in range(len(scene.open)):
            assert chosen(scene, few, row) <= chosen(scene, many, row)


@given(st.integers(1, 60), st.integers(1, 60))
def test_even_steps_split_evenly_remainder_first(masks: int, steps: int) -> None:
    counts = _counts(Steps(steps), masks, passes=steps)
    assert sum(counts) == masks
    assert counts == sorted(counts, reverse=True)
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 80), st.integers(1, 60), st.sampled_from([1e-3, 0.1]))
def test_eps_steps_follow_dreams_schedule(masks: int, steps: int, eps: float) -> None:
    """int(n (1 - s / t)) on a float32 grid from 1 to eps, all that remain at the last step."""
    times = torch.linspace(1, eps, steps + 1)
    left, expected = masks, []
    for step in range(steps):
        share = int(left * (1 - times[step + 1] / times[step])) if step < steps - 1 else left
        expected.append(share)
        left -= share
    assert _counts(Steps(steps, schedule="eps", eps=eps), masks, passes=steps) == expected
    assert left == 0


growing = st.one_of(
    st.builds(lambda power: {"schedule": "power", "power": power}, st.floats(1, 6)), st.just({"schedule": "cosine"})
)


def share_by(number: int, steps: int, schedule: str, power: float = 1.5) -> float:
    """Of the block's masks, what is to be committed after so many passes."""
    part = number / steps
    return part**power if schedule == "power" else 1 - math.cos(part * math.pi / 2)


@given(st.integers(1, 80), st.integers(1, 12), growing)
def test_growing_steps_take_the_passes_of_top_n_and_grow(masks: int, n: int, grows: dict[str, Any]) -> None:
    """At least one in each pass, and no pass less than the one before but for rounding."""
    steps = math.ceil(masks / n)
    counts = _counts(Steps(steps, **grows), masks, passes=steps)
    assert sum(counts) == masks
    assert min(counts) >= 1
    assert all(later >= earlier - 1 for earlier, later in pairwise(counts))


@given(st.integers(1, 80), st.integers(1, 40), growing)
def test_growing_steps_are_at_their_share_after_every_pass(masks: int, steps: int, grows: dict[str, Any]) -> None:
    """Unless that is less than one for each pass so far; with more passes than masks, one each."""
    done = list(accumulate(_counts(Steps(steps, **grows), masks, passes=steps)))
    for number, total in enumerate(done, 1):
        exact = masks * share_by(number, steps, **grows)
        if abs(exact % 1 - 0.5) > 1e-9:  # the edge of rounding is anybody's
            assert total == min(max(round(exact), number), masks)
    assert done[-1] == masks


@given(st.integers(1, 80), st.integers(1, 12))
def test_power_one_is_an_even_split(masks: int, n: int) -> None:
    steps = math.ceil(masks / n)
    done = list(accumulate(_counts(Steps(steps, schedule="power", power=1.0), masks, passes=steps)))
    assert all(abs(total - masks * number / steps) <= 0.5 for number, total in enumerate(done, 1))


def test_a_higher_power_begins_slower() -> None:
    even, usual, steep = (_counts(Steps(8, schedule="power", power=power), 32, passes=8) for power in (1.0, 1.5, 3.0))
    assert even == [4] * 8
    assert usual == [1, 3, 3, 4, 5, 5, 5, 6]
    assert steep == [1, 1, 1, 1, 4, 6, 7, 11]
    assert _counts(Steps(8, schedule="cosine"), 32, passes=8) == [1, 1, 3, 4, 5, 6, 6, 6]


@settings(max_examples=12)
@given(st.sampled_from(["llada", "dream"]), st.integers(1, 6), st.sampled_from([None, 4, 6]), growing)
def test_growing_steps_count_each_block_of_each_row(
    family: str, steps: int, block: int | None, grows: dict[str, Any]
) -> None:
    """In a ragged batch: rows of 13 and 9, whose last blocks are shorter."""
    model = tiny(family)
    canvas = Canvas.pack([[3, 4, 5], [6, 7]], [16, 11], model.mask_id, 0)
    taken: dict[tuple[int, int], list[int]] = {}
    for step in softdlm.denoise(model, canvas, commit=Steps(steps, **grows), block_length=block):
        for row in step.running.nonzero().flatten().tolist():
            start = int(step.context.index[row][step.active[row]].min()) // (block or 99)
            taken.setdefault((row, start), []).append(int(step.committed[row].sum()))
    for row, new in enumerate([13, 9]):
        sizes = [min(block or new, new - start) for start in range(0, new, block or new)]
        for number, masks in enumerate(sizes):
            passes = min(steps, masks)
            assert taken[row, number] == _counts(Steps(steps, **grows), masks, passes=passes)


def test_budget_caps_a_threshold_by_its_share_of_the_passes() -> None:
    scene = _scene_with_entropy(torch.tensor([[0.1] * 8]))
    assert len(chosen(scene, Threshold(0.0), 0)) == 8
    assert len(chosen(scene, Threshold(0.0, budget=4), 0)) == 2


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TopN(0), "at least 1, not 0"),
        (lambda: TopN(1, "luck"), "not 'luck'"),  # type: ignore[arg-type]
        (lambda: Steps(0), "not 0"),
        (lambda: Steps(4, schedule="sine"), "even, eps, power, cosine, not 'sine'"),  # type: ignore[arg-type]
        (lambda: Steps(4, schedule="power", power=0.9), "power must be at least 1.*, not 0.9"),
        (lambda: Steps(4, schedule="power", power=float("nan")), "not nan"),
        (lambda: Steps(4, schedule="power", power=float("inf")), "not inf"),
        (lambda: Steps(4, schedule="cosine", over="block"), "schedule='cosine' counts the block's"),
        (lambda: Steps(4, schedule="power", over="block"), "leave out over='block'"),
        (lambda: Steps(4, eps=1.5), "not 1.5"),
        (lambda: Threshold(-0.1), "not -0.1"),
        (lambda: Threshold(float("nan")), "not nan"),
        (lambda: Threshold(0.9, budget=0), "not 0"),
        (lambda: Factor(-1.0), "not -1.0"),
        (lambda: EntropyBound(-1.0), "not -1.0"),
    ],
)
def test_bad_values_are_named(make: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()  # type: ignore[operator]


def _counts(rule: Steps, masks: int, passes: int) -> list[int]:
    """What a schedule commits pass by pass."""
    left, counts = masks, []
    for step in range(passes):
        one = [torch.tensor([[value]]) for value in (step, step, masks, masks, left)]
        count = min(int(rule.count(Context(*one))), left)
        counts.append(count)
        left -= count
    return counts


def _scene_with_entropy(entropy: torch.Tensor) -> Scene:
    from softdlm.types import Prediction

    shape = entropy.shape
    ids = torch.zeros(*shape, 1, dtype=torch.long)
    prediction = Prediction(ids[..., 0], -entropy, entropy, entropy, ids, torch.ones(*shape, 1))
    zero, length = torch.zeros(shape[0], 1, dtype=torch.long), torch.full((shape[0], 1), shape[1])
    return Scene(prediction, torch.ones(shape, dtype=torch.bool), Context(zero, zero, length, length, length))


@pytest.mark.parametrize(
    "rule",
    [
        TopN(2),
        TopN(2, rank="margin"),
        Steps(4),
        Steps(4, schedule="eps"),
        Steps(4, schedule="power"),
        Steps(4, schedule="cosine"),
        HardOnly(TopN(2)),
        LeadIn(HardOnly(EntropyBound(0.1))),
        Threshold(0.9),
        Threshold(0.95, floor=Steps(4, over="block"), strict=True, budget=8),
        Factor(1.0),
        Factor(1.0, variant="dllm"),
        EntropyBound(0.1),
        Prophet(),
        ReMixCommit(),
        TopNEps(2),
    ],
    ids=str,
)
def test_rules_do_not_wait_for_values(rule: CommitRule) -> None:
    """On tensors without values: what would read one on the host (and stop a GPU, or a graph's capture) raises."""
    with FakeTensorMode():
        score, ids = torch.zeros(2, 6), torch.zeros(2, 6, dtype=torch.long)
        prediction = Prediction(ids, score, score, score, torch.stack([ids, ids], -1), torch.stack([score, score], -1))
        count = torch.ones(2, 1, dtype=torch.long)
        chosen = rule(prediction, torch.ones(2, 6, dtype=torch.bool), Context(*[count] * 5))
        assert chosen.shape == (2, 6)
        with pytest.raises(DataDependentOutputException):
            bool(chosen.any())
