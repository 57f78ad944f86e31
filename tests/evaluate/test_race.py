"""The decisions of a race: closed cases of its tests, and laws that hold for any samples."""

import math
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softdlm.errors import UsageError
from softdlm.evaluate.metrics import mcnemar
from softdlm.evaluate.race import (
    KEPT,
    Goal,
    Track,
    choose,
    frontier,
    judge,
    p_below,
    p_fewer,
    replaces,
    rounds,
    tail,
)

WITHIN, PASSES = Goal(within=1), Goal(passes=8)


def track(name: str, wrong: int, passes: int, items: int = 48, shift: int = 0) -> Track:
    """Wrong on the first items after `shift`, the same number of passes everywhere."""
    right = tuple(not shift <= item < shift + wrong for item in range(items))
    return Track(name, right, (passes,) * items)


def tracks(items: int, names: str = "abcd") -> st.SearchStrategy[list[Track]]:
    one = st.tuples(
        st.lists(st.booleans(), min_size=items, max_size=items),
        st.lists(st.integers(1, 9), min_size=items, max_size=items),
    )
    return st.tuples(*[one] * len(names)).map(
        lambda found: [Track(name, tuple(a), tuple(b)) for name, (a, b) in zip(names, found, strict=True)]
    )


@pytest.mark.parametrize(("items", "sizes"), [(1, [1]), (12, [12]), (13, [12, 13]), (200, [12, 24, 48, 96, 192, 200])])
def test_rounds_double_and_end_with_all_items(items: int, sizes: list[int]) -> None:
    assert rounds(items) == sizes


def test_the_tail_is_that_of_the_binomial() -> None:
    for trials, share in ((7, 0.5), (10, 0.3), (3000, 0.5)):
        assert tail(trials, 0, share) == 1
        assert tail(trials, trials, share) == pytest.approx(share**trials)
        exact = sum(math.comb(10, hits) * 0.3**hits * 0.7 ** (10 - hits) for hits in range(4, 11))
    assert tail(10, 4, 0.3) == pytest.approx(exact)
    assert (tail(5, 1, 0.0), tail(5, 5, 1.0)) == (0, 1)


def test_without_points_the_test_of_accuracy_is_one_side_of_mcnemars() -> None:
    worse, base = track("w", 7, 4), track("b", 2, 4, shift=20)
    assert 2 * p_below(worse, base) == pytest.approx(mcnemar(worse.right, base.right))
    assert p_below(track("w", 5, 4), track("b", 0, 4)) == pytest.approx(1 / 32)
    assert p_below(base, base) == 1


def test_points_are_allowed_for() -> None:
    """Five of 48 lost are ten points: significantly more than none, not more than ten."""
    lost, base = track("l", 5, 4), track("b", 0, 4)
    p_values = [p_below(lost, base, points) for points in (0, 1, 5, 10, 11)]
    assert p_values == sorted(p_values)
    assert p_values[0] < 0.05 < p_values[3]
    assert p_values[-1] == 1


def test_the_sign_test_counts_items_and_no_ties() -> None:
    assert p_fewer([1] * 6 + [5], [2] * 6 + [5]) == pytest.approx(1 / 64)
    assert p_fewer([3, 3], [3, 3]) == 1
    assert p_fewer([2] * 6, [1] * 6) == 1


def test_within_drops_what_is_too_far_below_and_says_so() -> None:
    reference = track("reference", 2, 64, 24)
    dropped = judge([track("bad", 9, 5, 24), track("good", 2, 8, 24)], reference, WITHIN, 0.05)
    assert dropped == {"bad": "62 % right, reference 92 %"}


def test_a_faster_one_with_as_many_right_replaces_a_slower_one() -> None:
    fast, slow, base = (track(name, 1, passes, 12) for name, passes in (("fast", 5), ("slow", 9), ("base", 64)))
    few = [track(f"between {number}", 1, 6, 12) for number in range(KEPT - 1)]
    assert judge([slow, fast, *few], base, WITHIN, 0.05) == {"slow": "9.0 passes, fast 5.0 with as many right"}
    assert judge([slow, fast, *few[1:]], base, WITHIN, 0.05) == {}, "so few settings all stay"
    assert not replaces(track("fast", 2, 5), track("slow", 1, 9), 0.05), "fewer right"
    assert not replaces(track("fast", 0, 9), track("slow", 0, 9), 0.05), "as many passes"
    assert not replaces(track("fast", 0, 5, 4), track("slow", 0, 9, 4), 0.05), "four items show nothing"
    mixed = Track("mixed", (True,) * 48, (1,) * 40 + (99,) * 8)
    assert not replaces(mixed, track("slow", 0, 9), 0.05), "fewer on most items, more on the mean"


