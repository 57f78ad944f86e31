"""Places in a full server: bounded as a whole, and in equal parts where several decodings want them."""

from hypothesis import given
from hypothesis import strategies as st

from softdlm.serve.settings import Limits
from softdlm.serve.shares import Shares

asks = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 4), st.booleans()), max_size=60)


@given(asks, st.integers(1, 6), st.integers(0, 20))
def test_the_whole_is_bounded_and_no_crowded_cohort_grows(steps: list[tuple[str, int, bool]], rows: int, queue: int):
    shares = Shares(Limits(max_concurrency=rows, queue=queue))
    held: list[str] = []
    for cohort, wanted, ends in steps:
        if ends and held:
            shares.give_back(held.pop(0))
        before, others = held.count(cohort), {*held} - {cohort}
        part = max(rows, (rows + queue) // (len(others) + 1))
        if shares.why_full(cohort, wanted) is None:
            shares.take(cohort, wanted)
            held += [cohort] * wanted
            assert len(held) <= rows + queue
            assert not before or before + wanted <= part
        else:
            assert len(held) + wanted > rows + queue or before + wanted > part
        assert shares.held == len(held)
    for cohort in held:
        shares.give_back(cohort)
    assert not shares.taken, "a cohort without answers has no part"


def test_one_decoding_alone_may_have_everything() -> None:
    shares = Shares(Limits(max_concurrency=2, queue=6))
    shares.take("slow", 7)
    assert shares.why_full("slow", 1) is None
    shares.take("slow", 1)
    assert "holds at most 8" in str(shares.why_full("slow", 1))


def test_a_slow_decoding_does_not_fill_the_queue_beside_others() -> None:
    """What is given back goes to the newcomer until both have their part."""
    shares = Shares(Limits(max_concurrency=2, queue=6))
    shares.take("slow", 7)
    shares.take("fast", 1)
    for _ in range(3):
        shares.give_back("slow")
        assert "it may have 4" in str(shares.why_full("slow", 1))
        assert shares.why_full("fast", 1) is None
        shares.take("fast", 1)
    assert shares.taken == {"slow": 4, "fast": 4}


def test_a_decoding_fills_the_rows_of_its_passes() -> None:
    """Where the queue is short, an equal part of the capacity would leave rows empty."""
    shares = Shares(Limits(max_concurrency=4, queue=1))
    shares.take("other", 1)
    shares.take("own", 3)
    assert shares.why_full("own", 1) is None


def test_a_request_for_many_answers_is_not_kept_out_for_ever() -> None:
    """A cohort that has nothing takes what is free, more than its part as well."""
    shares = Shares(Limits(max_concurrency=2, queue=6))
    shares.take("fast", 1)
    assert shares.why_full("many", 7) is None
