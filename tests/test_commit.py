"""Commit rules against their laws and against the published rules written out position by position."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from softdlm import EntropyBound, Factor, LeadIn, Prophet, ReMixCommit, Steps, Threshold, TopN, TopNEps, UsageError
from softdlm.commit import CommitRule, Rank, order, places, scores
from softdlm.types import Context, Prediction
from tests.strategies import Scene, scenes

RANKS: list[Rank] = ["confidence", "margin", "entropy"]
bounds = st.sampled_from([0.0, 1e-6, 0.02, 0.3, 0.9, 1.5, 5.0, 100.0])
rules = st.one_of(
    st.builds(TopN, st.integers(1, 12), st.sampled_from(RANKS)),
    st.builds(Steps, st.integers(1, 12), over=st.sampled_from(["masks", "block"]), rank=st.sampled_from(RANKS)),
    st.builds(Steps, st.integers(1, 12), schedule=st.just("eps"), rank=st.sampled_from(RANKS)),
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


def test_budget_caps_a_threshold_by_its_share_of_the_passes() -> None:
    scene = _scene_with_entropy(torch.tensor([[0.1] * 8]))
    assert len(chosen(scene, Threshold(0.0), 0)) == 8
    assert len(chosen(scene, Threshold(0.0, budget=4), 0)) == 2


@given(scenes(last=True), bounds)
def test_a_lead_in_is_the_first_position_of_a_block_and_then_the_rule(scene: Scene, tau: float) -> None:
    chosen = LeadIn(Threshold(tau))(scene.prediction, scene.open, scene.context)
    usual = Threshold(tau)(scene.prediction, scene.open, scene.context)
    for row, passes in enumerate(scene.context.block_passes.flatten().tolist()):
        first = [int(scene.open[row].int().argmax())]
        expected = first if passes == 0 else usual[row].nonzero().flatten().tolist()
        assert chosen[row].nonzero().flatten().tolist() == expected


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TopN(0), "at least 1, not 0"),
        (lambda: TopN(1, "luck"), "not 'luck'"),  # type: ignore[arg-type]
        (lambda: Steps(0), "not 0"),
        (lambda: Steps(4, schedule="cosine"), "not 'cosine'"),  # type: ignore[arg-type]
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