def test_passes_drop_what_takes_too_many_and_what_the_best_beats() -> None:
    reference = track("reference", 0, 64)
    race = [track("slow", 0, 9), track("best", 2, 8), track("fast", 12, 4), track("near", 4, 6)]
    assert judge(race, reference, PASSES, 0.05) == {
        "slow": "9.0 passes, at most 8 are wanted",
        "fast": "75 % right, best 96 %",
    }


def test_a_mean_within_the_passes_is_kept_though_most_items_take_more() -> None:
    mixed = Track("mixed", (True,) * 48, (9,) * 40 + (1,) * 8)
    assert mixed.mean < 8
    assert judge([mixed], track("reference", 0, 64), PASSES, 0.05) == {}


def test_the_choice_is_the_fastest_within_or_the_most_accurate_in() -> None:
    reference = track("reference", 1, 64, 200)
    race = [track("a", 3, 9, 200), track("b", 4, 5, 200), track("c", 2, 12, 200)]
    chosen = choose(race, reference, WITHIN)
    assert chosen is not None
    assert chosen.name == "a", "two of 200 are a point, three are more"
    assert choose(race, reference, Goal(within=1.5)) == race[1]
    assert choose(race, reference, Goal(passes=9)) == race[0]
    assert choose(race, reference, Goal(passes=100)) == reference
    assert choose(race, reference, Goal(passes=4)) is None
    assert choose([track("z", 9, 5, 200)], reference, WITHIN) == reference


def test_ties_go_to_fewer_passes_then_to_the_spelling() -> None:
    reference = track("reference", 0, 64)
    equal = [track("b", 0, 7), track("a", 0, 7), track("c", 0, 8)]
    for goal in (WITHIN, PASSES):
        for order in permutations(equal):
            chosen = choose(order, reference, goal)
            assert chosen is not None
            assert chosen.name == "a"


def test_the_frontier_is_what_none_beats() -> None:
    race = [track("a", 0, 9), track("b", 2, 5), track("c", 2, 6), track("d", 1, 9), track("e", 2, 5)]
    assert frontier(race) == ["a", "b", "e"]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([12, 48]), st.sampled_from([WITHIN, Goal(within=10), Goal(passes=5)]))
def test_what_is_as_good_and_as_fast_on_every_item_is_never_dropped_first(
    data: st.DataObject, items: int, goal: Goal
) -> None:
    first, *rest = data.draw(tracks(items))
    reference = track("reference", 1, 64, items)
    right = tuple(a or b for a, b in zip(first.right, rest[0].right, strict=True))
    passes = tuple(min(a, b) for a, b in zip(first.passes, rest[0].passes, strict=True))
    better = Track("better", right, passes)
    for alpha in (0.05, 0.4):
        dropped = judge([first, *rest, better], reference, goal, alpha)
        assert "better" not in dropped or first.name in dropped


@settings(max_examples=40, deadline=None)
@given(tracks(24), st.sampled_from([WITHIN, Goal(passes=5)]), st.randoms())
def test_the_order_of_settings_changes_nothing(found: list[Track], goal: Goal, chance: object) -> None:
    reference = track("reference", 3, 64, 24)
    shuffled = list(found)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert judge(shuffled, reference, goal, 0.2) == judge(found, reference, goal, 0.2)
    assert choose(shuffled, reference, goal) == choose(found, reference, goal)
    assert frontier(shuffled) == frontier(found)


@settings(max_examples=40, deadline=None)
@given(tracks(24), st.sampled_from([WITHIN, Goal(passes=5)]))
def test_at_level_0_nothing_is_dropped(found: list[Track], goal: Goal) -> None:
    assert judge(found, track("reference", 0, 64, 24), goal, 0) == {}


@settings(max_examples=40, deadline=None)
@given(tracks(24))
def test_the_fastest_of_those_near_the_reference_is_never_replaced(found: list[Track]) -> None:
    reference = Track("reference", (False,) * 24, (64,) * 24)
    fastest = min(found, key=lambda each: each.mean)
    assert fastest.name not in judge(found, reference, WITHIN, 0.5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "give within"),
        ({"within": 1, "passes": 8}, "give within"),
        ({"within": -1}, "between 0 and 100 points of accuracy, not -1"),
        ({"within": math.nan}, "not nan"),
        ({"passes": 0.5}, "from 1, not 0.5"),
        ({"passes": math.inf}, "not inf"),
    ],
)
def test_goals_that_cannot_be_meant(words: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Goal(**words)
